// SPDX-License-Identifier: Apache-2.0
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <climits>
#include <ctime>

#include "table.h"

namespace simgpu {

using namespace layout;

namespace {

// The kernel compares 32 bits: the low half of a word, which a counter changes with every step.
static_assert(std::endian::native == std::endian::little);

long futex(Word& word, int operation, std::uint32_t value, const timespec* timeout) {
  return ::syscall(SYS_futex, static_cast<void*>(&word), operation, value, timeout, nullptr, 0);
}

void ring(Word& bell) {
  bell.fetch_add(1);
  futex(bell, FUTEX_WAKE, INT_MAX, nullptr);
}

// Waits until the bell has rung since `seen`. Callers also check from time to time whether the other side lives.
void wait_for(Word& bell, std::uint64_t seen, bool forever) {
  constexpr timespec look_again{0, 20'000'000};
  futex(bell, FUTEX_WAIT, static_cast<std::uint32_t>(seen), forever ? nullptr : &look_again);
}

constexpr unsigned operation_bits = 8;
constexpr std::uint64_t number_of(std::uint64_t request) { return request >> operation_bits; }

}  // namespace

std::optional<unsigned> Table::served_slot(std::uint32_t pid) const {
  const unsigned slots = std::min<std::uint64_t>(map_->process_slots.load(), max_processes);
  for (unsigned i = 0; i < slots; ++i) {
    const auto& slot = map_->process[i];
    const std::uint64_t owner = slot.owner.load();
    if ((owner & ~owner_identity_mask) == owner_ready && owner_pid(owner) == pid && slot.control.thread != 0 &&
        slot_alive(i, owner))
      return i;
  }
  return std::nullopt;
}

// A caller that died while its request was in progress keeps its place until the answer: no other caller then waits for
// that answer.
bool Table::claim(unsigned slot, std::uint64_t owner, std::uint64_t caller) {
  auto& control = map_->process[slot].control;
  std::uint64_t holder = 0;
  if (control.caller.compare_exchange_strong(holder, caller)) return true;
  if (holder == caller || identity_alive(holder & owner_identity_mask)) return false;
  const bool answered = number_of(control.request.load()) == control.answered.load();
  return answered && map_->process[slot].owner.load() == owner &&
         control.caller.compare_exchange_strong(holder, caller);
}

ControlAnswer Table::ask(std::uint32_t pid, const Process& caller, const ControlRequest& request, bool patient) {
  using Kind = ControlAnswer::Kind;
  const auto slot = served_slot(pid);
  if (!slot) return {Kind::nobody, 0, 0};
  auto& control = map_->process[*slot].control;
  const std::uint64_t owner = map_->process[*slot].owner.load();
  const auto gone = [&] { return map_->process[*slot].owner.load() != owner || !slot_alive(*slot, owner); };
  while (!claim(*slot, owner, caller.owner_)) {
    if (!patient) return {Kind::busy, 0, 0};
    if (gone()) return {Kind::ended, 0, 0};
    wait_for(control.chime, control.chime.load(), false);
  }
  control.target = owner;
  control.argument = request.argument;
  control.devices = request.devices;
  const std::uint64_t number = number_of(control.request.load()) + 1;
  control.request = number << operation_bits | static_cast<unsigned>(request.operation);
  ring(control.bell);
  ControlAnswer answer{Kind::ended, 0, 0};
  for (;;) {
    const std::uint64_t seen = control.chime.load();
    if (control.answered.load() == number && !gone()) {
      answer = {Kind::answered, static_cast<int>(control.result.load()), control.value.load()};
      break;
    }
    if (gone()) break;
    wait_for(control.chime, seen, false);
  }
  std::uint64_t mine = caller.owner_;
  control.caller.compare_exchange_strong(mine, 0);
  ring(control.chime);
  return answer;
}

void Process::serve(std::uint32_t thread_id) { mine().control.thread = thread_id; }

ControlRequest Process::next_request() {
  auto& control = mine().control;
  for (;;) {
    const std::uint64_t seen = control.bell.load();
    const std::uint64_t posted = control.request.load();
    if (number_of(posted) != control.answered.load()) {
      const ControlRequest request{static_cast<ControlOperation>(posted & ((1U << operation_bits) - 1)),
                                   control.argument.load(), control.devices.load(), number_of(posted)};
      if (control.target.load() == owner_) return request;
      // A request for the process that had this slot before.
      answer(request, 0, 0);
      continue;
    }
    wait_for(control.bell, seen, true);
  }
}

void Process::answer(const ControlRequest& request, int result, std::uint64_t value) {
  auto& control = mine().control;
  control.result = static_cast<std::uint64_t>(result);
  control.value = value;
  control.answered = request.number;
  ring(control.chime);
}

void Process::publish(ControlState state) { mine().control.state = static_cast<std::uint64_t>(state); }

}  // namespace simgpu
