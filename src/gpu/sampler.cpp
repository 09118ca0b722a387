// SPDX-License-Identifier: Apache-2.0
#include "gpu/sampler.h"

#include "base/clock.h"
#include "base/fd.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/syscall.h>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>

namespace sublet::gpu {
namespace {

constexpr long call_pidfd_open = 434;
constexpr int most_readings = 3;
constexpr std::int64_t most_kib = std::int64_t{1} << 40;  // of a machine; more is an error
// A start of NVML may wake devices up, which takes seconds. If it is not certain to help, it is not repeated earlier
// than this.
constexpr std::int64_t restart_pause_ns = 30'000'000'000;

// PF_KTHREAD in field 9 of /proc/PID/stat. The low pids of a container are kernel threads outside of it.
constexpr std::uint64_t flag_kernel_thread = 0x00200000;

struct Seen {
  bool there = false;
  bool kernel_thread = false;
  std::uint64_t start_ticks = 0;  // since boot
};

Seen see_process(const std::string& proc_root, std::int32_t pid) {
  const Fd file(::open(fmt::format("{}/{}/stat", proc_root, pid).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return {};
  char buffer[1024];
  const ssize_t got = ::read(file.get(), buffer, sizeof buffer);
  if (got <= 0) return {};
  std::string_view text(buffer, static_cast<std::size_t>(got));
  const auto name_end = text.rfind(')');  // the name may contain any character
  if (name_end == std::string_view::npos) return {};
  text.remove_prefix(name_end + 1);
  std::uint64_t flags = 0;
  std::uint64_t ticks = 0;
  for (int field = 3; field <= 22; ++field) {
    const auto space = text.find(' ');
    if (space == std::string_view::npos) return {};
    text.remove_prefix(space + 1);
    if (field != 9 && field != 22) continue;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), field == 9 ? flags : ticks);
    if (parsed.ec != std::errc{}) return {};
  }
  return {true, (flags & flag_kernel_thread) != 0, ticks};
}

bool exists(std::int32_t pid) {
  const Fd fd(static_cast<int>(::syscall(call_pidfd_open, pid, 0)));
  return static_cast<bool>(fd);
}

// Fills in the processes' data. False: some processes are missing, perhaps because they have just ended. Kernel threads
// use no GPU, so a pid of a kernel thread counts as missing.
bool look_up(const std::string& proc_root, std::vector<GpuProcess>& processes) {
  bool all_there = true;
  for (GpuProcess& process : processes) {
    const Seen seen = see_process(proc_root, process.process.pid);
    process.process.start_ticks = seen.kernel_thread ? 0 : seen.start_ticks;
    process.hidden = !seen.there && exists(process.process.pid);
    if ((!seen.there && !process.hidden) || seen.kernel_thread) all_there = false;
  }
  return all_there;
}

// The memory of the machine, as the kernel tells it.
Answer<MachineMemory> machine_memory(const std::string& proc_root) {
  std::ifstream file(proc_root + "/meminfo");
  std::optional<std::int64_t> total, available;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    std::int64_t kib = -1;
    if (!(words >> key >> kib) || kib < 0 || kib > most_kib) continue;
    if (key == "MemTotal:") total = kib;
    if (key == "MemAvailable:") available = kib;
  }
  if (!total || !available || *total == 0)
    return {NvmlCode::unknown, fmt::format("{}/meminfo does not tell MemTotal and MemAvailable", proc_root), {}};
  return {NvmlCode::success, {}, {*total * KiB, std::min(*available, *total) * KiB}};
}

bool plain_uuid(const std::string& uuid) {
  return !uuid.empty() && uuid.size() <= 80 &&
         std::all_of(uuid.begin(), uuid.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c == '-'; });
}

}  // namespace

Sampler::Sampler(std::string nvml_path, std::string proc_root)
    : nvml_path_(std::move(nvml_path)), proc_root_(std::move(proc_root)) {}

Sampler::~Sampler() { stop(); }

void Sampler::stop() {
  utilisation_.reset();
  facts_.reset();
  if (api_) api_->shutdown();
  api_.reset();  // also closes the file: after an upgrade of the driver the old library no longer fits
  known_.clear();
  links_.clear();
  driver_version_.clear();
  restart_ = Restart::no;
}

