// SPDX-License-Identifier: Apache-2.0
// What lies in the shared file `cards`. Every word that several processes write is a lock-free atomic, and
// every change that matters is one atomic instruction, so that a process may be killed or stopped between any
// two instructions: there is no lock to be left held and no half-made entry that counts. The library around
// it (table.h) is the only writer.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace simgpu {

inline constexpr unsigned max_devices = 16;
inline constexpr unsigned max_processes = 1024;
inline constexpr unsigned max_shared = 1024;
inline constexpr unsigned max_faults = 32;
inline constexpr unsigned max_counters = 2048;
inline constexpr unsigned max_settings = 64;

// Accounts are kept in pages of this size, because two counts of pages fit one word.
inline constexpr std::uint64_t account_page = 4096;

namespace layout {

using Word = std::atomic<std::uint64_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 8);

inline constexpr std::uint64_t magic = 0x53494d4347505531;  // "SIMCGPU1"
inline constexpr std::uint32_t version = 2;

// An owner word: pid (22 bits), start time in clock ticks since boot (40 bits), and a state (2 bits) on top.
// Pid and start time together name one process of this boot; 0 is nobody.
inline constexpr unsigned owner_state_shift = 62;
inline constexpr std::uint64_t owner_claiming = std::uint64_t{1} << owner_state_shift;  // counts for nothing yet
inline constexpr std::uint64_t owner_ready = std::uint64_t{2} << owner_state_shift;
inline constexpr std::uint64_t owner_identity_mask = owner_claiming - 1;

constexpr std::uint64_t owner_identity(std::uint32_t pid, std::uint64_t start_ticks) {
  return (std::uint64_t{pid} & 0x3fffff) | ((start_ticks & 0xffffffffff) << 22);
}
constexpr std::uint32_t owner_pid(std::uint64_t word) { return word & 0x3fffff; }
constexpr std::uint64_t owner_start(std::uint64_t word) { return (word & owner_identity_mask) >> 22; }

// A charge word: pages held (low half) and pages asked for but not yet granted (high half).
constexpr std::uint64_t held_pages(std::uint64_t word) { return word & 0xffffffff; }
constexpr std::uint64_t pending_pages(std::uint64_t word) { return word >> 32; }

struct DeviceRecord {
  std::array<char, 96> name;
  std::array<std::uint8_t, 16> uuid;
  std::uint64_t total;    // bytes, as NVML says them
  std::uint64_t reserve;  // bytes of them that the driver keeps: no program can have them
  std::uint32_t pci_domain, pci_bus, pci_device, pad;
  std::array<Word, 2> link_busy_until;  // CLOCK_MONOTONIC ns; [0] host to device, [1] device to host
  Word memory_busy_until;               // the same for copies inside the card
  Word compute_busy_until;
  std::array<Word, 2> link_bytes;  // moved since creation
  Word busy_ns;                    // kernels' time since creation
  Word ecc_errors;
  std::array<Word, 32> spare;
};

// How other processes have this one's driver do something (control.h): one request at a time.
struct ControlRecord {
  Word thread;   // id of the thread that serves requests; 0: nobody does
  Word state;    // ControlState
  Word caller;   // identity of who may post a request now; 0: nobody
  Word request;  // number of the request (upper 56 bits) and what is asked for
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
  std::array<Word, max_devices> charge;
  std::array<Word, max_devices> contexts;
  std::array<Word, max_devices> busy_ns;
  ControlRecord control;
  Word group;  // of those who share memory: the same number, 0 for none
  std::array<Word, 19> spare;
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
  Word key;  // hash of the name; 0 is free
  Word count;
  std::array<char, 64> name;
};

struct Cards {
  std::uint64_t magic;
  std::uint32_t version, devices;
  std::uint64_t size;
  Word process_slots;  // none beyond this index was ever used
  Word shared_slots;
  Word next_nonce;
  Word violations;
  Word fault_mask;  // bit per kind that may be active; 0 makes the check one load
  Word fault_generation;
  std::array<Word, 64> spare;
  std::array<Word, max_settings> settings;
  std::array<DeviceRecord, max_devices> device;
  std::array<ProcessRecord, max_processes> process;
  std::array<SharedRecord, max_shared> shared;
  std::array<FaultRecord, max_faults> fault;
  std::array<CounterRecord, max_counters> counter;
};

}  // namespace layout
}  // namespace simgpu
