// SPDX-License-Identifier: Apache-2.0
#include "compose/discovery.h"

#include "base/directory.h"
#include "base/text.h"
#include "compose/description.h"
#include "compose/yaml.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <map>
#include <set>

namespace sublet::compose {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::array file_names{"docker-compose.yml", "docker-compose.yaml", "compose.yml", "compose.yaml"};
constexpr const char* config_source = "GPU_SERVICE_CONFIG_YAML";

bool is_kind(const std::string& path, mode_t kind) {
  struct stat entry {};
  return ::stat(path.c_str(), &entry) == 0 && (entry.st_mode & S_IFMT) == kind;
}

// Returns the Compose file of a directory; "": it has none.
std::string file_in(const std::string& directory) {
  for (const char* name : file_names) {
    std::string path = (fs::path(directory) / name).string();
    if (is_kind(path, S_IFREG)) return path;
  }
  return {};
}

Description failed(std::string name, Origin origin, Error error) {
  Description stack;
  stack.name = std::move(name);
  stack.origin = origin;
  stack.error = std::move(error);
  return stack;
}

// Compose reads `.env` of the directory by itself.
Status check_files(const Description& stack, const Trust& trust) {
  if (auto safe = check_trusted(stack.file, trust); !safe) return safe;
  const std::string env_file = (fs::path(stack.directory) / ".env").string();
  struct stat entry {};
  if (::lstat(env_file.c_str(), &entry) != 0 && errno == ENOENT) return {};
  return check_trusted(env_file, trust);
}

Description make(std::string name, Origin origin, std::string file, const Trust& trust) {
  Description stack;
  stack.name = std::move(name);
  stack.origin = origin;
  stack.file = std::move(file);
  stack.directory = fs::path(stack.file).parent_path().string();
  stack.project = project_of(fs::path(stack.directory).filename().string());
  if (!is_stack_name(stack.name)) {
    stack.error = bad_request(
        fmt::format("'{}' cannot name a stack ({}): only letters, 0 to 9, '_', '.' and '-', at most 63 characters",
                    printable(stack.name), printable(stack.file)),
        "rename the directory, or adopt the file with --name");
    stack.name = printable(stack.name);
  } else if (auto safe = check_files(stack, trust); !safe) {
    stack.error = safe.error();
  }
  return stack;
}

// `path` is a directory or a Compose file.
Description from_path(std::string name, Origin origin, const std::string& path, const Trust& trust) {
  if (path.empty() || path[0] != '/') {
    return failed(std::move(name), origin,
                  bad_request(fmt::format("the path '{}' of stack '{}' is not absolute", printable(path), name)));
  }
  const std::string file = is_kind(path, S_IFDIR) ? file_in(path) : is_kind(path, S_IFREG) ? path : "";
  if (file.empty()) {
    Error missing = not_found(printable(path) + " does not exist");
    if (is_kind(path, S_IFDIR)) {
      missing = not_found(printable(path) + " has no Compose file", "it is called docker-compose.yml or compose.yml");
    }
    return failed(std::move(name), origin, std::move(missing));
  }
  return make(std::move(name), origin, file, trust);
}

void find_in_directory(const Sources& sources, const Trust& trust, std::vector<Description>& found) {
  if (sources.dir.empty()) return;
  Fd opened(::open(sources.dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const int error = sources.dir[0] != '/' ? EINVAL : opened ? 0 : errno;
  const Directory directory = error == 0 ? read_directory(std::move(opened)) : Directory();
  if (!directory) {
    found.push_back(
        failed(printable(sources.dir), Origin::directory, from_errno("cannot read stacks.dir " + sources.dir, error)));
    return;
  }
  std::set<std::string> names;
  while (const dirent* entry = ::readdir(directory.get())) names.insert(entry->d_name);
  for (const std::string& name : names) {
    if (name == "." || name == "..") continue;
    if (found.size() >= most_stacks) return;
    const std::string file = file_in((fs::path(sources.dir) / name).string());
    if (!file.empty()) found.push_back(make(name, Origin::directory, file, trust));
  }
}

// An entry is a path, or {name, path}. `name` is its key in a mapping; "": none.
Description from_entry(std::string name, const json& entry, const Trust& trust) {
  std::string path = scalar_text(entry);
  if (entry.is_object()) {
    if (entry.contains("path")) path = scalar_text(entry["path"]);
    if (name.empty() && entry.contains("name")) name = scalar_text(entry["name"]);
  }
  if (name.empty()) {
    const fs::path place(path);
    name = (is_kind(path, S_IFDIR) ? place : place.parent_path()).filename().string();
  }
  if (name.empty()) name = config_source;
  return from_path(std::move(name), Origin::config, path, trust);
}

void find_in_config(const Sources& sources, const Trust& trust, std::vector<Description>& found) {
  if (sources.config.empty()) return;
  auto whole = read_yaml(sources.config, config_source);
  if (!whole) return found.push_back(failed(config_source, Origin::config, whole.error()));
  const json* entries = &whole->root;
  if (entries->is_object() && entries->size() == 1 && entries->contains("services") &&
      (*entries)["services"].is_structured()) {
    entries = &(*entries)["services"];
  }
  if (!entries->is_structured()) {
    return found.push_back(failed(config_source, Origin::config,
                                  bad_request(fmt::format("{} is neither a mapping nor a list", config_source))));
  }
  for (const auto& entry : entries->items()) {
    if (found.size() >= most_stacks) return;
    found.push_back(from_entry(entries->is_object() ? entry.key() : "", entry.value(), trust));
  }
}

// The same file under the same name, adopted and found elsewhere, is one stack.
void drop_repetitions(std::vector<Description>& stacks) {
  std::set<std::pair<std::string, std::string>> seen;
  std::vector<Description> kept;
  for (auto at = stacks.rbegin(); at != stacks.rend(); ++at) {
    if (at->file.empty() || seen.insert({at->name, at->file}).second) kept.push_back(std::move(*at));
  }
  stacks.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
}

void refuse_shared_names(std::vector<Description>& stacks) {
  std::map<std::string, std::vector<Description*>> by_name;
  for (Description& stack : stacks) by_name[stack.name].push_back(&stack);
  for (auto& [name, same] : by_name) {
    for (std::size_t i = 0; same.size() > 1 && i < same.size(); ++i) {
      const Description& other = *same[i == 0 ? 1 : 0];
      same[i]->error =
          bad_request(fmt::format("two stacks have the name '{}': {} and {}", name, same[i]->file, other.file),
                      "rename a directory, or remove one of the two");
    }
  }
}

}  // namespace

std::vector<Description> discover(const Sources& sources, const Trust& trust) {
  std::vector<Description> found;
  find_in_directory(sources, trust, found);
  find_in_config(sources, trust, found);
  for (const Adopted& adopted : sources.adopted) {
    if (found.size() >= most_stacks) break;
    found.push_back(from_path(adopted.name, Origin::adopted, adopted.path, trust));
  }
  drop_repetitions(found);
  refuse_shared_names(found);
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return found;
}

void refuse_shared_projects(std::vector<Description>& stacks) {
  std::map<std::string, std::vector<Description*>> by_project;
  for (Description& stack : stacks) {
    if (!stack.error) by_project[stack.project].push_back(&stack);
  }
  for (auto& [project, same] : by_project) {
    for (std::size_t i = 0; same.size() > 1 && i < same.size(); ++i) {
      same[i]->error = bad_request(fmt::format("the stacks '{}' and '{}' are the same Compose project '{}'",
                                               same[i]->name, same[i == 0 ? 1 : 0]->name, project),
                                   "rename a directory, or set different names by `name:` (Compose 2)");
    }
  }
}

}  // namespace sublet::compose
