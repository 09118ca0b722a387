// SPDX-License-Identifier: Apache-2.0
// The wording of leases, devices and bytes: the parts of the core's sentences. Reads only.
#pragma once

#include "lease/reason.h"
#include "lease/rules.h"
#include "state/holder.h"
#include "state/state.h"

#include <string>
#include <vector>

namespace sublet::core {

std::string name_of(const Device& device);     // "gpu0", its uuid while it was never read
std::string name_of(const Lease& lease);       // "lease-3 (train, ana)"
std::string list_devices(const State& state);  // "gpu0 (NVIDIA H200, 139 GiB, GPU-…), gpu1 (…)"
std::string capacity_text(const Device& device, const Rules& rules);  // "23.2 GiB of 24.0 GiB, after …"
// Why a device counts as unknown; "" while it is known.
std::string unknown_text(const State& state, const Device& device, const Rules& rules, Time now);

bool is_admins(const PreemptionRequest& preemption_request,
               const Lease& lease);  // an admin's request, not the owner's
std::string requester_text(const PreemptionRequest& preemption_request,
                           const Lease& lease);  // "its owner", "an admin"
std::vector<std::string> device_names(const State& state, const std::vector<std::string>& uuids);  // "gpu0", "gpu2"
std::string names_of_devices(const State& state, const std::vector<std::string>& uuids);  // "gpu0", "gpu0 and gpu2"
std::string on_devices(const State& state, const Lease& lease);  // " on gpu0", " on each of gpu0 and gpu2"
ReasonArgs need_args(const State& state, const Lease& lease);    // of the fragment "need"
// "needs 6.0 GiB", "needs 6.0 GiB on each of 2 devices among gpu0, gpu2 and gpu3"
std::string need_text(const State& state, const Lease& lease);
ReasonArgs asked_args(const Lease& lease);  // of the fragment "asked", for when the need may be over
ReasonArgs capacity_args(const Device& device, const Rules& rules);  // of the fragment "hopeless"

// "gpu1 is out of service (cordoned by root: new fan)", of devices that could serve the waiting lease; "": none is.
std::string out_of_service_text(const State& state, const Rules& rules, const Lease& lease);

// "gpu0 (GPU-…) has been gone for 5 min: GPU is lost"
std::string gone_text(const Device& device, Time now);
// Says that no present device can ever hold the waiting lease, and which missing devices could; "" otherwise.
std::string hopeless_text(const State& state, const Rules& rules, const Lease& lease, Time now);

bool holds(const std::vector<LeaseId>& leases, LeaseId lease);

// The device where the lease lacks least, and its free memory. For a lease on N devices: the Nth of the freest known
// devices. Null if fewer known devices can ever hold it.
struct Nearest {
  const Device* device = nullptr;
  Bytes free;
};
Nearest nearest_device(const State& state, const Rules& rules, const Lease& lease, Time now);

// The holders of the device without the asking lease, the largest first, at most `limit`.
std::vector<Holder> holders_of(const State& state, const Device& device, const Lease& asking, std::size_t limit);

// The bytes that the lease needs and lacks, and their holders: arguments of the fragment "shortage", and its sentence.
ReasonArgs shortage_args(const State& state, const Rules& rules, const Lease& lease, Time now);
std::string shortage_text(const State& state, const Rules& rules, const Lease& lease, Time now);
// The same for programs: the bytes asked for, and those free and lacking on the nearest device; only the first if no
// device is known.
Numbers shortage_numbers(const State& state, const Rules& rules, const Lease& lease, Time now);
// The numbers of a TooLarge.
Numbers size_numbers(Bytes asked, Bytes most);

// "its memory was not measured free within 30 s"

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

// Why a pause cannot be verified a moment after its method reported the bytes freed. Either a device cannot be read, or
// its reading is implausible. "" while there is nothing to verify, or it can be verified.
std::string unverified_text(const State& state, const Rules& rules, const Lease& lease, Time now);

}  // namespace sublet::core