bool Sampler::start(GpuSnapshot& snapshot) {
  if (api_) return true;
  auto api = NvmlApi::load(nvml_path_);
  if (!api) {
    snapshot.problem = api.error().detail;
    return false;
  }
  const auto ready = api->init();
  if (!ready) {
    snapshot.library = api->path();
    snapshot.problem = ready.error;
    return false;
  }
  started_ns_ = monotonic_ns();
  api_ = std::move(*api);
  utilisation_.emplace(*api_);
  facts_.emplace(*api_);
  driver_version_ = api_->driver_version().value;
  return true;
}

// Remembers which restart an error needs at the next snapshot.
void Sampler::note(NvmlCode code) {
  switch (code) {
    case NvmlCode::uninitialized:
    case NvmlCode::driver_not_loaded:
    case NvmlCode::library_mismatch: restart_ = Restart::at_once; break;
    case NvmlCode::gpu_is_lost:
    case NvmlCode::reset_required:
    case NvmlCode::unknown: restart_ = std::max(restart_, Restart::later); break;
    default: break;
  }
}

GpuSnapshot Sampler::take() {
  GpuSnapshot snapshot;
  snapshot.began_ns = monotonic_ns();
  // At most two tries: if another user of the library has shut NVML down, a fresh start answers at once.
  for (int attempt = 0; attempt < 2; ++attempt) {
    const bool due = restart_ == Restart::later && monotonic_ns() - started_ns_ >= restart_pause_ns;
    if (restart_ == Restart::at_once || due) stop();
    snapshot.problem.clear();
    snapshot.devices.clear();
    if (!start(snapshot)) break;
    snapshot.library = api_->path();
    snapshot.driver_version = driver_version_;
    read_all(snapshot);
    if (restart_ != Restart::at_once) break;
  }
  snapshot.ended_ns = monotonic_ns();
  return snapshot;
}

void Sampler::read_all(GpuSnapshot& snapshot) {
  const auto count = api_->device_count();
  if (!count) {
    note(count.code);
    snapshot.problem = count.error;
  } else if (count.value > max_devices) {
    snapshot.problem = fmt::format("the driver reports {} devices, more than {}", count.value, max_devices);
  } else {
    for (unsigned index = 0; index < count.value; ++index) {
      GpuDevice device = read_device(index);
      read_facts(device);
      std::vector<GpuDevice> slices = device.mig ? read_slices(device) : std::vector<GpuDevice>();
      for (GpuDevice& slice : slices) {
        slice.facts = device.facts;   // those of the card
        slice.facts.nvlinks.reset();  // no program of a slice reaches another card
      }
      snapshot.devices.push_back(std::move(device));
      std::ranges::move(slices, std::back_inserter(snapshot.devices));
    }
    add_links(snapshot);
    if (snapshot.devices.size() > max_devices) {
      snapshot.problem = fmt::format("the driver reports more than {} devices and slices", max_devices);
      snapshot.devices.clear();
    }
  }
}

GpuDevice Sampler::read_device(unsigned index) {
  GpuDevice device;
  device.index = static_cast<int>(index);
  const auto handle = api_->device(index);
  if (handle && !known_.contains(index)) {
    const auto identity = api_->identity(handle.value);
    if (identity && plain_uuid(identity.value.uuid)) known_[index] = identity.value;
    else if (identity)
      device.problem = fmt::format("the driver names it '{}', which is not a UUID", identity.value.uuid);
    else device.problem = identity.error;
    device.lost = identity.code == NvmlCode::gpu_is_lost;
    note(identity.code);
  }
  if (const auto known = known_.find(index); known != known_.end()) {
    device.uuid = known->second.uuid;
    device.name = known->second.name;
    device.pci_bus_id = known->second.pci_bus_id;
    device.link_per_second = known->second.link_per_second;
    device.simulated = says_simulated(device.name);
  }
  if (!handle) {
    note(handle.code);
    device.problem = handle.error;
    device.lost = handle.code == NvmlCode::gpu_is_lost;
  }
  if (device.problem.empty()) read_mode(handle.value, device);
  // While a card cannot be read, its slices are not known to be gone.
  if (!device.problem.empty()) device.mig = slices_.contains(device.uuid);
  if (device.problem.empty() && !device.mig) read_numbers(handle.value, std::nullopt, device);
  return device;
}

