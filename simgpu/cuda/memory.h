// SPDX-License-Identifier: Apache-2.0
// Allocations and addresses, for the files that use them. The caller holds the driver's lock.
#pragma once

#include "driver.h"

namespace simgpu {

// Allocates device memory for a context, as cuMemAlloc does. A null range and OUT_OF_MEMORY if none is free.
CUresult allocate(Context& context, std::uint64_t size, Range*& range);
// Frees the range's memory and addresses. The caller has waited for the work that uses them.
void deallocate(Range* range);
void free_all_of(Context& context);
void prepare_pool(int ordinal);
void free_host_of(Context& context);      // host.cpp
CUresult free_managed(Range* range);      // host.cpp
void forget_images_of(Context& context);  // module.cpp

// Returns idle pool memory beyond the pools' thresholds to the card. Synchronisations call this.
void trim_pools(unsigned device);
// Ends a pooled allocation when its stream has come to this point; without a stream at once.
CUresult free_pooled(Range* range, const std::shared_ptr<Stream>& stream);

// Tells whether a program may name [address, address + size) as the card's memory in a call. Only checks that are
// possible before the work runs are made. Parts of a reservation count, mapped or not.
bool nameable(std::uint64_t address, std::uint64_t size);
// Tells whether the host memory at the address is pinned, so that a copy need not wait for it.
bool pinned(std::uint64_t address, std::uint64_t size);

// Finds the memory behind the addresses now, for work of a context's card. False if the card cannot reach a part.
bool resolve(std::uint64_t address, std::uint64_t size, bool write, const Context& by, std::vector<Segment>& segments);

// Time that pinning takes. Called without the lock.
void pay_for_pinning(const void* address, std::uint64_t size);

}  // namespace simgpu
