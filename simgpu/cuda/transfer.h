// SPDX-License-Identifier: Apache-2.0
// Moving bytes at the time work executes: addresses are resolved here and not before. Called without the
// driver's lock.
#pragma once

#include <functional>

#include "driver.h"

namespace simgpu {

// ILLEGAL_ADDRESS when part of either side is not there for the context's card at this moment. `source_by`
// and `target_by` differ for copies between cards.
CUresult transfer(const Context& target_by, std::uint64_t target, const Context& source_by, std::uint64_t source,
                  std::uint64_t size);

// A transfer takes its link piece by piece, so that processes share it, and so that one that dies leaves it
// soon.
inline constexpr std::uint64_t link_piece = 16 << 20;
// Books the time that the bytes take on the card's link, after what others have booked; returns when they have
// arrived (now_ns), 0 on an unlimited link. `counted` are those that NVML shows as the link's traffic.
std::uint64_t book_link(unsigned device, bool outward, std::uint64_t size, bool counted = true);

// `unit` is 1, 2 or 4 bytes of `value`.
CUresult fill_memory(const Context& by, std::uint64_t target, std::uint32_t value, unsigned unit, std::uint64_t size);

// Resolves [address, address + size) for the context.
CUresult look_up(const Context& by, std::uint64_t address, std::uint64_t size, bool write,
                 std::vector<Segment>& segments);

// Walks the bytes in order. `data` is null for uniform pieces; else it has piece.size bytes. `at` counts from
// 0, and a uniform piece's pattern is turned so that its byte i is pattern[(at + i) % 16].
using Visit = std::function<void(std::uint64_t at, const Piece& piece, const std::uint8_t* data)>;
void walk(const std::vector<Segment>& segments, const Visit& visit);

// Writes at the offset `at` of the resolved range.
void put(const std::vector<Segment>& segments, std::uint64_t at, const std::uint8_t* data, std::uint64_t size);
void put_pattern(const std::vector<Segment>& segments, const Pattern& pattern);

}  // namespace simgpu
