// SPDX-License-Identifier: Apache-2.0
// Moves bytes at the time at which work executes. Addresses are resolved here and not before. Called without the
// driver's lock.
#pragma once

#include <functional>

#include "driver.h"

namespace simgpu {

// Copies bytes. ILLEGAL_ADDRESS if the context's card cannot reach a part of either side at this moment. `source_by`
// and `target_by` differ for copies between cards.
CUresult transfer(const Context& target_by, std::uint64_t target, const Context& source_by, std::uint64_t source,
                  std::uint64_t size);

// Size of the pieces in which a transfer takes its link: processes share the link, and a process that dies leaves it
// soon.
inline constexpr std::uint64_t link_piece = 16 << 20;
// Books the time that the bytes take on the card's link, after the time that others have booked. Returns the arrival
// time (now_ns), or 0 on an unlimited link. NVML shows the `counted` bytes as traffic of the link.
std::uint64_t book_link(unsigned device, bool outward, std::uint64_t size, bool counted = true);

// Fills memory. `unit` is 1, 2 or 4 bytes of `value`.
CUresult fill_memory(const Context& by, std::uint64_t target, std::uint32_t value, unsigned unit, std::uint64_t size);

// Resolves [address, address + size) for the context.
CUresult look_up(const Context& by, std::uint64_t address, std::uint64_t size, bool write,
                 std::vector<Segment>& segments);

// Visits the bytes in order. `data` is null for uniform pieces; else it has piece.size bytes. `at` counts from 0. A
// uniform piece's pattern is rotated so that its byte i is pattern[(at + i) % 16].
using Visit = std::function<void(std::uint64_t at, const Piece& piece, const std::uint8_t* data)>;
void walk(const std::vector<Segment>& segments, const Visit& visit);

// Writes at the offset `at` of the resolved range.
void put(const std::vector<Segment>& segments, std::uint64_t at, const std::uint8_t* data, std::uint64_t size);
void put_pattern(const std::vector<Segment>& segments, const Pattern& pattern);

}  // namespace simgpu
