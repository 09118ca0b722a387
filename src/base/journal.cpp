// SPDX-License-Identifier: Apache-2.0
#include "base/journal.h"

#include <fmt/format.h>

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <cstdint>
#include <cstdlib>

namespace sublet {
namespace {

// A value with a newline is written with its size: 64 bits, lowest byte first.
void add(std::string& entry, std::string_view name, std::string_view value) {
  entry += name;
  if (value.find('\n') == std::string_view::npos) {
    entry += '=';
  } else {
    entry += '\n';
    for (std::uint64_t rest = value.size(), i = 0; i < 8; ++i, rest >>= 8) entry += static_cast<char>(rest & 0xff);
  }
  entry += value;
  entry += '\n';
}

}  // namespace

bool is_journal(int fd) {
  const char* named = std::getenv("JOURNAL_STREAM");
  struct stat info {};
  return named != nullptr && ::fstat(fd, &info) == 0 && fmt::format("{}:{}", info.st_dev, info.st_ino) == named;
}

Journal::Journal(std::string_view identifier, std::string socket)
    : identifier_(identifier),
      path_(std::move(socket)),
      socket_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {}

bool Journal::send(const std::vector<Field>& fields) const {
  std::string entry;
  add(entry, "SYSLOG_IDENTIFIER", identifier_);
  for (const Field& field : fields) add(entry, field.name, field.value);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path_.copy(address.sun_path, sizeof address.sun_path - 1);
  return ::sendto(socket_.get(), entry.data(), entry.size(), MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address),
                  sizeof address) == static_cast<ssize_t>(entry.size());
}

}  // namespace sublet
