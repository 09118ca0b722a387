// SPDX-License-Identifier: Apache-2.0
#include "transfer.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "memory.h"
#include "work.h"

namespace simgpu {
namespace {

// Shorter waits are added to the next wait: the next transfer begins that much later.
constexpr std::uint64_t owed_ns = 100'000;

enum class Way { in_host, to_card, to_host, in_card, between_cards };

Way way_of(const Segment& target, const Segment& source) {
  if (target.host) return source.host ? Way::in_host : Way::to_host;
  if (source.host) return Way::to_card;
  return target.device == source.device ? Way::in_card : Way::between_cards;
}

std::uint64_t link_bandwidth(unsigned device) {
  auto& table = *driver().table;
  if (const auto slow = table.meet(FaultKind::bandwidth, static_cast<int>(device)); slow && slow->argument != 0)
    return slow->argument;
  return table.get(Setting::link_bandwidth);
}

std::uint64_t time_of(std::uint64_t size, std::uint64_t rate) {
  return static_cast<std::uint64_t>(static_cast<double>(size) * 1e9 / static_cast<double>(rate));
}

// Books the time that the bytes take; returns the arrival time.
std::uint64_t book(Way way, const Segment& target, const Segment& source, std::uint64_t size) {
  if (way == Way::in_host) return 0;
  if (way == Way::in_card) {
    auto& table = *driver().table;
    const std::uint64_t rate = table.get(Setting::memory_bandwidth);
    return rate == 0 ? 0 : take_time(table.device(target.device).memory_busy_until, time_of(size, rate));
  }
  return book_link(way == Way::to_host ? source.device : target.device, way == Way::to_host, size,
                   way != Way::between_cards);
}

void copy_piecewise(const Segment& target, const Segment& source) {
  std::array<std::uint8_t, content_page> buffer;
  for (std::uint64_t at = 0; at < source.size;) {
    const Piece piece = source.physical->next(source.offset + at, source.size - at, buffer.data());
    if (!target.host) {
      if (piece.uniform)
        target.physical->fill(target.offset + at, piece.size,
                              turned(piece.pattern, source.offset + at, target.offset + at));
      else target.physical->write(target.offset + at, buffer.data(), piece.size);
    } else if (piece.uniform) {
      spread(target.host + at, source.offset + at, piece.size, piece.pattern);
    } else {
      std::memcpy(target.host + at, buffer.data(), piece.size);
    }
    at += piece.size;
  }
}

void copy_segment(const Segment& target, const Segment& source) {
  if (source.host && target.host) std::memmove(target.host, source.host, source.size);
  else if (source.host) target.physical->write(target.offset, source.host, source.size);
  else copy_piecewise(target, source);
}

Segment part_of(const Segment& segment, std::uint64_t from, std::uint64_t size) {
  Segment part = segment;
  part.offset += from;
  if (part.host) part.host += from;
  part.size = size;
  return part;
}

}  // namespace

std::uint64_t book_link(unsigned device, bool outward, std::uint64_t size, bool counted) {
  auto& table = *driver().table;
  auto& card = table.device(device);
  if (counted) card.link_bytes[outward ? 1 : 0].fetch_add(size);
  const std::uint64_t rate = link_bandwidth(device);
  if (rate == 0) return 0;
  const bool own_way = outward && table.get(Setting::copy_engines) == 2;
  return take_time(card.link_busy_until[own_way ? 1 : 0], time_of(size, rate));
}

CUresult look_up(const Context& by, std::uint64_t address, std::uint64_t size, bool write,
                 std::vector<Segment>& segments) {
  const Lock lock(driver_mutex());
  return resolve(address, size, write, by, segments) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

CUresult transfer(const Context& target_by, std::uint64_t target, const Context& source_by, std::uint64_t source,
                  std::uint64_t size) {
  std::vector<Segment> to, from;
  if (const CUresult result = look_up(target_by, target, size, true, to); result != CUDA_SUCCESS) return result;
  if (const CUresult result = look_up(source_by, source, size, false, from); result != CUDA_SUCCESS) return result;
  const int device = static_cast<int>(target_by.device);
  if (driver().table->meet(FaultKind::copy_fail, device)) return CUDA_ERROR_UNKNOWN;
  if (driver().table->meet(FaultKind::ecc, device)) return CUDA_ERROR_ECC_UNCORRECTABLE;
  std::size_t t = 0, f = 0;
  for (std::uint64_t done_t = 0, done_f = 0; t < to.size() && f < from.size();) {
    const std::uint64_t part = std::min({to[t].size - done_t, from[f].size - done_f, link_piece});
    const Segment a = part_of(to[t], done_t, part), b = part_of(from[f], done_f, part);
    const std::uint64_t arrived = book(way_of(a, b), a, b, part);
    copy_segment(a, b);
    if (arrived > now_ns() + owed_ns) sleep_until_ns(arrived);
    if ((done_t += part) == to[t].size) ++t, done_t = 0;
    if ((done_f += part) == from[f].size) ++f, done_f = 0;
  }
  return CUDA_SUCCESS;
}

CUresult fill_memory(const Context& by, std::uint64_t target, std::uint32_t value, unsigned unit, std::uint64_t size) {
  std::vector<Segment> to;
  if (const CUresult result = look_up(by, target, size, true, to); result != CUDA_SUCCESS) return result;
  put_pattern(to, repeated(value, unit, 0));
  return CUDA_SUCCESS;
}

void put_pattern(const std::vector<Segment>& segments, const Pattern& pattern) {
  std::uint64_t at = 0;
  for (const auto& segment : segments) {
    if (segment.host) spread(segment.host, at, segment.size, pattern);
    else segment.physical->fill(segment.offset, segment.size, turned(pattern, at, segment.offset));
    at += segment.size;
  }
}

void put(const std::vector<Segment>& segments, std::uint64_t at, const std::uint8_t* data, std::uint64_t size) {
  for (const auto& segment : segments) {
    if (at >= segment.size) {
      at -= segment.size;
      continue;
    }
    const std::uint64_t part = std::min(size, segment.size - at);
    if (segment.host) std::memcpy(segment.host + at, data, part);
    else segment.physical->write(segment.offset + at, data, part);
    data += part, size -= part, at = 0;
    if (size == 0) return;
  }
}

void walk(const std::vector<Segment>& segments, const Visit& visit) {
  std::array<std::uint8_t, content_page> buffer;
  std::uint64_t begin = 0;
  for (const auto& segment : segments) {
    for (std::uint64_t at = 0; at < segment.size;) {
      if (segment.host) {
        Piece piece;
        piece.uniform = false;
        piece.size = segment.size - at;
        visit(begin + at, piece, segment.host + at);
        at += piece.size;
        continue;
      }
      Piece piece = segment.physical->next(segment.offset + at, segment.size - at, buffer.data());
      if (piece.uniform) piece.pattern = turned(piece.pattern, segment.offset + at, begin + at);
      visit(begin + at, piece, piece.uniform ? nullptr : buffer.data());
      at += piece.size;
    }
    begin += segment.size;
  }
}

}  // namespace simgpu