// Links are read once, and again when a card is there that was not.
void Sampler::add_links(GpuSnapshot& snapshot) {
  std::vector<NvmlDevice> handles;
  std::vector<const GpuDevice*> cards;
  bool is_new = false;
  for (const GpuDevice& device : snapshot.devices) {
    if (device.slice >= 0 || device.uuid.empty()) continue;
    const auto handle = api_->device(static_cast<unsigned>(device.index));
    if (!handle) continue;
    handles.push_back(handle.value);
    cards.push_back(&device);
    is_new |= !links_.contains(device.uuid);
  }
  if (is_new) {
    const std::vector<Links> links = read_links(*api_, handles);
    for (std::size_t i = 0; i < cards.size(); ++i) {
      Links& its = links_[cards[i]->uuid] = links[i];
      for (int& group : its.group)
        if (group >= 0) group = cards[static_cast<std::size_t>(group)]->index;
    }
  }
  for (GpuDevice& device : snapshot.devices)
    if (const auto links = links_.find(device.uuid); links != links_.end()) device.links = links->second;
}

// An error here is no problem of the reading.
void Sampler::read_facts(GpuDevice& device) {
  if (device.uuid.empty()) return;
  const auto handle = api_->device(static_cast<unsigned>(device.index));
  device.facts = handle ? facts_->read(handle.value, device.index, monotonic_ns()) : facts_->last(device.index);
  if (device.lost) device.facts.falls = std::max<std::int64_t>(device.facts.falls.value_or(0), 1);  // events may lack
}

// Reads the mode of a card, and which slices it has. A card in MIG mode has no numbers of its own.
void Sampler::read_mode(NvmlDevice handle, GpuDevice& device) {
  const auto failed = [&](NvmlCode code, const std::string& error) {
    note(code);
    device.problem = error;
    device.lost = code == NvmlCode::gpu_is_lost;
  };
  const auto mig = api_->mig_enabled(handle);
  // A card that has slices does not lose the mode by an answer that it has no such mode.
  if (mig.code == NvmlCode::not_supported && !slices_.contains(device.uuid)) return;
  if (!mig) return failed(mig.code, mig.error);
  device.mig = mig.value;
  if (!device.mig) {
    slices_.erase(device.uuid);
    return;
  }
  const auto listed = api_->slices(handle);
  if (!listed) return failed(listed.code, listed.error);
  std::vector<GpuDevice> slices;
  // The first slice of a GPU instance stands for the memory of all. One that was a device before is not gone by a wrong
  // answer about its instance.
  const std::vector<GpuDevice> before = slices_[device.uuid];
  std::set<unsigned> instances;
  for (const NvmlSlice& slice : listed.value) {
    GpuDevice its = read_slice(slice, device);
    if (slice.gpu_instance && !instances.insert(*slice.gpu_instance).second) {
      if (std::ranges::find(before, its.uuid, &GpuDevice::uuid) == before.end()) continue;
      if (its.problem.empty()) its.problem = "its memory is also that of another slice";
    }
    slices.push_back(std::move(its));
  }
  slices_[device.uuid] = std::move(slices);
}

// The slices of a card in MIG mode. Those of a card that cannot be read have its problem.
std::vector<GpuDevice> Sampler::read_slices(const GpuDevice& card) {
  std::vector<GpuDevice> slices = slices_[card.uuid];
  for (GpuDevice& slice : slices) {
    if (card.problem.empty()) continue;
    slice.processes.clear();
    slice.total = slice.driver_reserved = slice.used = {};
    slice.problem = card.problem;
    slice.lost = card.lost;
  }
  return slices;
}

