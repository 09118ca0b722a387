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

namespace sublet::gpu {
namespace {

constexpr long call_pidfd_open = 434;
constexpr int most_readings = 3;
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
      snapshot.devices.push_back(read_device(index));
      read_facts(snapshot.devices.back());
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
  if (!device.problem.empty()) return device;
  const auto mig = api_->mig_enabled(handle.value);
  device.mig = mig && mig.value;
  if (device.mig) return device;  // its numbers are those of the slices, and only root sees them
  read_numbers(handle.value, device);
  return device;
}

// An error here is no problem of the reading.
void Sampler::read_facts(GpuDevice& device) {
  if (device.uuid.empty()) return;
  const auto handle = api_->device(static_cast<unsigned>(device.index));
  device.facts = handle ? facts_->read(handle.value, device.index, monotonic_ns()) : facts_->last(device.index);
  if (device.lost) device.facts.falls = std::max<std::int64_t>(device.facts.falls.value_or(0), 1);  // events may lack
}

// Reads memory, the list, and memory again, until both memory readings agree and all listed processes exist. Then all
// three were true at the same moment. A device that never settles gets its last reading.
void Sampler::read_numbers(NvmlDevice handle, GpuDevice& device) {
  const auto failed = [&](NvmlCode code, const std::string& error) {
    note(code);
    device.processes.clear();
    device.total = device.driver_reserved = device.used = {};
    device.problem = error;
    device.lost = code == NvmlCode::gpu_is_lost;
  };
  auto memory = api_->memory(handle);
  for (int reading = 0; reading < most_readings; ++reading) {
    if (!memory) return failed(memory.code, memory.error);
    const auto listed = api_->processes(handle);
    if (!listed) return failed(listed.code, listed.error);
    device.processes.clear();
    for (const NvmlProcess& process : listed.value) {
      if (process.pid == 0 || process.pid > INT32_MAX) {
        return failed(NvmlCode::success, fmt::format("the driver lists the impossible pid {}", process.pid));
      }
      device.processes.push_back({.process = {static_cast<std::int32_t>(process.pid), 0},
                                  .used = process.used,
                                  .graphics_only = process.graphics_only});
    }
    const bool all_there = look_up(proc_root_, device.processes);
    const auto after = api_->memory(handle);
    const bool still = after && after.value.used == memory.value.used;
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
  utilisation_->read(handle, device, monotonic_ns());
}

}  // namespace sublet::gpu
