// SPDX-License-Identifier: Apache-2.0
// The simulated cards, shared by all processes that name the same directory: `cards` (the table, mapped by
// all), `alive` (one lock byte per process, which the kernel releases when the process dies, however it
// dies), and `shared/` (contents of allocations exported between processes). Whatever a process holds is
// written in its own slot, so that its death frees all of it; everybody who reads or allocates sweeps the
// slots of the dead first.
//
// All functions may be called from any thread. Nothing here throws but std::bad_alloc; errors are
// std::errc-like errno text in `error`. A Table lives as long as its owner wishes; a Process lives until the
// process ends.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "control.h"
#include "layout.h"
#include "spec.h"

namespace simgpu {

// Names the directory of the cards for the simulated libraries and tools.
inline constexpr const char* directory_variable = "SIMGPU_DIR";

struct DeviceUse {
  std::uint64_t total = 0;                                     // bytes, the whole card
  std::uint64_t reserve = 0;                                   // kept by the driver
  std::uint64_t processes = 0;                                 // held by living processes (contexts included)
  std::uint64_t exported = 0;                                  // exported allocations that somebody still holds
  std::uint64_t used() const { return processes + exported; }  // of the capacity, without the driver's reserve
  std::uint64_t capacity() const { return total - reserve; }   // what programs can have: cuDeviceTotalMem
  std::uint64_t available() const { return used() < capacity() ? capacity() - used() : 0; }
};

struct ProcessUse {
  std::uint32_t pid = 0;
  std::uint64_t start_ticks = 0;  // field 22 of /proc/PID/stat
  struct OnDevice {
    std::uint64_t bytes;  // contexts included, exported allocations of its making included
    std::uint64_t contexts;
    std::uint64_t busy_ns;  // kernels' time since the process started
  };
  std::array<OnDevice, max_devices> device{};
  ControlState state = ControlState::running;
};

struct Fault {
  FaultKind kind{};
  int device = -1;                // -1: any
  std::uint32_t pid = 0;          // 0: any
  std::uint64_t nth = 0;          // 0: every matching call; n: only the n-th from now
  std::uint64_t duration_ns = 0;  // of a hang; of all others how long the fault stays. 0: until cleared
  std::uint64_t argument = 0;     // bandwidth: bytes/s; nvml-error, checkpoint-fail, restore-fail: the code
  int after = -1;                 // checkpoint-fail, restore-fail: percent moved before it fails; -1: nothing
  std::uint64_t hits = 0;         // matching calls so far
};

struct CallCount {
  std::string name;
  std::uint64_t count = 0;
};

class Process;

class Table {
 public:
  // Makes DIR (0777, sticky: like a device node, anybody may use the cards) and its cards. An existing table
  // is an error unless `replace`; then processes that have the old one mapped keep the old cards.
  static std::unique_ptr<Table> create(const std::string& dir, const Spec& spec, std::string* error,
                                       bool replace = false);
  static std::unique_ptr<Table> open(const std::string& dir, std::string* error);
  // By SIMGPU_DIR.
  static std::unique_ptr<Table> open_from_environment(std::string* error);
  ~Table();
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  const std::string& dir() const { return dir_; }
  unsigned device_count() const { return map_->devices; }
  layout::DeviceRecord& device(unsigned index) { return map_->device[index]; }
  const layout::DeviceRecord& device(unsigned index) const { return map_->device[index]; }
  std::string uuid_text(unsigned index) const;   // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
  std::string pci_bus_id(unsigned index) const;  // "00000000:17:00.0", NVML's form; CUDA's has a domain of 4 digits

  std::uint64_t get(Setting setting) const;
  void set(Setting setting, std::uint64_t value);
  std::uint64_t context_bytes(unsigned device) const;  // the setting, or its default for this card

  // Both sweep the dead first.
  DeviceUse use(unsigned device);
  std::vector<ProcessUse> processes();

  // Frees what the dead held; returns how many processes were found dead.
  unsigned sweep();

  // Counts a call (or anything else) under its name; the word stays valid as long as the table.
  layout::Word& counter(std::string_view name);
  std::vector<CallCount> calls() const;  // sorted by name, violations excepted
  // A program did what no correct program does, such as unmapping memory under pending work.
  void violation(std::string_view what);
  std::uint64_t violations() const { return map_->violations.load(); }
  std::vector<CallCount> violations_by_kind() const;