GpuDevice Sampler::read_slice(const NvmlSlice& slice, const GpuDevice& card) {
  GpuDevice device;
  device.index = card.index;
  device.parent = card.uuid;
  device.slice = static_cast<int>(slice.index);
  device.pci_bus_id = card.pci_bus_id;
  device.link_per_second = card.link_per_second;
  // The place of a slice may have another one by now, so its name is asked for each time.
  const auto identity = api_->identity(slice.device);
  if (!identity) {
    note(identity.code);
    device.problem = identity.error;
    device.lost = identity.code == NvmlCode::gpu_is_lost;
    return device;
  }
  if (!plain_uuid(identity.value.uuid) || !identity.value.uuid.starts_with("MIG-")) {
    device.problem = fmt::format("the driver names a slice '{}', which is not a UUID", identity.value.uuid);
    return device;
  }
  device.uuid = identity.value.uuid;
  device.name = identity.value.name;
  device.simulated = says_simulated(device.name);
  read_numbers(slice.device, slice.gpu_instance, device);
  return device;
}

// A device that never told any memory, and has no window to it, has none of its own: its programs use the memory of the
// machine.
Answer<NvmlMemory> Sampler::memory_of(NvmlDevice handle, GpuDevice& device) {
  auto told = api_->memory(handle);
  const bool none = told.code == NvmlCode::not_supported || (told && told.value.total == Bytes{});
  if (told && !none) has_memory_.insert(device.uuid);
  const bool known = device.slice >= 0 || has_memory_.contains(device.uuid) || (none && api_->has_window(handle));
  if (!none || known) return told;
  const auto machine = device.simulated ? api_->simulated_machine(handle) : machine_memory(proc_root_);
  if (!machine)
    return {machine.code, fmt::format("{}{}{}", told.error, told.error.empty() ? "" : "; ", machine.error), {}};
  device.unified = true;
  const Bytes used = std::max(machine.value.total - machine.value.available, Bytes{});
  return {NvmlCode::success, {}, {machine.value.total, {}, used, true}};
}

// Reads memory, the list, and memory again, until both memory readings agree and all listed processes exist. Then all
// three were true at the same moment. A device that never settles gets its last reading.
void Sampler::read_numbers(NvmlDevice handle, std::optional<unsigned> gpu_instance, GpuDevice& device) {
  const auto failed = [&](NvmlCode code, const std::string& error) {
    note(code);
    device.processes.clear();
    device.total = device.driver_reserved = device.used = {};
    device.problem = error;
    device.lost = code == NvmlCode::gpu_is_lost;
  };
  auto memory = memory_of(handle, device);
  for (int reading = 0; reading < most_readings; ++reading) {
    if (!memory) return failed(memory.code, memory.error);
    auto listed = api_->processes(handle);
    // The driver of such a device may have no list: its memory is that of the machine, and is known without one.
    if (device.unified && listed.code == NvmlCode::not_supported) listed = {NvmlCode::success, {}, {}};
    if (!listed) return failed(listed.code, listed.error);
    device.processes.clear();
    for (const NvmlProcess& process : listed.value) {
      // Some drivers list all processes of the card for each of its slices.
      if (gpu_instance && process.gpu_instance && process.gpu_instance != gpu_instance) continue;
      if (process.pid == 0 || process.pid > INT32_MAX) {
        return failed(NvmlCode::success, fmt::format("the driver lists the impossible pid {}", process.pid));
      }
      device.processes.push_back({.process = {static_cast<std::int32_t>(process.pid), 0},
                                  .used = process.used,
                                  .graphics_only = process.graphics_only});
    }
    const bool all_there = look_up(proc_root_, device.processes);
    const auto after = memory_of(handle, device);
    // The memory of a machine changes all the time.
    const bool still = after && (device.unified || after.value.used == memory.value.used);
    memory = after;
    if (all_there && still) break;
  }
  if (!memory) return failed(memory.code, memory.error);
  if (device.processes.size() > max_processes) {
    return failed(NvmlCode::success,
                  fmt::format("the driver lists {} processes, more than {}", device.processes.size(), max_processes));
  }
  device.total = memory.value.total;
  device.driver_reserved = memory.value.reserved;
  device.used = memory.value.used;
  // The driver does not tell the utilisation of slices.
  if (device.slice < 0) utilisation_->read(handle, device, monotonic_ns());
}

}  // namespace sublet::gpu
