// SPDX-License-Identifier: Apache-2.0
// The simulated cards, shared by all processes that name the same directory. The directory holds `cards` (the table,
// mapped by all), `alive` (one lock byte per process, which the kernel releases at any death of the process), and
// `shared/` (contents of allocations that are exported between processes). A process writes its holdings into its own
// slot, so that its death frees all of them. Every process that reads or allocates first sweeps the slots of dead
// processes.
//
// Any thread may call any function. Only std::bad_alloc is thrown; other errors are errno text in `error`. A Table
// lives as long as its owner wishes; a Process lives until the process ends.
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
// "1" in the environment of a program: NVML lists it among the graphics programs, and not among those that compute.
inline constexpr const char* drawing_variable = "SIMGPU_DRAWS";

struct DeviceUse {
  std::uint64_t total = 0;      // bytes of the whole card
  std::uint64_t reserve = 0;    // bytes that the driver keeps
  std::uint64_t processes = 0;  // bytes held by living processes (contexts included)
  // bytes of exported allocations that some process still holds
  std::uint64_t exported = 0;
  std::uint64_t used() const { return processes + exported; }  // of the capacity, without the driver's reserve
  std::uint64_t capacity() const { return total - reserve; }   // bytes that programs can have: cuDeviceTotalMem
  std::uint64_t available() const { return used() < capacity() ? capacity() - used() : 0; }
};

struct ProcessUse {
  std::uint32_t pid = 0;
  std::uint64_t start_ticks = 0;  // field 22 of /proc/PID/stat
  struct OnDevice {
    std::uint64_t bytes;  // contexts and exported allocations that the process made are included
    std::uint64_t contexts;
    std::uint64_t busy_ns;  // time of kernels since the process started
  };
  std::array<OnDevice, max_places> device{};  // by place: cards, then slices
  bool draws = false;                         // a graphics program
  ControlState state = ControlState::running;
};

struct Fault {
  FaultKind kind{};
  int device = -1;                // -1: any card
  std::uint32_t pid = 0;          // 0: any process
  std::uint64_t nth = 0;          // 0: every matching call; n: only the n-th from now
  std::uint64_t duration_ns = 0;  // duration of a hang; for other faults, how long the fault stays; 0: until cleared
  std::uint64_t argument = 0;     // bandwidth: bytes/s; nvml-error, checkpoint-fail, restore-fail: the code
  int after = -1;                 // checkpoint-fail, restore-fail: percent moved before the failure; -1: nothing
  std::uint64_t hits = 0;         // matching calls so far
};

struct CallCount {
  std::string name;
  std::uint64_t count = 0;
};

class Process;

class Table {
 public:
  // Makes DIR and its cards. DIR has mode 0777 and is sticky: any user may use the cards, as with a device node. An
  // existing table is an error unless `replace` is set; processes that have the old table mapped then keep the old
  // cards.
  static std::unique_ptr<Table> create(const std::string& dir, const Spec& spec, std::string* error,
                                       bool replace = false);
  static std::unique_ptr<Table> open(const std::string& dir, std::string* error);
  // Opens the table that SIMGPU_DIR names.
  static std::unique_ptr<Table> open_from_environment(std::string* error);
  ~Table();
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  const std::string& dir() const { return dir_; }
  unsigned device_count() const { return map_->devices; }
  // A place is the index of a card or of a slice. The functions below take either.
  // All cards, and all slices that exist.
  std::vector<unsigned> places() const;
  // The card of a slice that exists; nothing for any other place.
  std::optional<unsigned> parent_of(unsigned place) const;
  // The slices of a card, in the order of their indices.
  std::vector<unsigned> slices_of(unsigned card) const;
  bool in_mig_mode(unsigned card) const { return map_->device[card].mig.load() != 0; }
  bool is_unified(unsigned card) const { return map_->device[card].unified.load() != 0; }
  // True if programs can use it: a card that is not in MIG mode, or a slice that exists.
  bool is_usable(unsigned place) const;
  // True if a call that uses it fails: a lost card, or a place that is not usable any more.
  bool is_lost(unsigned place) const;
  // Switching the mode off destroys the slices. Nothing waits for the programs that use the card or a slice.
  void set_mig_mode(unsigned card, bool on);
  // Makes a slice; returns its place, or nothing and why.
  std::optional<unsigned> create_slice(unsigned card, const Profile& profile, std::string* error);
  void destroy_slice(unsigned place);
  layout::DeviceRecord& device(unsigned index) { return map_->device[index]; }
  const layout::DeviceRecord& device(unsigned index) const { return map_->device[index]; }
  std::string uuid_text(unsigned index) const;   // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", or "MIG-…"
  std::string pci_bus_id(unsigned index) const;  // "00000000:17:00.0", NVML's form; CUDA's has a domain of 4 digits

