// SPDX-License-Identifier: Apache-2.0
#include "pause/answer_file.h"

#include "base/fd.h"
#include "base/text.h"
#include "machine/user_directory.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <string_view>

namespace sublet::pause {
namespace {

constexpr std::size_t most_answer = 1024;  // bytes

// Parses "yielded", "refused: the reason" or "resumed", as a shell writes it.
std::optional<Said> parse_said(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.remove_suffix(1);
  const auto colon = std::min(text.find(':'), text.size());
  const auto word = parse_yield_answer(text.substr(0, colon));
  if (!word) return std::nullopt;
  text.remove_prefix(std::min(colon + 1, text.size()));
  while (text.starts_with(' ')) text.remove_prefix(1);
  return Said{*word, printable(text)};
}

}  // namespace

std::string answer_path(const std::string& dir, LeaseId lease, std::uint32_t uid) {
  return fmt::format("{}/{}-yield", machine::user_directory(dir, uid), to_string(lease));
}

void remove_answer(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
}

std::optional<Said> read_said(const std::string& path, std::uint32_t uid) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file) return std::nullopt;
  struct stat about {};
  if (::fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode)) return std::nullopt;
  if (about.st_uid != uid && about.st_uid != 0) return std::nullopt;
  std::array<char, most_answer> text;
  const ssize_t size = ::read(file.get(), text.data(), text.size());
  if (size <= 0 || text[static_cast<std::size_t>(size) - 1] != '\n') return std::nullopt;
  return parse_said({text.data(), static_cast<std::size_t>(size)});
}

}  // namespace sublet::pause