  bool set_fault(const Fault& fault, std::string* error);
  void clear_faults();
  std::vector<Fault> active_faults() const;
  // Whether this call of this process meets a fault. One load when none is set; counts the call otherwise.
  std::optional<Fault> meet(FaultKind kind, int device) const;
  // The same for what is of several cards at once: a bit each.
  std::optional<Fault> meet_on(FaultKind kind, std::uint64_t devices) const;
  // Whether the fault is still set (not cleared, not expired): what a hang waits for.
  bool still_set(FaultKind kind, int device) const;

  // Resets calls, violations and faults; what processes hold is theirs.
  void clear();

  // Has another process's driver (or one's own) do something and waits for the answer, as long as it takes and
  // the other lives. While somebody else is asking it, a `patient` question waits and others come back busy.
  ControlAnswer ask(std::uint32_t pid, const Process& caller, const ControlRequest& request, bool patient);

  // This process's slot, made at the first call. Null when all slots are taken. A forked child must not call
  // it for a Table of its parent.
  Process* join(std::string* error);

  layout::Cards& raw() { return *map_; }

 private:
  friend class Process;
  Table(std::string dir, layout::Cards* map, int alive_fd) : dir_(std::move(dir)), map_(map), alive_fd_(alive_fd) {}
  bool slot_alive(unsigned slot, std::uint64_t owner) const;
  std::optional<unsigned> served_slot(std::uint32_t pid) const;
  bool claim(unsigned slot, std::uint64_t owner, std::uint64_t caller);
  bool shared_alive(unsigned slot, std::uint64_t state) const;
  std::string shared_path(unsigned slot, std::uint64_t state) const;
  bool identity_alive(std::uint64_t identity) const;
  void sweep_shared();
  void sweep_claim(unsigned slot, std::uint64_t state);

  std::string dir_;
  layout::Cards* map_;
  int alive_fd_;
  std::mutex join_mutex_;
  std::unique_ptr<Process> process_;
};

// What this process holds of the cards.
class Process {
 public:
  // Takes `bytes` (rounded up to 4 KiB) of the device: false when the card, all processes counted, has not so
  // much.
  bool charge(unsigned device, std::uint64_t bytes);
  void discharge(unsigned device, std::uint64_t bytes);
  std::uint64_t charged(unsigned device) const;
  void add_contexts(unsigned device, int change);
  void add_busy(unsigned device, std::uint64_t nanoseconds);

  // Makes `bytes` of what is charged here an object that lives while any process holds its file. The file has
  // that size, is a hole throughout, and closes on exec. -1 and errno when there is no room for one more.
  int share(unsigned device, std::uint64_t bytes);

  struct Imported {
    unsigned device = 0;
    std::uint64_t bytes = 0;
    std::uint64_t creator = 0;  // for tie()
  };
  // What a file made by share() (here or in another process) stands for; nothing for any other file.
  std::optional<Imported> identify(int fd) const;

  // The serving side of Table::ask, on one thread. From serve() on others can ask; next_request() waits for
  // the next one, answer() ends it.
  void serve(std::uint32_t thread_id);
  ControlRequest next_request();
  void answer(const ControlRequest& request, int result, std::uint64_t value);
  // What everybody may see without asking: NVML does not list a checkpointed process.
  void publish(ControlState state);

  // Processes that share memory are tied, as long as both live: while one of them blocks its siblings, theirs wait.
  // The kernel lets them go when it dies. The last three are the serving thread's.
  void tie(std::uint64_t owner);
  void wait_for_siblings() const;
  void block_siblings();
  void let_siblings_go();

 private:
  friend class Table;
  Process(Table& table, unsigned slot, std::uint64_t owner) : table_(table), slot_(slot), owner_(owner) {}
  layout::ProcessRecord& mine() const { return table_.map_->process[slot_]; }
  bool settle(unsigned device, std::uint64_t pages);

  Table& table_;
  const unsigned slot_;
  const std::uint64_t owner_;
  std::uint64_t blocked_group_ = 0;  // 0: it blocks nobody
  std::mutex mutex_;  // one allocation at a time per process: the slot has one word for what is asked for
};

}  // namespace simgpu
