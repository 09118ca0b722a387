// SPDX-License-Identifier: Apache-2.0
#include "spec.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "layout.h"

namespace simgpu {
namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;
constexpr std::uint64_t automatic = ~std::uint64_t{0};

bool fail(std::string* error, std::string text) {
  if (error) *error = std::move(text);
  return false;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const auto at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

// A measured card keeps about 614 MiB to itself. Small simulated cards keep a share, so that some memory is left.
std::uint64_t default_reserve(std::uint64_t total) { return std::min(614 * mib, total / 40 / (2 * mib) * (2 * mib)); }

bool says_simulated(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  return lower.find("simulated") != std::string::npos;
}

bool parse_slices(std::string_view list, DeviceSpec& device, std::string* error) {
  device.mig = true;
  if (list.empty()) return true;
  for (std::string_view part : split(list, '+')) {
    unsigned count = 1;
    if (const auto star = part.find('*'); star != std::string_view::npos) {
      const auto number = part.substr(star + 1);
      const auto read = std::from_chars(number.data(), number.data() + number.size(), count);
      if (read.ec != std::errc{} || read.ptr != number.data() + number.size() || count == 0 || count > max_slices)
        return fail(error, "not a number of slices: " + std::string(part));
      part = part.substr(0, star);
    }
    const auto profile = parse_profile(part);
    if (!profile) return fail(error, "expected a profile such as 1g.10gb: " + std::string(part));
    device.slices.insert(device.slices.end(), count, *profile);
  }
  return true;
}

// Joins the parts of a list of profiles that the sign between kinds of cards has divided.
std::vector<std::string> groups_of(std::string_view text) {
  std::vector<std::string> groups;
  for (const std::string_view part : split(text, '+')) {
    const auto end = part.find_first_not_of("0123456789");
    const bool goes_on = !groups.empty() && end != 0 && end != std::string_view::npos && part.substr(end, 2) == "g.";
    if (goes_on) groups.back() += '+' + std::string(part);
    else groups.emplace_back(part);
  }
  return groups;
}

bool parse_option(std::string_view option, DeviceSpec& device, Spec& spec, std::string* error) {
  const auto equals = option.find('=');
  if (equals == std::string_view::npos) {
    if (option.empty()) return fail(error, "empty name");
    if (option == "unified") return device.unified = true;
    device.name = says_simulated(option) ? std::string(option) : "Simulated " + std::string(option);
    if (device.name.size() >= sizeof(layout::DeviceRecord::name)) return fail(error, "name too long: " + device.name);
    return true;
  }
  const auto key = option.substr(0, equals), value = option.substr(equals + 1);
  if (key == "reserve") {
    const auto bytes = parse_bytes(value);
    if (!bytes) return fail(error, "not a size: " + std::string(value));
    device.reserve = *bytes;
    return true;
  }
  if (key == "mig") return parse_slices(value, device, error);
  if (const auto* link = std::ranges::find(link_keys, key); link != link_keys.end()) {
    unsigned number = 0;
    const auto read = std::from_chars(value.data(), value.data() + value.size(), number);
    if (value.empty() || read.ec != std::errc{} || read.ptr != value.data() + value.size() || number >= max_devices)
      return fail(error, "not a number of a group, 0 to 15: " + std::string(option));
    device.linked[static_cast<std::size_t>(link - link_keys.begin())] = number + 1;
    return true;
  }
  if (const auto figure = figure_from_key(key)) {
    const auto number = parse_figure(*figure, value);
    if (!number) return fail(error, "not a value for " + std::string(key) + ": " + std::string(value));
    device.figures.emplace_back(*figure, *number);
    return true;
  }
  const auto setting = setting_from_key(key);
  if (!setting) return fail(error, "unknown key: " + std::string(key));
  const auto number = parse_setting(*setting, value);
  if (!number) return fail(error, "not a value for " + std::string(key) + ": " + std::string(value));
  spec.settings.emplace_back(*setting, *number);
  return true;
}

bool parse_group(std::string_view group, Spec& spec, std::string* error) {
  const auto parts = split(group, ',');
  const auto x = parts[0].find('x');
  unsigned count = 0;
  const auto head = parts[0].substr(0, x);
  const auto read = std::from_chars(head.data(), head.data() + head.size(), count);
  if (x == std::string_view::npos || read.ec != std::errc{} || read.ptr != head.data() + head.size() || count == 0)
    return fail(error, "expected COUNTxSIZE, such as 2x24GiB: " + std::string(parts[0]));
  const auto bytes = parse_bytes(parts[0].substr(x + 1));
  if (!bytes) return fail(error, "not a size: " + std::string(parts[0].substr(x + 1)));
  // Accounts count pages in 32 bits, and a card must not be smaller than its own granularity.
  if (*bytes < 64 * mib || *bytes >= (std::uint64_t{1} << 43))
    return fail(error, "a simulated card has 64 MiB to 8 TiB: " + std::string(parts[0]));
  DeviceSpec device;
  device.total = *bytes / (2 * mib) * (2 * mib);
  device.reserve = automatic;
  device.name = "Simulated GPU " + format_bytes(device.total);
  for (std::size_t i = 1; i < parts.size(); ++i)
    if (!parse_option(parts[i], device, spec, error)) return false;
  if (device.reserve == automatic) device.reserve = default_reserve(device.total);
  if (device.reserve >= device.total) return fail(error, "the reserve leaves nothing of the card");
  std::uint64_t sliced = 0;
  unsigned compute = 0;
  for (const Profile& profile : device.slices) sliced += profile.bytes, compute += profile.parts;
  if (sliced > device.total || compute > all_parts) return fail(error, "the slices are more than the card has");
  if (device.unified && device.mig) return fail(error, "a card with unified memory has no MIG mode");
  spec.devices.insert(spec.devices.end(), count, device);
  return true;
}

bool counts_bytes(Setting setting) {
  switch (setting) {
    case Setting::context_bytes:
    case Setting::link_bandwidth:
    case Setting::memory_bandwidth:
    case Setting::checkpoint_bandwidth:
    case Setting::restore_bandwidth:
    case Setting::pin_bandwidth:
    case Setting::pin_huge_bandwidth: return true;
    default: return false;
  }
}

}  // namespace

const std::vector<SettingInfo>& settings() {
  static const auto* all = new std::vector<SettingInfo>{
      {Setting::driver_version, "driver_version", "as cuDriverGetVersion says it; 13000 is 13.0", 13000},
      {Setting::context_bytes, "context_bytes", "VRAM that a context takes; default 512 MiB, less on small cards",
       automatic},
      {Setting::link_bandwidth, "link_bandwidth",
       "bytes/s in each direction between host and card, shared by all processes; 0 is unlimited", 25'000'000'000},
      {Setting::copy_engines, "copy_engines", "2: both directions at once; 1: they share link_bandwidth", 2},
      {Setting::memory_bandwidth, "memory_bandwidth", "bytes/s of copies inside a card; 0 is unlimited", 0},
      {Setting::pin_bandwidth, "pin_bandwidth", "bytes/s at which small pages are pinned; 0 is at once", 0},
      {Setting::pin_huge_bandwidth, "pin_huge_bandwidth", "bytes/s at which huge pages are pinned; 0 is at once", 0},
      {Setting::call_ns, "call_ns", "cost of every driver call", 0},
      {Setting::handle_ns, "handle_ns", "cost of making or mapping one physical allocation", 0},
      {Setting::context_us, "context_us", "cost of making a context", 0},
      {Setting::kernel_ns, "kernel_ns", "run time of a kernel that the simulation does not know", 10'000},
      {Setting::timeslice_us, "timeslice_us", "how long one process computes before another's turn", 2000},
      {Setting::checkpoint_us, "checkpoint_us", "what a driver checkpoint costs beside copying", 800'000},
      {Setting::checkpoint_bandwidth, "checkpoint_bandwidth",
       "bytes/s at which a driver checkpoint copies to the host; 0 is unlimited", 2'000'000'000},
      {Setting::restore_us, "restore_us", "what a driver restore costs beside copying", 400'000},
      {Setting::restore_bandwidth, "restore_bandwidth", "bytes/s at which a driver restore copies back; 0 is unlimited",
       5'500'000'000},
      {Setting::compute_capability, "compute_capability", "90 is 9.0", 90},
      {Setting::multiprocessors, "multiprocessors", "what the attribute says", 132},
  };
  return *all;
}

std::optional<Setting> setting_from_key(std::string_view key) {
  for (const auto& info : settings())
    if (info.key == key) return info.setting;
  return std::nullopt;
}

const std::vector<FaultInfo>& faults() {
  using K = FaultKind;
  static const auto* all = new std::vector<FaultInfo>{
      {K::alloc_fail, "alloc-fail", "memory allocation says out of memory"},
      {K::create_fail, "create-fail", "cuMemCreate says out of memory"},
      {K::map_fail, "map-fail", "cuMemMap says out of memory"},
      {K::register_fail, "register-fail", "pinning host memory says out of memory"},
      {K::copy_fail, "copy-fail", "a copy ends the context with CUDA_ERROR_UNKNOWN"},
      {K::sync_hang, "sync-hang", "a synchronising call does not return"},
      {K::launch_hang, "launch-hang", "a launched kernel does not end"},
      {K::device_lost, "device-lost", "the card has fallen off the bus"},
      {K::ecc, "ecc", "a launch or copy meets an uncorrectable memory error"},
      {K::nvml_error, "nvml-error", "NVML queries fail"},
      {K::nvml_hang, "nvml-hang", "NVML queries do not return"},
      {K::nvml_empty, "nvml-empty", "NVML's process list is empty"},
      {K::nvml_missing_pid, "nvml-missing-pid", "NVML's process list lacks one process"},
      {K::nvml_late, "nvml-late", "NVML answers with old figures"},
      {K::nvml_wrong_namespace, "nvml-wrong-namespace", "NVML's pids are of another namespace"},
      {K::nvml_no_utilization, "nvml-no-utilization", "NVML does not support utilisation on the card"},
      {K::checkpoint_hang, "checkpoint-hang", "a driver checkpoint does not return"},
      {K::checkpoint_fail, "checkpoint-fail", "a driver checkpoint fails"},
      {K::lock_hang, "lock-hang", "a driver lock does not return"},
      {K::unlock_hang, "unlock-hang", "a driver unlock does not return"},
      {K::state_hang, "state-hang", "asking for the driver's state does not return"},
      {K::restore_fail, "restore-fail", "a driver restore fails"},
      {K::restore_hang, "restore-hang", "a driver restore does not return"},
      {K::restore_refused, "restore-refused", "a driver restore is refused as of a traced process"},
      {K::bandwidth, "bandwidth", "the link between host and card is slow: argument bytes/s"},
  };
  return *all;
}

std::optional<FaultKind> fault_from_name(std::string_view name) {
  for (const auto& info : faults())
    if (info.name == name) return info.kind;
  return std::nullopt;
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  static constexpr std::pair<std::string_view, double> units[] = {{"KiB", 1024.0},
                                                                  {"MiB", 1048576.0},
                                                                  {"GiB", 1073741824.0},
                                                                  {"TiB", 1099511627776.0},
                                                                  {"kB", 1e3},
                                                                  {"KB", 1e3},
                                                                  {"MB", 1e6},
                                                                  {"GB", 1e9},
                                                                  {"TB", 1e12},
                                                                  {"K", 1024.0},
                                                                  {"M", 1048576.0},
                                                                  {"G", 1073741824.0},
                                                                  {"T", 1099511627776.0},
                                                                  {"B", 1.0}};
  if (text.ends_with("/s")) text.remove_suffix(2);
  double factor = 1;
  for (const auto& [suffix, value] : units)
    if (text.ends_with(suffix)) {
      text.remove_suffix(suffix.size());
      factor = value;
      break;
    }
  double number = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (text.empty() || read.ec != std::errc{} || read.ptr != text.data() + text.size()) return std::nullopt;
  if (!(number >= 0) || number * factor >= 1.8e19) return std::nullopt;
  // Whole numbers without a unit stay exact beyond the 53 bits of a double.
  if (factor == 1) {
    std::uint64_t whole = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), whole).ptr == text.data() + text.size()) return whole;
  }
  return static_cast<std::uint64_t>(std::llround(number * factor));
}

std::string format_bytes(std::uint64_t bytes) {
  static constexpr std::string_view names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  unsigned unit = 0;
  while (unit < 4 && bytes >= 1024 && bytes % 1024 == 0) bytes /= 1024, ++unit;
  return std::to_string(bytes) + std::string(names[unit]);
}

std::optional<Profile> parse_profile(std::string_view text) {
  Profile profile;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), profile.parts);
  const std::string_view rest = text.substr(static_cast<std::size_t>(read.ptr - text.data()));
  unsigned gib = 0;
  if (read.ec != std::errc{} || !rest.starts_with("g.") || !rest.ends_with("gb") || rest.size() < 5)
    return std::nullopt;
  const std::string_view number = rest.substr(2, rest.size() - 4);
  const auto size = std::from_chars(number.data(), number.data() + number.size(), gib);
  if (size.ec != std::errc{} || size.ptr != number.data() + number.size() || gib == 0 || gib > 8192)
    return std::nullopt;
  if (profile.parts == 0 || profile.parts > all_parts) return std::nullopt;
  profile.bytes = std::uint64_t{gib} << 30;
  return profile;
}

std::string format_profile(const Profile& profile) {
  return std::to_string(profile.parts) + "g." + std::to_string(profile.bytes >> 30) + "gb";
}

std::optional<std::uint64_t> parse_setting(Setting setting, std::string_view text) {
  const auto value = parse_bytes(text);
  if (!value) return std::nullopt;
  const bool digits = std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
  if (!counts_bytes(setting) && !digits) return std::nullopt;
  switch (setting) {
    case Setting::driver_version:
      if (*value < 11000 || *value >= 14000) return std::nullopt;
      break;
    case Setting::copy_engines:
      if (*value != 1 && *value != 2) return std::nullopt;
      break;
    case Setting::timeslice_us:
    case Setting::multiprocessors:
      if (*value == 0) return std::nullopt;
      break;
    default: break;
  }
  return value;
}

std::optional<Spec> parse_spec(std::string_view text, std::string* error) {
  Spec spec;
  for (const std::string& group : groups_of(text))
    if (!parse_group(group, spec, error)) return std::nullopt;
  std::size_t slices = 0;
  for (const DeviceSpec& device : spec.devices) slices += device.slices.size();
  if (slices > max_slices) {
    fail(error, "at most " + std::to_string(max_slices) + " slices");
    return std::nullopt;
  }
  if (spec.devices.size() > max_devices) {
    fail(error, "at most " + std::to_string(max_devices) + " cards");
    return std::nullopt;
  }
  return spec;
}

}  // namespace simgpu
