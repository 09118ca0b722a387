// SPDX-License-Identifier: Apache-2.0
// The text forms of specifications, sizes, settings and faults: which cards to simulate, and what operations cost.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "figures.h"

namespace simgpu {

// The settings that can change while programs run (`simgpu-ctl set KEY VALUE`). A value is one unsigned number.
enum class Setting : unsigned {
  driver_version,        // in the form of cuDriverGetVersion: 13000 is 13.0
  context_bytes,         // VRAM that a context takes
  link_bandwidth,        // bytes/s in each direction between host and card, for all processes together; 0: unlimited
  copy_engines,          // 2: both directions at once; 1: they share link_bandwidth
  memory_bandwidth,      // bytes/s of copies inside a card; 0: unlimited
  pin_bandwidth,         // bytes/s at which host memory of small pages is pinned; 0: at once
  pin_huge_bandwidth,    // the same for memory in huge pages
  call_ns,               // cost of every driver call
  handle_ns,             // cost of making or mapping one physical allocation
  context_us,            // cost of making a context
  kernel_ns,             // run time of a kernel that the simulation does not know
  timeslice_us,          // time for which one process computes before another may
  checkpoint_us,         // the part of a checkpoint's time that does not depend on its size
  checkpoint_bandwidth,  // bytes/s at which a checkpoint moves device memory to the host; 0: unlimited
  restore_us,            // the same two of a restore
  restore_bandwidth,
  compute_capability,  // 90 is 9.0
  multiprocessors,
  count_,
};

// A setting with its line of the help text; keys are the names that `set` takes.
struct SettingInfo {
  Setting setting;
  std::string_view key, help;
  std::uint64_t initial;
};
const std::vector<SettingInfo>& settings();
std::optional<Setting> setting_from_key(std::string_view key);

enum class FaultKind : unsigned {
  alloc_fail,
  create_fail,
  map_fail,
  register_fail,
  copy_fail,
  sync_hang,
  launch_hang,
  device_lost,
  ecc,
  nvml_error,
  nvml_hang,
  nvml_empty,
  nvml_missing_pid,
  nvml_late,
  nvml_wrong_namespace,
  nvml_no_utilization,
  checkpoint_hang,
  checkpoint_fail,
  lock_hang,
  unlock_hang,
  state_hang,
  restore_fail,
  restore_hang,
  restore_refused,
  bandwidth,
  count_,
};

struct FaultInfo {
  FaultKind kind;
  std::string_view name, help;
};
const std::vector<FaultInfo>& faults();
std::optional<FaultKind> fault_from_name(std::string_view name);

// The size of a MIG slice: "1g.10gb" has one of seven compute parts and 10 GiB.
struct Profile {
  unsigned parts = 0;
  std::uint64_t bytes = 0;
  bool operator==(const Profile&) const = default;
};

// The ways in which cards are linked. Cards with the same number of a way are linked by it.
enum class LinkWay : unsigned { nvlink, pcie_switch, numa, count_ };
inline constexpr std::array<std::string_view, 3> link_keys{"nvlink", "switch", "numa"};  // by LinkWay

struct DeviceSpec {
  std::uint64_t total = 0;    // bytes
  std::uint64_t reserve = 0;  // bytes; 0: the default for this size
  std::string name;           // empty: "Simulated GPU 24GiB"
  bool unified = false;       // its memory is the machine's
  bool mig = false;           // in MIG mode, perhaps without slices
  std::vector<Profile> slices{};
  std::vector<std::pair<Figure, std::uint64_t>> figures;
  std::array<std::uint64_t, link_keys.size()> linked{};  // by LinkWay: 1 + number of the group; 0: none
};

struct Spec {
  std::vector<DeviceSpec> devices;
  std::vector<std::pair<Setting, std::uint64_t>> settings;
};

// Parses a specification: COUNTxSIZE[,NAME][,KEY=VALUE...], several joined by '+', such as "2x24GiB" or
// "1x4GiB,Simulated Small,reserve=0". KEY is a setting, a figure of these cards (figures.h), `reserve` or `mig`. A name
// without the word "simulated" gets "Simulated " put before it. "unified" makes a card with unified memory.
// "nvlink=0", "switch=0" and "numa=0" link all cards with the same number.
// "mig=1g.10gb*4+3g.40gb" makes a card in MIG mode with these slices, "mig=" one without.
std::optional<Spec> parse_spec(std::string_view text, std::string* error);

// Parses a profile such as "1g.10gb".
std::optional<Profile> parse_profile(std::string_view text);
std::string format_profile(const Profile& profile);

// Parses a byte count: "24GiB", "512MiB", "4096", "1.5GiB", "25GB".
std::optional<std::uint64_t> parse_bytes(std::string_view text);
std::string format_bytes(std::uint64_t bytes);

// Parses a setting's value: a number, or a size where the setting counts bytes.
std::optional<std::uint64_t> parse_setting(Setting setting, std::string_view text);

}  // namespace simgpu
