// SPDX-License-Identifier: Apache-2.0
#include "cli/placement.h"

#include "base/number.h"
#include "base/text.h"
#include "cli/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace sublet::cli {
namespace {

using nlohmann::json;

constexpr const char* how_to_choose = "name devices by --gpu, or unset CUDA_VISIBLE_DEVICES";
constexpr std::size_t short_uuid = 12;  // "GPU-" and eight digits

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// The entries that CUDA reads: -1 ends the list.
std::vector<std::string_view> entries_of(std::string_view list) {
  std::vector<std::string_view> entries;
  for (std::size_t at = 0; at <= list.size();) {
    const auto comma = std::min(list.find(',', at), list.size());
    const std::string_view entry = trimmed(list.substr(at, comma - at));
    if (entry == "-1") break;
    entries.push_back(entry);
    at = comma + 1;
  }
  return entries;
}

bool is_start_of_uuid(std::string_view entry) { return entry.starts_with("GPU-") || entry.starts_with("MIG-"); }

std::string named(std::string_view visible) { return fmt::format("CUDA_VISIBLE_DEVICES is '{}'", printable(visible)); }

std::string devices_phrase(const json& devices) {
  std::string phrase;
  for (const json& device : devices)
    phrase += fmt::format("{}{} ({})", phrase.empty() ? "" : ", ", device_number(device),
                          text_at(device, "uuid").substr(0, short_uuid));
  return phrase;
}

// The UUIDs that an entry may mean: by index, or by the start of a UUID.
std::vector<std::string> meant_by(std::string_view entry, const json& devices) {
  std::vector<std::string> found;
  const auto index = parse_number<std::int64_t>(entry);
  for (const json& device : devices) {
    const std::string uuid = text_at(device, "uuid");
    const bool by_index = index && device_number(device) == fmt::format("{}", *index);
    if (by_index || uuid == entry) return {uuid};
    if (!index && is_start_of_uuid(entry) && uuid.starts_with(entry)) found.push_back(uuid);
  }
  return found;
}

// Whether the entry can name a device that the daemon has not read yet.
bool may_name(std::string_view entry) { return parse_number<int>(entry) || is_start_of_uuid(entry); }

}  // namespace

std::string device_number(const json& device) {
  if (device.value("slice", json()).is_number())
    return fmt::format("{}:{}", number_at(device, "index").value_or(-1), number_at(device, "slice").value_or(-1));
  return fmt::format("{}", number_at(device, "index").value_or(-1));
}

Result<std::string> devices_of_wish(std::string_view visible, int count, const json& status) {
  const auto entries = entries_of(visible);
  if (entries.empty() || trimmed(visible).empty() || trimmed(visible) == "NoDevFiles")
    return bad_request(named(visible) + ", so that the program may use no device", how_to_choose);
  const json& devices = list_at(status, "devices");
  // The daemon's first reading says which devices these are.
  if (devices.empty() && std::ssize(entries) >= count && std::ranges::all_of(entries, may_name))
    return fmt::format("{}", fmt::join(entries, ","));
  if (devices.empty()) return unavailable(named(visible) + ", and the daemon knows no GPU yet", how_to_choose);
  std::vector<std::string> wanted;
  for (const std::string_view entry : entries) {
    const auto meant = meant_by(entry, devices);
    if (meant.empty())
      return not_found(fmt::format("{}; '{}' names no device", named(visible), printable(entry)),
                       fmt::format("the devices are {}", devices_phrase(devices)));
    if (meant.size() > 1)
      return bad_request(fmt::format("{}; '{}' names {} devices", named(visible), printable(entry), meant.size()),
                         fmt::format("write more of the UUID; the devices are {}", devices_phrase(devices)));
    if (std::ranges::find(wanted, meant.front()) == wanted.end()) wanted.push_back(meant.front());
  }
  if (count > std::ssize(wanted))
    return bad_request(fmt::format("{}, which is fewer than --gpus {}", named(visible), count),
                       "name more devices, or unset CUDA_VISIBLE_DEVICES");
  if (wanted.size() > 1 && wanted.size() == devices.size()) return std::string();
  return fmt::format("{}", fmt::join(wanted, ","));
}

}  // namespace sublet::cli