  std::uint64_t get(Setting setting) const;
  void set(Setting setting, std::uint64_t value);
  std::uint64_t capability(unsigned device) const;     // compute capability: of the card, or the setting
  std::uint64_t context_bytes(unsigned device) const;  // the setting, or its default for this card

  // Both sweep the slots of dead processes first. The use of a card includes that of its slices.
  DeviceUse use(unsigned device);
  std::vector<ProcessUse> processes();

  // Frees the holdings of dead processes; returns how many dead processes were found.
  unsigned sweep();

  // Counts a call (or anything else) under its name; the word stays valid as long as the table.
  layout::Word& counter(std::string_view name);
  std::vector<CallCount> calls() const;  // sorted by name, without violations
  // Counts an act that no correct program does, such as unmapping memory under pending work.
  void violation(std::string_view what);
  std::uint64_t violations() const { return map_->violations.load(); }
  std::vector<CallCount> violations_by_kind() const;

  bool set_fault(const Fault& fault, std::string* error);
  void clear_faults();
  std::vector<Fault> active_faults() const;
  // Tells whether this call of this process meets a fault. If no fault is set this is one load; else the call is
  // counted.
  std::optional<Fault> meet(FaultKind kind, int device) const;
  // The same for a call on several cards at once: a bit for each card and slice.
  std::optional<Fault> meet_on(FaultKind kind, std::uint64_t devices) const;
  // The bits of a card, or of a slice and its card. -1: all bits.
  std::uint64_t concerned(int device) const;
  // Tells whether the fault is still set (not cleared, not expired). A hang waits for this.
  bool still_set(FaultKind kind, int device) const;

  // Resets calls, violations and faults. The holdings of processes stay.
  void clear();

  // Sends a request to another process's driver (or the caller's own) and waits for the answer while that process
  // lives. If another caller's request is in progress, a `patient` caller waits, and other callers get `busy`.
  ControlAnswer ask(std::uint32_t pid, const Process& caller, const ControlRequest& request, bool patient);

  // Returns this process's slot, made at the first call. Null if all slots are taken. A forked child must not call this
  // for a Table of its parent.
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
  DeviceUse use_of(unsigned place) const;  // without its slices
  void sweep_shared();
  void sweep_claim(unsigned slot, std::uint64_t state);

  std::string dir_;
  layout::Cards* map_;
  int alive_fd_;
  std::mutex join_mutex_;
  std::unique_ptr<Process> process_;
};

// The holdings of this process on the cards.
class Process {
 public:
  // Takes `bytes` (rounded up to 4 KiB) of the device. False if the card, all processes counted, has too little left.
  bool charge(unsigned device, std::uint64_t bytes);
  void discharge(unsigned device, std::uint64_t bytes);
  std::uint64_t charged(unsigned device) const;
  void add_contexts(unsigned device, int change);
  void add_busy(unsigned device, std::uint64_t nanoseconds);

  // Turns `bytes` that are charged here into an object that lives while any process holds its file. The file has that
  // size, is a hole throughout, and closes on exec. -1 and errno if there is no slot for another object.
  int share(unsigned device, std::uint64_t bytes);

  struct Imported {
    unsigned device = 0;
    std::uint64_t bytes = 0;
    std::uint64_t creator = 0;  // for tie()
  };
  // Returns the object behind a file made by share() (here or in another process); nothing for any other file.
  std::optional<Imported> identify(int fd) const;

  // The serving side of Table::ask, on one thread. After serve() other processes can send requests; next_request()
  // waits for the next request, answer() ends it.
  void serve(std::uint32_t thread_id);
  ControlRequest next_request();
  void answer(const ControlRequest& request, int result, std::uint64_t value);
  // Publishes the state for all processes: NVML does not list a checkpointed process.
  void publish(ControlState state);

  // Ties processes that share memory, as long as both live: while one of them blocks its siblings, requests to the
  // siblings wait. The kernel releases the siblings when the blocking process dies. Only the serving thread calls the
  // last three.
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
  std::uint64_t blocked_group_ = 0;  // 0: this process blocks no sibling
  std::mutex mutex_;                 // one allocation at a time per process: the slot has one word for pending bytes
};

}  // namespace simgpu
