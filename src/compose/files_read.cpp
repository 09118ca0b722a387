// SPDX-License-Identifier: Apache-2.0
#include "compose/files_read.h"

#include "base/text.h"
#include "compose/private_file.h"
#include "compose/variables.h"
#include "compose/yaml.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>

namespace sublet::compose {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::size_t most_files = 500;
constexpr std::size_t most_entries = 50'000;  // of a build context

// The values of a key, also those that a YAML merge ("<<") brings in.
std::vector<const json*> values(const json& map, const char* key) {
  std::vector<const json*> found;
  if (map.is_array())
    for (const json& each : map)
      for (const json* value : values(each, key)) found.push_back(value);
  if (!map.is_object()) return found;
  if (const auto own = map.find(key); own != map.end()) found.push_back(&*own);
  if (const auto merged = map.find("<<"); merged != map.end())
    for (const json* value : values(*merged, key)) found.push_back(value);
  return found;
}

// A text or number, or the texts of a list; of an entry that is a mapping, its field `field`.
std::vector<std::string> texts(const json& value, const char* field = "path") {
  if (value.is_primitive() && !value.is_null()) return {scalar_text(value)};
  std::vector<std::string> found;
  if (value.is_array())
    for (const json& each : value)
      for (std::string& text : texts(each, field)) found.push_back(std::move(text));
  if (value.is_object())
    for (const json* each : values(value, field))
      for (std::string& text : texts(*each, field)) found.push_back(std::move(text));
  return found;
}

void add_entries(const json& map, std::vector<const json*>& found) {
  if (map.is_array())
    for (const json& each : map) add_entries(each, found);
  if (!map.is_object()) return;
  for (const auto& [name, value] : map.items()) {
    if (name == "<<") add_entries(value, found);
    else found.push_back(&value);
  }
}

// The entries of mappings such as `services`, also those that a YAML merge brings in.
std::vector<const json*> entries(const json& root, const char* key) {
  std::vector<const json*> found;
  for (const json* map : values(root, key))
    if (map->is_object()) add_entries(*map, found);
  return found;
}

// Whether `path` lies in `directory`, or is it.
bool is_in(const std::string& path, const std::string& directory) {
  return path.starts_with(directory) && (path.size() == directory.size() || path[directory.size()] == '/');
}

bool is_remote(const std::string& path) {
  return path.find("://") != path.npos || path.starts_with("git@") || path.starts_with("github.com/");
}

class Reader {
 public:
  explicit Reader(const Trust& trust) : trust_(trust) {}

  // Reads a Compose file. `directory`: of its project. `extended`: only its services count.
  void compose_file(const std::string& path, const std::string& directory, const Variables& variables, bool extended);
  void env_file(const std::string& path, const Variables& outer, Variables& own);
  Result<std::vector<std::string>> take();

 private:
  void document(const json& root, const std::string& directory, const Variables& variables, bool extended);
  void service(const json& service, const std::string& directory, const Variables& variables);
  void build(const json& build, const std::string& directory, const Variables& variables);
  void cache(const json& build, const Variables& variables);
  void include(const json& entry, const std::string& directory, const Variables& variables);
  void note_mounts(const json& service, const std::string& directory, const Variables& variables);
  std::vector<std::string> left_out(const std::string& context, const std::vector<std::string>& dockerfiles);
  std::string place(const std::string& text, const std::string& directory, const Variables& variables,
                    bool may_be_remote = false);
  bool check(const std::string& path);
  void check_tree(const std::string& path, const std::vector<std::string>& skipped = {});
  std::string content(const std::string& path);
  void fail(Error error) {
    if (!problem_) problem_ = std::move(error);
  }
  void fail_unknown(const std::string& text);

