// SPDX-License-Identifier: Apache-2.0
#include "meter/deltas.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace sublet::meter {

void Cell::add(const Cell& other) {
  for (const auto field : {&Cell::leased, &Cell::paused, &Cell::used, &Cell::used_ms, &Cell::busy, &Cell::busy_ms,
                           &Cell::judged, &Cell::idle, &Cell::idle_waited, &Cell::waited_ms, &Cell::parked,
                           &Cell::moved, &Cell::pauses_caused, &Cell::pauses_suffered})
    this->*field += other.*field;
  peak = std::max(peak, other.peak);
}

void DeviceCell::add(const DeviceCell& other) {
  for (const auto field :
       {&DeviceCell::leased, &DeviceCell::used, &DeviceCell::used_ms, &DeviceCell::busy, &DeviceCell::busy_ms})
    this->*field += other.*field;
  total = std::max(total, other.total);
}

// Programs may say any numbers.
void Work::add(const Work& other) {
  constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  for (const auto field :
       {&Work::launches, &Work::copied, &Work::allocated, &Work::errors, &Work::charged_us, &Work::waited_us})
    this->*field = this->*field > largest - other.*field ? largest : this->*field + other.*field;
}

void Deltas::add(Deltas later) {
  for (const auto& [key, cell] : later.cells) cells[key].add(cell);
  for (const auto& [key, cell] : later.devices) devices[key].add(cell);
  for (const auto& [key, bytes] : later.checkpoints) checkpoints[key] += bytes;
  for (const auto& [key, more] : later.work) work[key].add(more);
  for (const auto& [slot, ms] : later.waiting) waiting[slot] += ms;
  for (const auto& [key, ms] : later.pairs) pairs[key] += ms;
  const auto append = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  append(waits, later.waits);
  append(leases, later.leases);
  append(gaps, later.gaps);
}

std::size_t Deltas::size() const {
  return cells.size() + devices.size() + checkpoints.size() + work.size() + waiting.size() + pairs.size() +
         waits.size() + leases.size() + gaps.size();
}

}  // namespace sublet::meter
