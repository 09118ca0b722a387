// SPDX-License-Identifier: Apache-2.0
#include "cli/program_environment.h"

#include "base/fd.h"
#include "base/text.h"
#include "client/client.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdint>
#include <cstdlib>
#include <optional>

namespace sublet::cli {
namespace {

using nlohmann::json;

constexpr std::size_t file_limit = 1u << 20;

bool is_inherited(std::string_view name) {
  constexpr std::array<std::string_view, 7> names{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ"};
  return name.starts_with("LC_") || std::find(names.begin(), names.end(), name) != names.end();
}

bool is_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) { return c > 0x20 && c != 0x7f; });
}

std::optional<std::string> value_of(const char* const* environment, std::string_view name) {
  for (const char* const* entry = environment; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (text.size() > name.size() && text.starts_with(name) && text[name.size()] == '=')
      return std::string(text.substr(name.size() + 1));
  }
  return std::nullopt;
}

}  // namespace

Variables inherited(const char* const* ours) {
  Variables found;
  for (const char* const* entry = ours; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals != std::string_view::npos && is_inherited(text.substr(0, equals)))
      found[std::string(text.substr(0, equals))] = text.substr(equals + 1);
  }
  return found;
}

Status add_env_lines(std::string_view text, const std::string& file, Variables& into) {
  for (int number = 1; !text.empty(); ++number) {
    const auto end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    if (line.empty() || line.starts_with('#')) continue;
    const auto equals = line.find('=');
    if (equals == std::string_view::npos || !is_name(line.substr(0, equals)) ||
        line.find('\0') != std::string_view::npos)
      return bad_request(fmt::format("{}:{}: '{}' is not NAME=VALUE", visible(file), number, printable(line)),
                         "write one variable on each line; a line that starts with # is a comment");
    into[std::string(line.substr(0, equals))] = line.substr(equals + 1);
  }
  return {};
}

Status add_env_file(const std::string& path, Variables& into) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  const auto fail = [&] {
    Error error = from_errno(fmt::format("--env-file: cannot read the file '{}'", visible(path)), errno);
    error.hint = "name a readable file that has NAME=VALUE on each line";
    return error;
  };
  if (!file) return fail();
  std::string text;
  std::array<char, 16384> buffer;
  for (;;) {
    const ssize_t got = ::read(file.get(), buffer.data(), buffer.size());
    if (got < 0) return fail();
    if (got == 0) return add_env_lines(text, path, into);
    text.append(buffer.data(), static_cast<std::size_t>(got));
    if (text.size() > file_limit)
      return bad_request(fmt::format("the file '{}' is larger than 1 MiB", visible(path)), "name a file of variables");
  }
}

Status add_env_flags(const std::vector<std::string>& flags, const char* const* ours, Variables& into) {
  for (const std::string& flag : flags) {
    const auto equals = flag.find('=');
    const std::string name = flag.substr(0, equals);
    if (name.empty())
      return bad_request(fmt::format("--env: '{}' has no name", printable(flag)), "write --env NAME=VALUE");
    if (!is_name(name))
      return bad_request(fmt::format("--env: the name '{}' has a blank or a control character", printable(name)),
                         "write --env NAME=VALUE");
    if (equals != std::string::npos) {
      into[name] = flag.substr(equals + 1);
      continue;
    }
    const auto value = value_of(ours, name);
    if (!value)
      return bad_request(fmt::format("--env: your environment has no variable {}", printable(name)),
                         fmt::format("give a value: --env {}=VALUE", printable(name)));
    into[name] = *value;
  }
  return {};
}

Variables all_of(const char* const* ours) {
  Variables found;
  for (const char* const* entry = ours; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    const std::string name = text.substr(0, equals);
    const bool of_a_lease = name.starts_with("SUBLET_") || name == "CUDA_VISIBLE_DEVICES";
    if (equals != std::string::npos && is_name(name) && !of_a_lease && check_utf8("", {text}))
      found[name] = text.substr(equals + 1);
  }
  return found;
}

Result<json> environment_of(const std::vector<std::string>& flags, const std::string& env_file, bool all) {
  Variables variables = all ? all_of(environ) : inherited(environ);
  if (!env_file.empty()) {
    if (auto added = add_env_file(env_file, variables); !added) return added.error();
  }
  if (auto added = add_env_flags(flags, environ, variables); !added) return added.error();
  std::vector<std::string> entries;
  for (const auto& [name, value] : variables) entries.push_back(fmt::format("{}={}", name, value));
  if (auto checked = check_utf8("the variable", entries); !checked) return checked.error();
  return {boost::system::in_place_value, std::move(entries)};
}

Status check_utf8(std::string_view what, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    // Other bytes are replaced in JSON.
    if (json::parse(client::to_text(text)) == json(text)) continue;
    return bad_request(fmt::format("{} '{}' is not UTF-8", what, printable(text)),
                       "a supervised program is stored as text; use sublet run without --detach");
  }
  return {};
}

Result<json> surroundings() {
  std::array<char, PATH_MAX> directory;
  if (::getcwd(directory.data(), directory.size()) == nullptr || directory[0] != '/')
    return from_errno("the current directory cannot be named", errno);
  if (auto checked = check_utf8("the current directory", {directory.data()}); !checked) return checked.error();
  const mode_t mask = ::umask(0);
  ::umask(mask);
  json limits = json::array();
  for (int resource = 0; resource < static_cast<int>(RLIM_NLIMITS); ++resource) {
    rlimit limit{};
    if (::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) continue;
    limits.push_back({{"resource", static_cast<unsigned>(resource)},
                      {"soft", std::uint64_t{limit.rlim_cur}},
                      {"hard", std::uint64_t{limit.rlim_max}}});
  }
  json found{{"directory", directory.data()}, {"umask", static_cast<int>(mask)}, {"limits", std::move(limits)}};
  return {boost::system::in_place_value, std::move(found)};
}

std::string left_out(const std::vector<std::string>& given, const nlohmann::json& status) {
  const auto own = status.find("program_env");
  std::string names;
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH", "PYTHONPATH"}) {
    const auto is_given = [&](const std::string& flag) { return flag.substr(0, flag.find('=')) == name; };
    const char* value = std::getenv(name);
    const bool daemons = own != status.end() && own->is_object() && own->value(name, "") == (value ? value : "");
    if (value == nullptr || daemons || std::ranges::any_of(given, is_given)) continue;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  return names;
}

}  // namespace sublet::cli
