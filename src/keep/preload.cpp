// SPDX-License-Identifier: Apache-2.0
#include "keep/preload.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>

namespace sublet::keep {
namespace {

constexpr std::string_view separators = " :";
constexpr const char* preload_variable = "LD_PRELOAD";
constexpr const char* credit_variable = "SUBLET_CREDIT";

// "": the daemon has none.
std::string credit_socket(const nlohmann::json& status) {
  const auto daemon = status.is_object() ? status.find("daemon") : status.end();
  if (!status.is_object() || daemon == status.end() || !daemon->is_object()) return {};
  const auto socket = daemon->find("credit_socket");
  return socket != daemon->end() && socket->is_string() ? socket->get<std::string>() : std::string();
}

// Takes the variable out of the environment. The loader reads the first of several entries.
std::string take_variable(std::vector<std::string>& environment, std::string_view name) {
  const auto names_it = [name](const std::string& entry) {
    return entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=';
  };
  const auto found = std::ranges::find_if(environment, names_it);
  std::string value = found == environment.end() ? std::string() : found->substr(name.size() + 1);
  std::erase_if(environment, names_it);
  return value;
}

bool contains(std::string_view list, std::string_view library) {
  while (!list.empty()) {
    const auto end = std::min(list.find_first_of(separators), list.size());
    if (list.substr(0, end) == library) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

}  // namespace

Result<std::string> find_interposer() {
  std::error_code failure;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", failure);
  const std::string path = (self.parent_path().parent_path() / "lib/sublet/libsublet-cuda.so").string();
  if (failure || !std::filesystem::exists(path, failure))
    return not_found(fmt::format("the interposer is not installed: there is no {}", path),
                     "install Sublet again, or leave --interposer out");
  if (path.find_first_of(separators) != std::string::npos)
    return bad_request(fmt::format("LD_PRELOAD cannot name {}: a space or a colon ends an entry", path),
                       "install Sublet in a folder without spaces and colons");
  return path;
}

std::string add_preload(const std::string& list, const std::string& library) {
  if (list.empty() || contains(list, library)) return list.empty() ? library : list;
  return fmt::format("{}:{}", list, library);
}

Status interpose(std::vector<std::string>& environment, const nlohmann::json& status) {
  const auto library = find_interposer();
  if (!library) return library.error();
  const std::string list = take_variable(environment, preload_variable), socket = credit_socket(status);
  (void)take_variable(environment, credit_variable);
  environment.push_back(fmt::format("{}={}", preload_variable, add_preload(list, *library)));
  if (!socket.empty()) environment.push_back(fmt::format("{}={}", credit_variable, socket));
  return {};
}

Status interpose_self(const nlohmann::json& status) {
  std::vector<std::string> ours;
  if (const char* list = std::getenv(preload_variable); list != nullptr)
    ours.push_back(fmt::format("{}={}", preload_variable, list));
  if (const auto done = interpose(ours, status); !done) return done;
  for (const char* name : {preload_variable, credit_variable}) {
    const std::string value = take_variable(ours, name);
    if (value.empty()) ::unsetenv(name);
    else ::setenv(name, value.c_str(), 1);
  }
  return {};
}

}  // namespace sublet::keep
