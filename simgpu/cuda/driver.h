// SPDX-License-Identifier: Apache-2.0
// The state of the simulated driver in one process. One lock (`Guard`) guards everything below. No call holds the lock
// while it waits for the card or touches contents; the exceptions say so. Nothing is destroyed at exit, so that calls
// from destructors and other threads stay safe until the process ends.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "content.h"
#include "door.h"
#include "simgpu/cuda_abi.h"
#include "simgpu/table/table.h"

namespace simgpu {

inline constexpr std::uint64_t granule = 2 << 20;  // granule of physical memory and of its mappings

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t to) { return (value + to - 1) / to * to; }

// Turns an address into a pointer. Host memory and the cards share one address space, so an address may mean either.
inline void* pointer_at(std::uint64_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}
inline std::uint8_t* bytes_at(std::uint64_t address) { return static_cast<std::uint8_t*>(pointer_at(address)); }

using Lock = std::unique_lock<std::mutex>;

// ------------------------------------------------------------------------------------------- physical memory

// Memory of a card. The table charges its bytes until the last reference is gone: a mapping, a handle, an allocation,
// or work that uses the memory right now.
class Physical : public std::enable_shared_from_this<Physical> {
 public:
  // Allocates `bytes` of the card; null if the card has too little free memory.
  static std::shared_ptr<Physical> create(unsigned device, std::uint64_t bytes);
  // Imports memory from a file made by Process::share. The memory keeps a descriptor of its own.
  static std::shared_ptr<Physical> import(int fd);
  ~Physical();
  Physical(const Physical&) = delete;
  Physical& operator=(const Physical&) = delete;

  // Returns a new descriptor by which other processes import this memory, and moves the contents into the file. -1 and
  // errno on failure.
  int export_fd();
  bool exported() const;  // exported or imported: other processes may hold it

  // Lists all memory of this process that is alive now.
  static std::vector<std::shared_ptr<Physical>> all();
  // For a checkpoint: keeps a copy of the written contents in this process's memory. From here on the copy replaces the
  // card's memory. A restore fills the card's memory from the copy alone.
  void park();
  void unpark();

  Piece next(std::uint64_t offset, std::uint64_t limit, std::uint8_t* buffer) const;
  void write(std::uint64_t offset, const std::uint8_t* data, std::uint64_t size);
  void fill(std::uint64_t offset, std::uint64_t size, const Pattern& pattern);

  const unsigned device;
  const std::uint64_t bytes;
  // The properties that cuMemCreate got; fixed before any other thread sees the object.
  CUmemAllocationProp properties{};
  CUmemGenericAllocationHandle handle = 0;  // guarded by the driver's lock

 private:
  Physical(unsigned device_index, std::uint64_t size);
  mutable std::mutex mutex_;  // guards the content alone: work touches it without the driver's lock
  std::unique_ptr<Content> content_;
  struct ParkedRun {
    std::uint64_t offset, size;
    Pattern pattern;
    std::unique_ptr<std::uint8_t[]> data;  // null: the pattern fills it
  };
  std::vector<ParkedRun> parked_;  // the parts that are not zero, in order
  int fd_ = -1;
  bool in_file_ = false;  // the contents are in the file
};

// ------------------------------------------------------------------------------------------- addresses

struct Context;
struct Pool;

enum class RangeKind {
  device,       // cuMemAlloc and similar calls
  pooled,       // cuMemAllocAsync
  reservation,  // cuMemAddressReserve: holds mappings
  host,         // pinned memory that the driver allocated
  registered,   // pinned memory of the program
  managed,
};

struct Mapping {
  std::uint64_t size = 0;
  std::shared_ptr<Physical> physical;
  std::map<unsigned, CUmemAccess_flags> access;  // access flags by card; no entry: no access
};

struct Range {
  // bytes that the program asked for; `reserved` are the bytes that the addresses take
  std::uint64_t base = 0, size = 0;
  std::uint64_t reserved = 0;
  RangeKind kind = RangeKind::device;
  Context* context = nullptr;  // the context that made it; null for reservations
  unsigned device = 0;
  std::uint64_t id = 0;  // CU_POINTER_ATTRIBUTE_BUFFER_ID
  unsigned flags = 0;
  bool sync_memops = false;
  std::shared_ptr<Physical> physical;
  std::uint64_t offset = 0;  // offset into the memory
  Pool* pool = nullptr;
  bool ending = false;  // pooled memory: freed in stream order, and earlier work can still read it
  std::map<std::uint64_t, Mapping> mappings;
};

