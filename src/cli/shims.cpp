// SPDX-License-Identifier: Apache-2.0
#include "cli/shims.h"

#include "base/directory.h"
#include "shim/real_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace sublet::cli {
namespace {

using Level = Check::Level;

std::string shim_again(const std::string& name) {
  return fmt::format("make it again: sublet shim add {} --vram SIZE", name);
}

std::string hint_of(const Error& error, const std::string& name) {
  return error.hint.empty() ? shim_again(name) : error.hint;
}

// Failures of the shim that have nothing to do with PATH.
std::vector<Check> inner_problems(KnownShim& known) {
  const std::string name = known.name();
  std::vector<Check> problems;
  if (::access(known.path.c_str(), X_OK) != 0)
    problems.push_back({"program", Level::fail,
                        fmt::format("the shim {} leads to no program that can be executed", known.path),
                        shim_again(name)});
  if (!known.settings) {
    const Error& error = known.settings.error();
    problems.push_back({"settings", Level::fail, error.detail, hint_of(error, name)});
    return problems;
  }
  const auto real = shim::find_real_program(known.path, *known.settings, shim::path_variable());
  if (real) known.real = *real;
  else problems.push_back({"real", Level::fail, real.error().detail, hint_of(real.error(), name)});
  return problems;
}

// A shim behind its real program is never called. Whether its directory is in PATH is another check.
std::optional<Check> shadow(const KnownShim& known) {
  const std::string path = shim::path_variable();
  if (!is_in_path(known.directory(), path)) return std::nullopt;
  const std::string first = shim::first_in_path(known.name(), path);
  if (first.empty() || is_in_path(known.directory(), shim::directory_of(first))) return std::nullopt;
  const std::string text = fmt::format("{} stands before the shim {} in PATH", first, known.path);
  if (shim::is_shim(first)) return Check{"shadowed", Level::note, text + ", and is a shim too", {}};
  return Check{"shadowed", Level::fail, text + ", so the shim is never called", path_hint(known.directory())};
}

std::vector<KnownShim> shims_in(const std::string& directory) {
  std::vector<KnownShim> found;
  const Directory listed = read_directory(Fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)));
  if (!listed) return found;
  while (const dirent* entry = ::readdir(listed.get())) {
    const std::string path = directory + "/" + entry->d_name;
    if (entry->d_name[0] == '.' || !shim::is_shim(path)) continue;
    found.push_back({path, shim::read_settings(path)});
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  for (KnownShim& known : found) {
    known.problems = inner_problems(known);
    if (auto shadowed = shadow(known)) known.problems.push_back(std::move(*shadowed));
  }
  return found;
}

std::vector<std::string> shim_directories() {
  std::vector<std::string> found;
  for (const std::string& directory : {shim::user_directory(), shim::system_directory()})
    if (!directory.empty()) found.push_back(directory);
  return found;
}

Cell shim_cell(const nlohmann::json& row, std::string_view key) {
  const std::string text = text_at(row, key);
  return {text.empty() ? "-" : text};
}

Cell shim_state_cell(const nlohmann::json& row, const Look&) {
  const auto& problems = list_at(row, "problems");
  if (problems.empty()) return {"ok"};
  return {text_at(problems.front(), "name"), Paint::red};
}

constexpr Column shim_columns[] = {
    {"name", "NAME", true, false, +[](const nlohmann::json& r, const Look&) { return shim_cell(r, "name"); }},
    {"vram", "VRAM", true, true, +[](const nlohmann::json& r, const Look&) { return size_cell(r, "vram_bytes"); }},
    {"consumer", "CONSUMER", true, false,
     +[](const nlohmann::json& r, const Look&) { return shim_cell(r, "consumer"); }},
    {"absent", "IF ABSENT", true, false,
     +[](const nlohmann::json& r, const Look&) { return shim_cell(r, "if_absent"); }},
    {"state", "STATE", true, false, shim_state_cell},
    {"real", "PROGRAM", true, false, +[](const nlohmann::json& r, const Look&) { return shim_cell(r, "real"); }},
    {"directory", "DIRECTORY", true, false,
     +[](const nlohmann::json& r, const Look&) { return shim_cell(r, "directory"); }, Narrow::below},
};

}  // namespace

