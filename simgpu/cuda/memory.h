// SPDX-License-Identifier: Apache-2.0
// Allocations and addresses, for the files that use them. The driver's lock is held by the caller.
#pragma once

#include "driver.h"

namespace simgpu {

// Device memory for a context, as cuMemAlloc gives it. Null range and OUT_OF_MEMORY when there is none.
CUresult allocate(Context& context, std::uint64_t size, Range*& range);
// Gives the range's memory and addresses back; the caller has waited for the work that uses it.
void deallocate(Range* range);
void free_all_of(Context& context);
void prepare_pool(int ordinal);
void free_host_of(Context& context);      // host.cpp
CUresult free_managed(Range* range);      // host.cpp
void forget_images_of(Context& context);  // module.cpp

// Gives back what pools hold idle beyond their thresholds: synchronisations do that.
void trim_pools(unsigned device);
// Ends a pooled allocation once its stream has come so far; without a stream at once.
CUresult free_pooled(Range* range, const std::shared_ptr<Stream>& stream);

// Whether a program may name [address, address + size) as the card's memory in a call; what may be checked
// before the work runs. Parts of a reservation count, mapped or not.
bool nameable(std::uint64_t address, std::uint64_t size);
// Whether the host memory at the address is pinned, so that a copy need not wait for it.
bool pinned(std::uint64_t address, std::uint64_t size);

// What lies at the addresses now, for work that a context's card does. False when part of it is not there for
// it.
bool resolve(std::uint64_t address, std::uint64_t size, bool write, const Context& by, std::vector<Segment>& segments);

// Costs of pinning, without the lock.
void pay_for_pinning(const void* address, std::uint64_t size);

}  // namespace simgpu
