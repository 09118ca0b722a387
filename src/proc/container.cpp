// SPDX-License-Identifier: Apache-2.0
#include "proc/container.h"

#include "base/text.h"

#include <algorithm>
#include <array>
#include <optional>

namespace sublet::proc {
namespace {

constexpr std::size_t id_digits = 64;     // of a container's whole id
constexpr std::size_t shown_digits = 12;  // as `docker ps` and `podman ps` show an id
constexpr std::size_t longest_name = 64;

bool is_id(std::string_view text) {
  return text.size() == id_digits && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::optional<std::string_view> between(std::string_view text, std::string_view before, std::string_view after) {
  if (text.size() <= before.size() + after.size() || !text.starts_with(before) || !text.ends_with(after)) return {};
  return text.substr(before.size(), text.size() - before.size() - after.size());
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// A name of systemd without its escapes: "\x2d" is '-'.
std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool escape = text.substr(at, 2) == "\\x" && at + 3 < text.size();
    const int high = escape ? hex_digit(text[at + 2]) : -1;
    const int low = escape ? hex_digit(text[at + 3]) : -1;
    if (high < 0 || low < 0) {
      out += text[at];
      continue;
    }
    out += static_cast<char>(high * 16 + low);
    at += 3;
  }
  return out;
}

std::string shown(std::string_view name) { return visible(name.substr(0, longest_name)); }

// "docker-ID.scope", "libpod-ID.scope", "cri-containerd-ID.scope", "crio-ID", "SLICE:cri-containerd:ID", "ID".
std::string id_in(std::string_view group) {
  if (group.ends_with(".scope")) group.remove_suffix(std::string_view(".scope").size());
  if (group.size() < id_digits) return {};
  const std::string_view id = group.substr(group.size() - id_digits);
  if (!is_id(id)) return {};
  const std::string_view before = group.substr(0, group.size() - id_digits);
  // "libpod-conmon-ID" and "crio-conmon-ID" hold the monitor of a container, which runs outside.
  if (before.ends_with("conmon-")) return {};
  if (!before.empty() && !before.ends_with('-') && !before.ends_with(':')) return {};
  return std::string(id.substr(0, shown_digits));
}

std::string name_in(std::string_view group) {
  constexpr std::array<std::array<std::string_view, 2>, 3> machines{
      {{"machine-", ".scope"}, {"systemd-nspawn@", ".service"}, {"lxc.payload.", ""}}};
  for (const auto& [before, after] : machines)
    if (const auto name = between(group, before, after)) return shown(unescaped(*name));
  return {};
}

}  // namespace

std::string container_of_path(std::string_view path) {
  std::string_view before;
  while (!path.empty()) {
    const auto slash = std::min(path.find('/'), path.size());
    const std::string_view group = path.substr(0, slash);
    path.remove_prefix(std::min(slash + 1, path.size()));
    if (std::string id = id_in(group); !id.empty()) return id;
    if (std::string name = name_in(group); !name.empty()) return name;
    // "/lxc/NAME" and "/lxc.payload/NAME" of older versions.
    if (!group.empty() && (before == "lxc" || before == "lxc.payload")) return shown(group);
    before = group;
  }
  return {};
}

std::string container_of(const ProcessCgroups& groups) {
  std::string name = container_of_path(groups.v2);
  for (auto at = groups.v1.begin(); name.empty() && at != groups.v1.end(); ++at) name = container_of_path(at->second);
  return name;
}

}  // namespace sublet::proc
