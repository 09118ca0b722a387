// SPDX-License-Identifier: Apache-2.0
// Answers for people, computed from the state when asked; reads only, may walk the queue.
#pragma once

#include "core/reason_args.h"
#include "core/rules.h"
#include "core/state.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sublet::core {

struct Holder {
  LeaseId lease;     // none: unleased processes, or bytes of no listed process
  std::string what;  // "lease-3 (train, ana)", "pid 4711 (python3, without a lease)", "bytes of no listed process"
  Bytes bytes;
};

struct QueueInfo {
  std::size_t place = 0;                      // 1 = next
  Bytes short_bytes;                          // bytes missing on the nearest device
  std::string device;                         // uuid of that device, "" if none is known
  Bytes free;                                 // bytes that may still be promised on that device, 0 or more
  Bytes unleased;                             // bytes without a lease on that device
  std::vector<Holder> holders;                // of that device, largest first
  std::vector<std::string> reserved_devices;  // uuids of devices with memory reserved for it
  LeaseId reserved_for;         // the lease for which memory is reserved where this one would fit; none otherwise
  std::string held_text;        // `reserved_for` as a sentence
  std::optional<Duration> eta;  // expected wait from now; unset: unknown
  std::string basis;            // the source of the estimate, or why there is none
};

// Places and expected starts of waiters at one moment; asking for several costs little more than asking for one. Valid
// only while the state stays as it is.
class Forecast;
class Nominations;
class Foretold {
 public:
  Foretold(const State& state, const Rules& rules, Time now);
  ~Foretold();
  QueueInfo of(const Lease& lease);

 private:
  void estimate_start(const Lease& lease, QueueInfo& info);  // sets its eta and basis; its place is known

  const State& state_;
  const Rules& rules_;
  const Time now_;
  std::unique_ptr<Forecast> forecast_;
  std::unique_ptr<Nominations> held_;
};

QueueInfo queue_info(const State& state, const Rules& rules, const Lease& lease, Time now);

// The time from now until a time slice pauses the lease; unset: unknown. Set only while leases of the same tier wait
// for it.
std::optional<Duration> leaves_in(const State& state, LeaseId lease, Time now);

// The command that ends the program of the lease: "`sublet stop lease-3`". The command is "`kill 4711`" for a program
// that Sublet did not start, and does not end while it holds VRAM or is parked.
std::string end_command(const State& state, const Lease& lease);
// Advice for a paused lease that is to run again; "" for any other lease.
std::string back_hint(const State& state, const Lease& lease);

// The lease for which memory is reserved where this lease would fit: arguments of the fragment "reserved"; empty if it
// fits nowhere.
ReasonArgs reserved_args(const State& state, const Rules& rules, const Lease& lease, Time now);

std::string safe_mode_text(const SafeMode& safe);  // "the daemon is in safe mode until 2026-…Z: it crashed …"
std::string safe_mode_hint(const SafeMode& safe);

// Whether some pause method could pause the lease, whatever its state and the host memory are now.
bool has_pause_method(const State& state, const Lease& lease);

// Why a pause cannot be verified a moment after its method reported the bytes freed. Either a device cannot be read, or
// its reading is implausible. "" while there is nothing to verify, or it can be verified.
std::string unverified_text(const State& state, const Rules& rules, const Lease& lease, Time now);

// Advice that would help the lease, in plain words, the best first; for `sublet why`.
std::vector<std::string> what_would_help(const State& state, const Rules& rules, const Lease& lease, Time now);

}  // namespace sublet::core