// A stretch of one memory, of a card or of the host. For host memory `host` points at it.
struct Segment {
  std::shared_ptr<Physical> physical;
  std::uint64_t offset = 0;
  std::uint8_t* host = nullptr;
  std::uint64_t size = 0;
  unsigned device = 0;
  bool granted = false;  // access by cuMemSetAccess: needs no peer access
};

class AddressSpace {
 public:
  // Reserves addresses that look like the driver's and on which the CPU faults. 0 if there are none left.
  std::uint64_t reserve(std::uint64_t size, std::uint64_t alignment, std::uint64_t hint = 0);
  void release(std::uint64_t base, std::uint64_t size);
  bool ours(std::uint64_t address) const { return address >= region_ && address - region_ < region_size_; }

  Range* add(std::unique_ptr<Range> range);
  void remove(Range* range);
  Range* find(std::uint64_t address);
  std::map<std::uint64_t, std::unique_ptr<Range>>& all() { return ranges_; }
  // Tells whether any range intersects [base, base + size).
  bool overlaps(std::uint64_t base, std::uint64_t size) const;

 private:
  bool open_region();
  std::uint64_t region_ = 0, region_size_ = 0;
  std::map<std::uint64_t, std::uint64_t> free_;
  std::map<std::uint64_t, std::unique_ptr<Range>> ranges_;
  std::uint64_t next_id_ = 1;
};

// ------------------------------------------------------------------------------------------- work

struct Stream;

struct Touch {
  std::uint64_t address = 0, size = 0;
};

struct Dependency {
  std::shared_ptr<Stream> stream;
  std::uint64_t sequence = 0;
};

struct Work {
  std::function<CUresult()> run;  // runs without the driver's lock
  std::vector<Touch> touches;
  std::vector<Dependency> after;
  std::uint64_t sequence = 0;
  std::uint64_t submitted = 0;  // CLOCK_MONOTONIC ns
  bool takes_no_time = false;   // a mark in the stream: the card comes to it and goes on
  bool by_caller = false;       // the calling thread runs it when the work is first in its stream
};

struct Capture;
struct Graph;

struct Stream {
  Context* context = nullptr;
  unsigned flags = 0;
  int priority = 0;
  std::uint64_t id = 0;
  std::deque<std::shared_ptr<Work>> queue;  // in order; the first may be running
  std::uint64_t enqueued = 0, completed = 0;
  bool worker = false;               // a thread serves the queue
  std::uint64_t card_time = 0;       // when the card was done with the completed work: threads may be late
  std::shared_ptr<Capture> capture;  // null: it is not being captured
  std::vector<Dependency> waits;     // waits for the next work, set by cuStreamWaitEvent
  std::condition_variable changed;
};

struct Timestamp {
  std::atomic<std::uint64_t> ns{0};
};

struct Event {
  Context* context = nullptr;
  unsigned flags = 0;
  Dependency last;  // the stream that recorded it; null: never recorded
  std::shared_ptr<Timestamp> time;
};

// ------------------------------------------------------------------------------------------- contexts

struct SmallBlock {
  std::shared_ptr<Physical> physical;
  std::uint64_t base = 0;
  std::vector<bool> taken;  // in units of 512 bytes
  std::uint64_t free_units = 0;
};

struct Context {
  int ordinal = 0;
  unsigned device = 0;  // index of its card in the table
  bool primary = false, alive = false;
  unsigned flags = 0, api_version = 0;
  std::uint64_t id = 0;
  int retained = 0;
  std::uint64_t charged = 0;
  std::atomic<int> error{0};  // sticky; set by work, without the lock
  std::shared_ptr<Stream> legacy;
  std::unordered_map<std::uint64_t, std::shared_ptr<Stream>> per_thread;
  std::vector<std::weak_ptr<Stream>> streams;  // all streams; destroyed streams too while they have work
  std::vector<std::unique_ptr<SmallBlock>> small;
  std::map<int, std::size_t> limits;
  std::set<Context*> peers;
  int cache_config = 0, shared_config = 0;
};

