// SPDX-License-Identifier: Apache-2.0
#include "library.h"

#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <thread>

namespace simgpu::nvml {
namespace {

// No card has this number: a fault on one card does not concern a query about none.
constexpr int no_card = static_cast<int>(max_places);

void hang(Table& table, const Fault& fault, int device) {
  using namespace std::chrono;
  const auto start = steady_clock::now();
  while (table.still_set(FaultKind::nvml_hang, device) &&
         (fault.duration_ns == 0 || steady_clock::now() - start < nanoseconds(fault.duration_ns)))
    std::this_thread::sleep_for(milliseconds(5));
}

std::uint64_t nanoseconds_since(std::uint64_t start_ticks) {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const auto boot_ns = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
  const std::uint64_t start_ns = start_ticks * (1'000'000'000 / static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK)));
  return boot_ns > start_ns ? boot_ns - start_ns : 1;
}

}  // namespace

// Never destroyed: a client may call from a destructor that runs at exit.
Library& Library::instance() {
  static auto* library = new Library;
  return *library;
}

Return Library::init() {
  const std::lock_guard lock(mutex_);
  if (references_ == 0) {
    std::string error;
    std::shared_ptr<Table> table = Table::open_from_environment(&error);
    if (!table) return driver_not_loaded;
    if (const Return refused = enter(*table, "nvmlInit", -1); refused != success) return refused;
    table_ = std::move(table);
  }
  ++references_;
  return success;
}

Return Library::shutdown() {
  const std::lock_guard lock(mutex_);
  if (references_ == 0) return uninitialized;
  if (--references_ == 0) {
    table_.reset();
    last_.clear();
    process_busy_.clear();
    link_.clear();
  }
  return success;
}

std::shared_ptr<Table> Library::table() {
  const std::lock_guard lock(mutex_);
  return table_;
}

int Library::index_of(Handle handle, const Table& table) const {
  const auto* place = static_cast<const Place*>(handle);
  const std::less<> before;
  if (place == nullptr || before(place, places_) || !before(place, places_ + max_places)) return -1;
  const auto index = static_cast<unsigned>(place - places_);
  return index < table.device_count() || table.parent_of(index) ? static_cast<int>(index) : -1;
}

Snapshot Library::snapshot(Table& table, unsigned device) {
  const bool late = table.meet(FaultKind::nvml_late, static_cast<int>(device)).has_value();
  if (late) {
    const std::lock_guard lock(mutex_);
    if (const auto last = last_.find(device); last != last_.end()) return last->second;
  }
  Snapshot now;
  for (auto& process : table.processes()) {
    const auto& held = process.device[device];
    // A checkpointed process is not listed on the card: no process explains the bytes that it keeps.
    if (process.state != ControlState::checkpointed && (held.bytes != 0 || held.contexts != 0))
      now.processes.push_back(process);
  }
  now.use = table.use(device);
  const std::lock_guard lock(mutex_);
  return last_.insert_or_assign(device, std::move(now)).first->second;
}

std::uint64_t Library::rate_since(Seen& seen, std::uint64_t count, std::uint64_t first_rate) {
  const auto now = Clock::now();
  const bool first = seen.at == Clock::time_point{};
  if (!first && now - seen.at < std::chrono::milliseconds(100)) return seen.rate;
  const double seconds = std::chrono::duration<double>(now - seen.at).count();
  const std::uint64_t grown = count > seen.count ? count - seen.count : 0;
  const std::uint64_t rate = first ? first_rate : static_cast<std::uint64_t>(static_cast<double>(grown) / seconds);
  seen = {now, count, rate};
  return rate;
}

Activity Library::activity(Table& table, unsigned device) {
  const Snapshot now = snapshot(table, device);
  const std::lock_guard lock(mutex_);
  Activity activity;
  std::erase_if(process_busy_, [&](const auto& entry) {
    return entry.first.first == device && std::none_of(now.processes.begin(), now.processes.end(), [&](const auto& p) {
             return layout::owner_identity(p.pid, p.start_ticks) == entry.first.second;
           });
  });
  for (const auto& process : now.processes) {
    const std::uint64_t busy = process.device[device].busy_ns;
    const double since_start = static_cast<double>(busy) / static_cast<double>(nanoseconds_since(process.start_ticks));
    auto& seen = process_busy_[{device, layout::owner_identity(process.pid, process.start_ticks)}];
    const std::uint64_t busy_ns_per_s = rate_since(seen, busy, static_cast<std::uint64_t>(since_start * 1e9));
    const auto percent = static_cast<unsigned>(std::min<std::uint64_t>((busy_ns_per_s + 9'999'999) / 10'000'000, 100));
    activity.processes.push_back({process.pid, percent});
    activity.percent = std::min(activity.percent + percent, 100U);
  }
  return activity;
}

std::uint64_t Library::link_rate(Table& table, unsigned device, unsigned direction) {
  const std::uint64_t bytes = table.device(device).link_bytes.at(direction).load();
  const std::lock_guard lock(mutex_);
  return rate_since(link_[{device, direction}], bytes, 0);
}

Return enter(Table& table, std::string_view name, int device) {
  table.counter(name).fetch_add(1);
  const int card = device < 0 ? no_card : device;
  if (const auto fault = table.meet(FaultKind::nvml_hang, card)) hang(table, *fault, card);
  if (const auto fault = table.meet(FaultKind::nvml_error, card))
    return fault->argument == 0 ? unknown : static_cast<Return>(fault->argument);
  if (device >= 0 && table.meet(FaultKind::device_lost, device)) return gpu_is_lost;
  return success;
}

Return give_text(char* out, unsigned length, std::string_view text) {
  if (out == nullptr) return invalid_argument;
  if (length < text.size() + 1) return insufficient_size;
  std::memcpy(out, text.data(), text.size());
  out[text.size()] = '\0';
  return success;
}

}  // namespace simgpu::nvml