std::vector<KnownShim> known_shims() {
  std::vector<KnownShim> all;
  for (const std::string& directory : shim_directories())
    for (KnownShim& known : shims_in(directory)) all.push_back(std::move(known));
  return all;
}

bool is_in_path(const std::string& directory, std::string_view path) {
  struct stat ours {};
  const bool exists = ::stat(directory.c_str(), &ours) == 0;
  for (;;) {
    const auto colon = path.find(':');
    const std::string entry(path.substr(0, colon));
    struct stat theirs {};
    if (entry == directory) return true;
    if (exists && ::stat(entry.c_str(), &theirs) == 0 && theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino)
      return true;
    if (colon == std::string_view::npos) return false;
    path.remove_prefix(colon + 1);
  }
}

std::string path_hint(const std::string& directory) {
  const bool system = directory == shim::system_directory();
  return fmt::format("add this line to {}: export PATH=\"{}:$PATH\"",
                     system ? "/etc/profile.d/sublet.sh" : "~/.profile", directory);
}

Status check_size_of_shim(client::Client& client, const std::string& name, const shim::Settings& settings) {
  const nlohmann::json body{
      {"vram_bytes", settings.vram.count}, {"consumer", settings.consumer}, {"remember", false}, {"dry_run", true}};
  const auto reply = client.call({"POST", "/v1/leases", client::to_text(body), {}, {}}, std::chrono::seconds(3));
  if (reply || reply.error().error.code != Code::TooLarge) return {};
  Error error = reply.error().error;
  error.detail = fmt::format("the shim '{}' is too large: {}", printable(name), error.detail);
  error.hint =
      fmt::format("make it smaller: sublet shim add {} --vram SIZE; `sublet gpus` lists the devices", printable(name));
  return error;
}

Checks check_shims(client::Client* client) {
  Checks checks;
  for (const std::string& directory : shim_directories()) {
    const auto shims = shims_in(directory);
    if (shims.empty()) continue;
    if (is_in_path(directory, shim::path_variable()))
      checks.push_back({"path", Level::ok, fmt::format("{} is in PATH", directory), {}});
    else
      checks.push_back({"path", Level::fail, fmt::format("{} is not in PATH, so its shims are never called", directory),
                        path_hint(directory)});
    for (const KnownShim& known : shims) {
      Checks problems = known.problems;
      if (client != nullptr && known.settings)
        if (const auto fits = check_size_of_shim(*client, known.name(), *known.settings); !fits)
          problems.push_back({"size", Level::fail, fits.error().detail, fits.error().hint});
      checks.insert(checks.end(), problems.begin(), problems.end());
      if (problems.empty())
        checks.push_back({"shim",
                          Level::ok,
                          fmt::format("{} takes {} for {}", known.path, format_size(known.settings->vram), known.real),
                          {}});
    }
  }
  if (checks.empty())
    checks.push_back({"shim", Level::note, "there are no shims", "make one: sublet shim add ffmpeg --vram 2GiB"});
  return checks;
}

nlohmann::json shims_json(const std::vector<KnownShim>& shims) {
  auto list = nlohmann::json::array();
  for (const KnownShim& known : shims) {
    nlohmann::json row{{"name", visible(known.name())},
                       {"directory", visible(known.directory())},
                       {"vram_bytes", nullptr},
                       {"consumer", nullptr},
                       {"if_absent", nullptr},
                       {"interposer", nullptr},
                       {"share", nullptr},
                       {"real", nullptr},
                       {"problems", checks_json(known.problems).at("checks")}};
    if (known.settings) {
      row["vram_bytes"] = known.settings->vram.count;
      row["consumer"] = visible(known.settings->consumer);
      row["if_absent"] = shim::to_string(known.settings->if_absent);
      row["interposer"] = known.settings->interposer;
      if (known.settings->share > 0) row["share"] = known.settings->share;
    }
    if (!known.real.empty()) row["real"] = visible(known.real);
    list.push_back(std::move(row));
  }
  return {{"shims", std::move(list)}};
}

std::string render_shims(const std::vector<KnownShim>& shims, const Common& common, const Look& look) {
  const auto text = render_table("shim ls", shim_columns, shims_json(shims).at("shims"), common, look);
  return text ? *text : std::string();
}

}  // namespace sublet::cli