struct PoolBlock {
  std::shared_ptr<Physical> physical;
  std::uint64_t base = 0, bytes = 0, used = 0;
  std::map<std::uint64_t, std::uint64_t> gaps;  // offset and bytes of each free block
};

struct Pool {
  unsigned device = 0;
  bool standard = false;  // a card's own pool: never destroyed
  CUmemAllocationProp properties{};
  std::uint64_t threshold = 0, reserved = 0, reserved_high = 0, used = 0, used_high = 0, max_size = 0;
  int follow_events = 1, opportunistic = 1, internal = 1;
  std::map<unsigned, CUmemAccess_flags> access;
  std::vector<std::unique_ptr<PoolBlock>> blocks;
  bool destroyed = false;
};

// ------------------------------------------------------------------------------------------- the driver

struct Driver {
  std::unique_ptr<Table> table;
  Process* process = nullptr;
  std::vector<unsigned> cards;  // index in the table, by ordinal
  AddressSpace addresses;
  std::vector<std::unique_ptr<Context>> primary;  // by ordinal
  std::vector<std::unique_ptr<Context>> created;  // destroyed contexts too: their handles stay recognisable
  std::unordered_map<void*, std::shared_ptr<Stream>> streams;
  std::unordered_map<void*, std::shared_ptr<Event>> events;
  std::unordered_map<void*, std::shared_ptr<Graph>> graphs, executable_graphs;
  // the context, and how often it was retained
  std::unordered_map<std::uint64_t, std::pair<std::shared_ptr<Physical>, int>> handles;
  std::uint64_t next_handle = 1;
  std::vector<std::unique_ptr<Pool>> pools;
  std::vector<Pool*> default_pool, current_pool;  // by ordinal
  std::uint64_t next_id = 1;
  std::condition_variable progress;  // signalled when some work is done
};

std::mutex& driver_mutex();
// Returns the driver, or null before cuInit has succeeded in this process.
Driver* driver_or_null();
inline Driver& driver() { return *driver_or_null(); }
CUresult initialise(unsigned flags);
// Returns the table without cuInit, for queries that are allowed before cuInit. Null without cards.
Table* table_or_null();

// The entry of one exported function: counts its calls, and refuses them where the driver would.
class CallSite {
 public:
  constexpr explicit CallSite(const char* name) : name_(name) {}
  CUresult enter();         // NOT_INITIALIZED before cuInit and in a forked child
  CUresult enter_inside();  // as `driver`, then through the door (door.h): waits while the door is closed
  CUresult enter_early();   // only counts, and refuses a forked child
 private:
  void count();
  const char* name_;
  std::atomic<layout::Word*> counter_{nullptr};
};

// Holds the door for the duration of one call.
class Call {
 public:
  explicit Call(CallSite& site) : refused_(site.enter_inside()) {}
  ~Call() {
    if (refused_ == CUDA_SUCCESS) leave_door();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  CUresult refused() const { return refused_; }

 private:
  const CUresult refused_;
};

bool forked();  // forked from a process that had called cuInit

// The thread runs a host function of a stream, and may not call the driver.
extern thread_local bool in_host_function;

}  // namespace simgpu

#define SIMGPU_API extern "C" __attribute__((visibility("default"))) CUresult

// The first statement of every exported function.
#define SIMGPU_ENTER(name)                              \
  static constinit ::simgpu::CallSite call_site{#name}; \
  const ::simgpu::Call call_inside(call_site);          \
  if (call_inside.refused() != CUDA_SUCCESS) return call_inside.refused()

// Each function about a stream exists twice; the second takes 0 as the calling thread's own stream.
#define SIMGPU_BOTH(name, parameters, call) \
  SIMGPU_API name parameters {              \
    SIMGPU_ENTER(name);                     \
    constexpr bool per_thread = false;      \
    return call;                            \
  }                                         \
  SIMGPU_API name##_ptsz parameters {       \
    SIMGPU_ENTER(name##_ptsz);              \
    constexpr bool per_thread = true;       \
    return call;                            \
  }

// SIMGPU_ENTER for functions that a locked process answers too.
#define SIMGPU_ENTER_OUTSIDE(name)                      \
  static constinit ::simgpu::CallSite call_site{#name}; \
  if (const CUresult refused = call_site.enter(); refused != CUDA_SUCCESS) return refused
