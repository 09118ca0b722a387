// SPDX-License-Identifier: Apache-2.0
#include "shim/settings.h"

#include "base/fd.h"
#include "base/number.h"
#include "base/size_bounds.h"
#include "base/text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>

namespace sublet::shim {
namespace {

constexpr std::size_t largest_file = 64 << 10;
constexpr std::string_view blank = " \t\r";

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(blank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blank) - begin + 1);
}

Error damaged(int line, std::string_view what) { return bad_request(fmt::format("line {}: {}", line, what)); }

Status take(Settings& settings, std::string_view key, std::string_view value) {
  if (key == "vram") {
    const auto size = parse_size(value);
    if (!size) return size.error();
    if (*size < least_lease) return bad_request(fmt::format("the size '{}' has no unit", printable(value)));
    settings.vram = *size;
  } else if (key == "name") {
    if (!is_label(value)) return bad_request(fmt::format("'{}' cannot name a consumer", printable(value)));
    settings.consumer = value;
  } else if (key == "real") {
    if (!value.starts_with('/')) return bad_request(fmt::format("'{}' is no absolute path", printable(value)));
    settings.real = value;
  } else if (key == "if_absent") {
    const auto policy = parse_if_absent(value);
    if (!policy) return policy.error();
    settings.if_absent = *policy;
  } else if (key == "interposer") {
    if (value != "true" && value != "false")
      return bad_request(fmt::format("'{}' is neither true nor false", printable(value)));
    settings.interposer = value == "true";
  } else if (key == "share") {
    const auto percent = parse_number<int>(value);
    if (!percent || *percent < 1 || *percent > 100)
      return bad_request(fmt::format("'{}' is not between 1 and 100", printable(value)));
    settings.share = *percent;
  } else {
    return bad_request(fmt::format("unknown key '{}'", printable(key)));
  }
  return {};
}

std::string size_text(Bytes size) {
  if (size.count % GiB.count == 0) return fmt::format("{}GiB", size.count / GiB.count);
  if (size.count % MiB.count == 0) return fmt::format("{}MiB", size.count / MiB.count);
  return fmt::format("{}", size.count);
}

// Denied if somebody else than the caller and root may write it.
Status check_owner(const struct stat& status, std::string_view path) {
  const uid_t user = ::geteuid();
  if (status.st_uid != user && status.st_uid != 0)
    return denied(fmt::format("{} belongs to the user {}, not to you or root", printable(path), status.st_uid));
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return denied(fmt::format("other users may write {}", printable(path)),
                  fmt::format("chmod go-w {}", printable(path)));
  return {};
}

}  // namespace

std::string_view to_string(IfAbsent policy) {
  switch (policy) {
    case IfAbsent::run: return "run";
    case IfAbsent::wait: return "wait";
    case IfAbsent::fail: return "fail";
  }
  return "run";
}

Result<IfAbsent> parse_if_absent(std::string_view word) {
  for (const IfAbsent policy : {IfAbsent::run, IfAbsent::wait, IfAbsent::fail})
    if (word == to_string(policy)) return policy;
  return bad_request(fmt::format("'{}' is not one of run, wait, fail", printable(word)));
}

Result<Settings> parse_settings(std::string_view text) {
  Settings settings;
  std::set<std::string_view> keys;
  for (int line = 1; !text.empty(); ++line) {
    const auto end = std::min(text.find('\n'), text.size());
    const std::string_view entry = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (entry.empty() || entry.starts_with('#')) continue;
    const auto equals = entry.find('=');
    if (equals == std::string_view::npos) return damaged(line, "it has no '='");
    const std::string_view key = trimmed(entry.substr(0, equals));
    if (!keys.insert(key).second) return damaged(line, fmt::format("the key '{}' is there twice", printable(key)));
    if (const auto taken = take(settings, key, trimmed(entry.substr(equals + 1))); !taken)
      return damaged(line, taken.error().detail);
  }
  for (const std::string_view needed : {"vram", "name"})
    if (!keys.contains(needed)) return bad_request(fmt::format("the key '{}' is missing", needed));
  if (settings.share > 0 && !settings.interposer) return bad_request("share is there without interposer = true");
  return settings;
}

std::string settings_text(const Settings& settings, std::string_view name) {
  std::string text = fmt::format("# Made by: sublet shim add {}\nvram = {}\nname = {}\nif_absent = {}\n", name,
                                 size_text(settings.vram), settings.consumer, to_string(settings.if_absent));
  if (settings.interposer) text += "interposer = true\n";
  if (settings.share > 0) text += fmt::format("share = {}\n", settings.share);
  if (!settings.real.empty()) text += fmt::format("real = {}\n", settings.real);
  return text;
}

std::string settings_path(const std::string& shim) {
  const auto slash = shim.rfind('/');
  const std::string directory = slash == std::string::npos ? "" : shim.substr(0, slash + 1);
  return fmt::format("{}.{}.shim", directory, slash == std::string::npos ? shim : shim.substr(slash + 1));
}

Result<Settings> read_settings(const std::string& shim) {
  const std::string path = settings_path(shim);
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK | O_NOFOLLOW));
  const int number = errno;
  if (!file && number == ENOENT) return not_found(fmt::format("the file {} is missing", printable(path)));
  if (!file) return denied(fmt::format("{} cannot be read: {}", printable(path), std::strerror(number)));
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return from_errno(path, errno);
  if (!S_ISREG(status.st_mode)) return denied(fmt::format("{} is no regular file", printable(path)));
  if (const auto owned = check_owner(status, path); !owned) return owned.error();
  const std::string directory = path.substr(0, path.rfind('/') + 1);
  if (::stat(directory.empty() ? "." : directory.c_str(), &status) != 0) return from_errno(directory, errno);
  if (const auto owned = check_owner(status, directory.empty() ? "." : directory); !owned) return owned.error();
  std::string text(largest_file, '\0');
  const ssize_t size = ::read(file.get(), text.data(), text.size());
  if (size < 0) return from_errno(path, errno);
  text.resize(static_cast<std::size_t>(size));
  auto settings = parse_settings(text);
  if (!settings) return bad_request(fmt::format("{} is damaged: {}", printable(path), settings.error().detail));
  return settings;
}

}  // namespace sublet::shim
