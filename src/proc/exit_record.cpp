// SPDX-License-Identifier: Apache-2.0
#include "proc/exit_record.h"

#include "base/fd.h"
#include "base/text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <cstdio>
#include <ctime>

namespace sublet::proc {
namespace {

using Json = nlohmann::json;

constexpr std::size_t max_record = 4096;
constexpr std::int64_t ns_per_ms = 1'000'000;

Error not_a_record(std::string_view why) { return bad_request(fmt::format("not an exit record: {}", why)); }

// The inverse of format_rfc3339: exactly "2026-11-21T16:00:05.123Z".
std::optional<Time> parse_time(const std::string& text) {
  std::tm parts{};
  int milliseconds = 0;
  int length = 0;
  if (std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ%n", &parts.tm_year, &parts.tm_mon, &parts.tm_mday,
                  &parts.tm_hour, &parts.tm_min, &parts.tm_sec, &milliseconds, &length) != 7) {
    return std::nullopt;
  }
  if (length != 24 || text.size() != 24 || parts.tm_year < 1970 || parts.tm_year > 2200) return std::nullopt;
  parts.tm_year -= 1900;
  parts.tm_mon -= 1;
  const std::int64_t seconds = ::timegm(&parts);
  const Time time{(seconds * 1000 + milliseconds) * ns_per_ms};
  // Text in any other form (month 13, second 61, signs) formats differently.
  return format_rfc3339(time) == text ? std::optional(time) : std::nullopt;
}

// Reads a member that is null or an integer in a range. False: the member is neither.
bool read_optional(const Json& json, const char* name, int low, int high, std::optional<int>& value) {
  const auto found = json.find(name);
  if (found == json.end()) return false;
  if (found->is_null()) return true;
  if (!found->is_number_integer()) return false;
  const auto number = found->get<std::int64_t>();
  if (found->is_number_unsigned() && found->get<std::uint64_t>() > 255) return false;
  if (number < low || number > high) return false;
  value = static_cast<int>(number);
  return true;
}

std::string directory_of(const std::string& path) {
  const auto slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

int write_fully(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

}  // namespace

std::string encode_exit_record(const ExitRecord& record) {
  Json json;
  json["lease"] = to_string(record.lease);
  json["exit_status"] = record.exit_status ? Json(*record.exit_status) : Json();
  json["signal"] = record.signal ? Json(*record.signal) : Json();
  if (record.forwarded) json["forwarded"] = true;
  json["ended_at"] = format_rfc3339(record.ended_at);
  return json.dump() + "\n";
}

Result<ExitRecord> decode_exit_record(std::string_view text) {
  if (text.size() > max_record) return not_a_record(fmt::format("{} bytes are more than {}", text.size(), max_record));
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return not_a_record("no JSON object");
  const auto lease = json.find("lease");
  const auto ended = json.find("ended_at");
  if (lease == json.end() || !lease->is_string()) return not_a_record("no lease");
  if (ended == json.end() || !ended->is_string()) return not_a_record("no ended_at");
  ExitRecord record;
  const auto id = parse_lease_id(lease->get_ref<const std::string&>());
  if (!id) return not_a_record(id.error().detail);
  record.lease = *id;
  if (!read_optional(json, "exit_status", 0, 255, record.exit_status)) return not_a_record("exit_status is no status");
  if (!read_optional(json, "signal", 1, 64, record.signal)) return not_a_record("signal is no signal");
  if (record.exit_status && record.signal) return not_a_record("both an exit status and a signal");
  record.forwarded = record.signal && json.value("forwarded", Json()) == true;
  const auto time = parse_time(ended->get_ref<const std::string&>());
  if (!time) return not_a_record("ended_at is no time");
  record.ended_at = *time;
  return record;
}

Status write_exit_record(const std::string& path, const ExitRecord& record) {
  const auto fail = [&](std::string_view what, int problem) {
    return from_errno(fmt::format("cannot {} the exit record {}", what, path), problem);
  };
  const std::string folder = directory_of(path);
  Fd dir(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Users may leave records in a system daemon's folder, but may not list it.
  const bool readable = dir || errno != EACCES;
  if (!readable) dir = Fd(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!dir) return fail("open the directory of", errno);
  const std::string name = path.substr(path.rfind('/') + 1);  // npos + 1 is 0: the whole path
  const std::string temporary = fmt::format(".{}.{}.new", name, ::getpid());
  ::unlinkat(dir.get(), temporary.c_str(), 0);  // left by an earlier process with our pid that died half way
  {
    const Fd file(::openat(dir.get(), temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
    if (!file) return fail("create", errno);
    // The mode must not depend on the program's umask: the daemon may be another user. The directory decides who may
    // reach the file.
    int problem = ::fchmod(file.get(), 0644) == 0 ? 0 : errno;
    if (problem == 0) problem = write_fully(file.get(), encode_exit_record(record));
    if (problem == 0 && ::fsync(file.get()) != 0) problem = errno;
    if (problem != 0) {
      ::unlinkat(dir.get(), temporary.c_str(), 0);
      return fail("write", problem);
    }
  }
  if (::renameat(dir.get(), temporary.c_str(), dir.get(), name.c_str()) != 0) {
    const int problem = errno;
    ::unlinkat(dir.get(), temporary.c_str(), 0);
    return fail("name", problem);
  }
  // A directory that may not be read cannot be synced. This is harmless: only a crash of the machine could lose the new
  // name, and no lease survives such a crash.
  if (readable && ::fsync(dir.get()) != 0) return fail("make durable", errno);
  return {};
}

Result<ExitRecord> read_exit_record(const std::string& path, uid_t owner) {
  const auto refuse = [&](std::string_view why) {
    return denied(fmt::format("the exit record {} {}", printable(path), why));
  };
  const Fd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file) {
    if (errno == ENOENT) return not_found(fmt::format("there is no exit record {}", printable(path)));
    if (errno == ELOOP) return refuse("is a symbolic link");
    if (errno == ENXIO) return refuse("is not a plain file");
    return from_errno(fmt::format("cannot open the exit record {}", printable(path)), errno);
  }
  struct stat about {};
  if (::fstat(file.get(), &about) != 0) return from_errno("cannot read the metadata of an exit record", errno);
  if (!S_ISREG(about.st_mode)) return refuse("is not a plain file");
  if (about.st_uid != owner) return refuse(fmt::format("belongs to uid {}, not {}", about.st_uid, owner));
  if ((about.st_mode & (S_IWGRP | S_IWOTH)) != 0) return refuse("is writable by other users");
  std::array<char, max_record + 1> text;
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = ::read(file.get(), text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return from_errno("cannot read an exit record", errno);
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  return decode_exit_record({text.data(), size});
}

}  // namespace sublet::proc
