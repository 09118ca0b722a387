// SPDX-License-Identifier: Apache-2.0
// The layout of the shared file `cards`. Every word that several processes write is a lock-free atomic, and every
// change that matters is one atomic instruction. A process may therefore be killed or stopped between any two
// instructions: no lock stays held, and no half-made entry counts. Only the library around this file (table.h) writes
// it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace simgpu {

inline constexpr unsigned max_devices = 16;                       // whole cards
inline constexpr unsigned max_slices = 32;                        // MIG slices of all cards together
inline constexpr unsigned max_places = max_devices + max_slices;  // the cards' records, then those of the slices
inline constexpr unsigned all_parts = 7;                          // compute parts of a card, for slices
inline constexpr unsigned max_processes = 1024;
inline constexpr unsigned max_shared = 1024;
inline constexpr unsigned max_faults = 32;
inline constexpr unsigned max_counters = 2048;
inline constexpr unsigned max_settings = 64;
inline constexpr unsigned max_figures = 16;

// Accounts count pages of this size, so that two counts fit into one word.
inline constexpr std::uint64_t account_page = 4096;

namespace layout {

using Word = std::atomic<std::uint64_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 8);

inline constexpr std::uint64_t magic = 0x53494d4347505531;  // "SIMCGPU1"
inline constexpr std::uint32_t version = 3;

// An owner word: pid (22 bits), start time in clock ticks since boot (40 bits), and a state (2 high bits). Pid and
// start time together name one process of this boot; 0 is no process.
inline constexpr unsigned owner_state_shift = 62;
inline constexpr std::uint64_t owner_claiming = std::uint64_t{1} << owner_state_shift;  // not counted yet
inline constexpr std::uint64_t owner_ready = std::uint64_t{2} << owner_state_shift;
inline constexpr std::uint64_t owner_identity_mask = owner_claiming - 1;

constexpr std::uint64_t owner_identity(std::uint32_t pid, std::uint64_t start_ticks) {
  return (std::uint64_t{pid} & 0x3fffff) | ((start_ticks & 0xffffffffff) << 22);
}
constexpr std::uint32_t owner_pid(std::uint64_t word) { return word & 0x3fffff; }
constexpr std::uint64_t owner_start(std::uint64_t word) { return (word & owner_identity_mask) >> 22; }

// A charge word: pages held (low half) and pages requested but not yet granted (high half).
constexpr std::uint64_t held_pages(std::uint64_t word) { return word & 0xffffffff; }
constexpr std::uint64_t pending_pages(std::uint64_t word) { return word >> 32; }

struct DeviceRecord {
  std::array<char, 96> name;
  std::array<std::uint8_t, 16> uuid;
  std::uint64_t total;    // bytes, as NVML reports them
  std::uint64_t reserve;  // bytes of `total` that the driver keeps: programs cannot have them
  std::uint32_t pci_domain, pci_bus, pci_device, pad;
  std::array<Word, 2> link_busy_until;  // CLOCK_MONOTONIC ns; [0] host to device, [1] device to host
  Word memory_busy_until;               // the same for copies inside the card
  Word compute_busy_until;
  std::array<Word, 2> link_bytes;  // bytes moved since creation
  Word busy_ns;                    // time of kernels since creation
  Word ecc_errors;
  std::array<Word, max_figures> figures;  // by Figure: value + 1; 0: not set; all ones: not supported
  Word unified;                           // 1: its memory is the machine's
  Word mig;                               // of a card: 1 in MIG mode
  Word parent;                            // of a slice that exists: 1 + its card's index; else 0
  Word slice;                             // of a slice: its index among the slices of its card
  Word instance;                          // of a slice: id of its GPU instance; its compute instance is 0
  Word parts;                             // of a slice: how many of the 7 compute parts of its card
  std::array<Word, 3> linked;             // of a card, by LinkWay: 1 + number of the group; 0: none
  std::array<Word, 7> spare;
};

// The words by which other processes send requests to this process's driver (control.h), one request at a time.
struct ControlRecord {
  Word thread;   // id of the thread that serves requests; 0: none
  Word state;    // ControlState
  Word caller;   // identity of the process that may post a request now; 0: none
  Word request;  // number of the request (upper 56 bits) and its kind
  Word target;   // owner word of the process that the request is meant for
  Word argument;
  Word devices;   // a bit for each card that the request names
  Word answered;  // number of the last request that was answered
  Word result, value;
  Word bell;   // grows with each request; the server sleeps on it
  Word chime;  // grows with each answer; callers sleep on it
};

struct ProcessRecord {
  Word owner;
  std::array<Word, max_places> charge;
  std::array<Word, max_places> contexts;
  std::array<Word, max_places> busy_ns;
  ControlRecord control;
  Word group;  // the same number for processes that share memory; 0: none
  Word draws;  // 1: NVML lists it among the graphics programs
  std::array<Word, 18> spare;
};

// Memory that outlives its creator while any process holds its file (an exported allocation).
struct SharedRecord {
  Word state;  // 0, owner_claiming | creator's identity, or owner_ready | nonce
  Word creator;
  Word device, bytes;
  Word file_device, file_inode;
};

struct FaultRecord {
  Word state;  // 0 free, 1 being written, else 2 + 4 * generation
  Word kind, device, pid, nth, duration_ns, argument, after, until_ns, hits;
};

struct CounterRecord {
  Word key;  // hash of the name; 0: free
  Word count;
  std::array<char, 64> name;
};

struct Cards {
  std::uint64_t magic;
  std::uint32_t version, devices;
  std::uint64_t size;
  Word process_slots;  // slots beyond this index were never used
  Word shared_slots;
  Word next_nonce;
  Word violations;
  Word fault_mask;  // a bit for each kind that may be active; 0 makes the check one load
  Word fault_generation;
  std::array<Word, 64> spare;
  std::array<Word, max_settings> settings;
  std::array<DeviceRecord, max_places> device;
  std::array<ProcessRecord, max_processes> process;
  std::array<SharedRecord, max_shared> shared;
  std::array<FaultRecord, max_faults> fault;
  std::array<CounterRecord, max_counters> counter;
};

}  // namespace layout
}  // namespace simgpu