  const Trust& trust_;
  std::set<std::string> seen_;  // Compose files, with all that their paths depend on
  std::set<std::string> files_;
  std::set<std::string> mounts_;  // what containers mount
  std::string reader_;            // the Compose file that is read now
  std::optional<Error> problem_;
};

void Reader::fail_unknown(const std::string& text) {
  const std::string file = printable(reader_);
  fail(denied(fmt::format("{} names a file by '{}', and this path cannot be known", file, printable(text)),
              "write the whole path, without variables"));
}

// The absolute path that a text of the file means; "": it is not known, or not on this machine.
std::string Reader::place(const std::string& text, const std::string& directory, const Variables& variables,
                          bool may_be_remote) {
  auto path = interpolate(text, variables);
  if (!path) {
    fail_unknown(text);
    return {};
  }
  if (constexpr std::string_view layout = "oci-layout://"; path->starts_with(layout)) {  // PATH:TAG or PATH@DIGEST
    path->erase(0, layout.size());
    path->erase(std::min(path->find('@'), path->size()));
    const auto name = path->rfind('/') == path->npos ? 0 : path->rfind('/');
    path->erase(std::min(path->find(':', name), path->size()));
  }
  if (is_remote(*path)) {
    if (!may_be_remote)
      fail(denied(fmt::format("{} reads {}, which is on another machine", printable(reader_), printable(*path)),
                  "copy the file to this machine"));
    return {};
  }
  if (path->empty()) return {};
  if (path->starts_with('~')) {
    if (!path->starts_with("~/")) {  // "~ana/x" is in the home of another user for some versions of Compose
      fail(denied(fmt::format("{} names a file by '{}', and versions of Compose differ about its place",
                              printable(reader_), printable(*path)),
                  "write the whole path, or ~/ for the home; write ./~ for a file whose name begins with ~"));
      return {};
    }
    const char* home = std::getenv("HOME");
    return (fs::path(home != nullptr ? home : "/") / path->substr(2)).lexically_normal().string();
  }
  return (fs::path(directory) / *path).lexically_normal().string();
}

// Returns whether the file is there, and safe.
bool Reader::check(const std::string& path) {
  if (path.empty() || problem_ || path == "/dev/null") return false;
  if (files_.size() >= most_files) {
    fail(denied(fmt::format("{} reads more than {} files", printable(reader_), most_files), "use fewer files"));
    return false;
  }
  files_.insert(path);
  const Status safe = check_trusted(path, trust_);
  if (safe) return true;
  if (safe.error().code == Code::NotFound) return false;
  Error error = safe.error();
  if (!reader_.empty())
    error.detail = fmt::format("{} reads {}: {}", printable(reader_), printable(path), error.detail);
  fail(std::move(error));
  return false;
}

// Paths in the context that are not checked: what containers mount from it, and what .dockerignore leaves out by plain
// names. Patterns of other kinds leave nothing out here; with an exception ("!"), or beside a file of the same kind for
// one of the Dockerfiles alone, none does.
std::vector<std::string> Reader::left_out(const std::string& context, const std::vector<std::string>& dockerfiles) {
  std::vector<std::string> mounts, found;
  for (const std::string& mount : mounts_)
    if (mount != context && is_in(mount, context)) mounts.push_back(mount);
  std::error_code ignored;
  for (const std::string& each : dockerfiles)
    if (fs::exists(each + ".dockerignore", ignored)) return mounts;
  const std::string file = context + "/.dockerignore";
  const std::string lines = check(file) ? content(file) : "";
  for (std::size_t at = 0; at < lines.size();) {
    const auto end = std::min(lines.find('\n', at), lines.size());
    std::string_view line = std::string_view(lines).substr(at, end - at);
    at = end + 1;
    line = line.substr(0, line.find_last_not_of(" \t\r/") + 1);
    if (line.starts_with('!')) return mounts;
    if (line.starts_with("./")) line.remove_prefix(2);
    if (line.starts_with('/')) line.remove_prefix(1);
    if (line.empty() || line[0] == '#' || line[0] == ' ' || line.find_first_of("*?[\\") != line.npos) continue;
    found.push_back((fs::path(context) / line).lexically_normal().string());
  }
  std::erase_if(found, [&](const std::string& path) { return path == context || !is_in(path, context); });
  found.insert(found.end(), mounts.begin(), mounts.end());
  return found;
}

void Reader::check_tree(const std::string& path, const std::vector<std::string>& skipped) {
  if (!check(path)) return;
  std::size_t count = 0;
  std::error_code failure;
  const auto skip = fs::directory_options::skip_permission_denied;
  fs::recursive_directory_iterator at(path, skip, failure);
  for (const fs::recursive_directory_iterator end; !failure && at != end; at.increment(failure)) {
    if (std::ranges::count(skipped, at->path().string()) > 0) {
      at.disable_recursion_pending();
      continue;
    }
    if (++count > most_entries) {
      return fail(denied(fmt::format("the build context {} has more than {} files", printable(path), most_entries),
                         "leave some out by their names in .dockerignore, or build the image beforehand"));
    }
    if (const Status safe = check_entry_trusted(at->path().string(), trust_); !safe) {
      Error error = safe.error();
      error.hint += "; or leave it out of the build context by its name in .dockerignore";
      return fail(std::move(error));
    }
  }
  if (failure && failure != std::errc::not_a_directory)
    fail(from_errno("cannot read the build context " + printable(path), failure.value()));
}

std::string Reader::content(const std::string& path) {
  std::error_code failure;
  const std::string real = fs::canonical(path, failure).string();
  auto text = read_private_file(failure ? path : real, most_yaml);
  if (text) return std::move(*text);
  fail(text.error());
  return {};
}

void Reader::env_file(const std::string& path, const Variables& outer, Variables& own) {
  if (check(path)) parse_variables(content(path), outer, own);
}

void Reader::compose_file(const std::string& path, const std::string& directory, const Variables& variables,
                          bool extended) {
  if (!check(path)) return;
  json key{path, directory, extended, variables.complete};
  for (const auto& [name, value] : variables.values) key.push_back({name, value ? json(*value) : json()});
  if (!seen_.insert(key.dump(-1, ' ', false, json::error_handler_t::replace)).second) return;
  if (seen_.size() > most_files)
    return fail(denied(fmt::format("{} reads more than {} files", printable(reader_), most_files), "use fewer files"));
  const auto documents = read_all_yaml(content(path), path);
  if (!documents) return fail(documents.error());
  const std::string before = std::exchange(reader_, path);
  for (const Document& one : *documents) document(one.root, directory, variables, extended);
  reader_ = before;
}

void Reader::document(const json& root, const std::string& directory, const Variables& variables, bool extended) {
  for (const json* each : entries(root, "services")) note_mounts(*each, directory, variables);
  for (const json* each : entries(root, "services")) service(*each, directory, variables);
  if (extended) return;
  for (const char* kind : {"secrets", "configs"})
    for (const json* each : entries(root, kind))
      for (const std::string& text : texts(*each, "file")) check(place(text, directory, variables));
  for (const json* list : values(root, "include")) {
    if (!list->is_array()) include(*list, directory, variables);
    else
      for (const json& each : *list) include(each, directory, variables);
  }
}

// Containers may own what they mount, and a build beside it is no better for a check of it. Named volumes have no path.
void Reader::note_mounts(const json& service, const std::string& directory, const Variables& variables) {
  for (const json* list : values(service, "volumes"))
    for (const std::string& text : texts(*list, "source")) {
      const auto path = interpolate(text, variables);
      if (!path || path->empty() || ((*path)[0] != '.' && (*path)[0] != '/')) continue;
      const std::string source = path->substr(0, path->find(':'));
      std::string mount = (fs::path(directory) / source).lexically_normal().string();
      if (mount.size() > 1 && mount.ends_with('/')) mount.pop_back();
      mounts_.insert(std::move(mount));
    }
}

// The directory of the first file is that of all.
void Reader::include(const json& entry, const std::string& directory, const Variables& variables) {
  std::string own;
  if (entry.is_object())
    for (const std::string& text : texts(entry, "project_directory")) own = place(text, directory, variables);
  std::vector<std::string> paths;
  for (const std::string& text : texts(entry))
    if (std::string path = place(text, directory, variables); !path.empty()) paths.push_back(std::move(path));
  if (paths.empty()) return;
  if (own.empty()) own = fs::path(paths[0]).parent_path().string();
  std::vector<std::string> env_files;
  if (entry.is_object()) {
    for (const json* each : values(entry, "env_file"))
      for (const std::string& name : texts(*each)) env_files.push_back(place(name, directory, variables));
  }
  if (env_files.empty()) env_files.push_back((fs::path(own) / ".env").string());
  Variables read, more = variables;
  for (const std::string& name : env_files) env_file(name, variables, read);
  more.merge(read);
  for (const std::string& path : paths) compose_file(path, own, more, false);
}

void Reader::service(const json& service, const std::string& directory, const Variables& variables) {
  for (const char* key : {"env_file", "label_file"})
    for (const json* each : values(service, key))
      for (const std::string& text : texts(*each)) check(place(text, directory, variables));
  for (const json* each : values(service, "build")) build(*each, directory, variables);
  for (const json* each : values(service, "provider"))  // a program that `up` runs; without '/', one of PATH
    for (const std::string& text : texts(*each, "type")) {
      if (text.find_first_of("/$") == text.npos) continue;
      const auto program = interpolate(text, variables);
      if (program && program->starts_with('/')) check(*program);
      else if (!program || program->find('/') != program->npos) fail_unknown(text);
    }
  for (const json* each : values(service, "security_opt"))
    for (const std::string& text : texts(*each)) {
      if (!text.starts_with("seccomp") || text.size() < 8 || (text[7] != ':' && text[7] != '=')) continue;
      const std::string profile = text.substr(8);
      if (profile != "unconfined" && profile != "builtin") check(place(profile, directory, variables));
    }
  for (const json* each : values(service, "extends")) {
    if (!each->is_object()) continue;
    for (const std::string& text : texts(*each, "file")) {
      const std::string path = place(text, directory, variables);
      if (!path.empty()) compose_file(path, fs::path(path).parent_path().string(), variables, true);
    }
  }
}

// A context on another machine is trusted as an image is: the Compose file names it.
void Reader::build(const json& build, const std::string& directory, const Variables& variables) {
  std::string context = directory;
  for (const std::string& text : texts(build, "context")) context = place(text, directory, variables, true);
  if (context.size() > 1 && context.ends_with('/')) context.pop_back();
  if (!context.empty()) {
    std::vector<std::string> files{context + "/Dockerfile", context + "/dockerfile"};
    for (const json* each : values(build, "dockerfile"))
      for (const std::string& text : texts(*each)) files.push_back(place(text, context, variables));
    for (const std::string& file : files) check(file);  // they are read although they are left out
    check_tree(context, left_out(context, files));
  }
  if (!build.is_object()) return;
  std::vector<std::string> named;
  for (const json* more : values(build, "additional_contexts")) {
    if (!more->is_array()) continue;
    for (const std::string& each : texts(*more)) named.push_back(each.substr(each.find('=') + 1));
  }
  for (const json* value : entries(build, "additional_contexts")) named.push_back(scalar_text(*value));
  for (const std::string& text : named)
    if (!text.starts_with("service:")) check_tree(place(text, directory, variables, true));
  cache(build, variables);
}

// "type=local,src=PATH"; a path that is not whole depends on where Compose runs.
void Reader::cache(const json& build, const Variables& variables) {
  for (const json* list : values(build, "cache_from"))
    for (const std::string& text : texts(*list)) {
      const auto all = interpolate(text, variables);
      if (!all) fail_unknown(text);
      const std::string fields = "," + all.value_or("");
      const auto at = fields.find(",src=");
      if (at == fields.npos || fields.find(",type=local") == fields.npos) continue;
      const std::string path = fields.substr(at + 5, fields.find(',', at + 1) - at - 5);
      if (path.starts_with('/')) check_tree(fs::path(path).lexically_normal().string());
      else fail_unknown(text);
    }
}

Result<std::vector<std::string>> Reader::take() {
  if (problem_) return *problem_;
  return std::vector<std::string>(files_.begin(), files_.end());
}

}  // namespace

Result<std::vector<std::string>> files_read(const Description& stack, const std::string& env_file,
                                            const Variables& environment, const Trust& trust) {
  Reader reader(trust);
  const std::string own = (fs::path(stack.directory) / ".env").string();
  Variables read, variables = environment;
  reader.env_file(env_file.empty() ? own : env_file, environment, read);
  variables.merge(read);
  reader.compose_file(stack.file, stack.directory, variables, false);
  return reader.take();
}

}  // namespace sublet::compose
