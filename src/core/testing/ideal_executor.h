// SPDX-License-Identifier: Apache-2.0
// Helper for tests with preemption: one card whose programs obey their orders.
#pragma once

#include "core/testing/world.h"

#include <algorithm>
#include <map>
#include <set>

namespace sublet::core::testing {

// Cards of 24 GiB whose programs obey: they yield on a pause order, and resume on a resume order.
struct Card : World {
  std::map<LeaseId, std::pair<int, Bytes>> programs;  // pid and used bytes
  std::set<LeaseId> yielded;
  std::set<LeaseId> refusing;  // programs that refuse to yield
  std::size_t obeyed = 0;      // number of `actions` that were carried out
  int next_pid = 100;
  unsigned cards = 1;

  Card() { measure(); }

  Lease want(Bytes vram, Tier tier, std::string consumer = "train") {
    Lease lease = wish(vram, std::move(consumer));
    lease.tier = tier;
    lease.owner.kind = OwnerKind::connection;
    return lease;
  }
  LeaseId start(Bytes vram, Tier tier, std::string consumer = "train") {
    const LeaseId id = submit(want(vram, tier, std::move(consumer)), true);
    if (state_of(id) == LeaseState::active) attach(id);
    return id;
  }
  LeaseId queue(Bytes vram, Tier tier, std::string consumer = "train") {
    return submit(want(vram, tier, std::move(consumer)), true);
  }
  // A running lease that cannot be paused.
  LeaseId pinned(Bytes vram, Tier tier, std::string consumer) {
    Lease lease = want(vram, tier, std::move(consumer));
    lease.pausable = Pausable::no;
    const LeaseId id = submit(lease, true);
    attach(id);
    return id;
  }
  // A running lease of another user.
  LeaseId theirs(std::uint32_t uid, Bytes vram, Tier tier, std::string consumer) {
    Lease lease = want(vram, tier, std::move(consumer));
    lease.uid = uid;
    const LeaseId id = submit(lease, true);
    attach(id);
    return id;
  }
  // A lease whose program has allocated so much when it is attached.
  LeaseId imports(Bytes vram, Tier tier, Bytes used = {}) {
    const LeaseId id = queue(vram, tier, "imports");
    step(Attach{id, 0, kept_process(50), true, {}});
    if (used > Bytes{}) programs[id] = {50, used};
    measure();
    return id;
  }
  void attach(LeaseId id) {
    const int pid = next_pid += 2;
    step(Attach{id, 0, kept_process(pid), true, {}});
    programs[id] = {pid, at(id).vram};
    measure();
  }
  void measure() {
    now = now + 20ms;
    std::vector<DeviceReading> readings;
    for (unsigned card = 0; card < cards; ++card) {
      std::vector<ProcessUse> processes;
      for (const auto& [id, program] : programs)
        if (!yielded.contains(id) && on(id, uuid_of(card)))
          processes.push_back(uses(program.first, program.second, id));
      readings.push_back(gpu(card, 24 * GiB, std::move(processes)));
    }
    snapshot(std::move(readings));
  }
  bool on(LeaseId id, const std::string& uuid) const {
    const Lease* lease = find(state, id);
    if (lease == nullptr) return uuid == uuid_of(0);  // an unleased process
    return std::find(lease->devices.begin(), lease->devices.end(), uuid) != lease->devices.end();
  }
  // Carries out all orders, at the speed of 2 GiB/s, until there are no more.
  void obey(int orders = 200) {
    for (int order = 0; order < orders && obeyed < actions.size(); ++order) {
      const Action action = actions[obeyed++];
      if (const auto* park = std::get_if<Park>(&action)) {
        now = now + moving(park->lease);
        if (park->method == PauseMethod::cooperative && refusing.contains(park->lease)) {
          step(AttemptEvent{park->lease, Parked{false, "it refuses"}});
          measure();
          continue;
        }
        yielded.insert(park->lease);
        step(AttemptEvent{park->lease, Parked{true, {}, programs.at(park->lease).second}});
        measure();
        measure();
      }
      if (const auto* unpark = std::get_if<Unpark>(&action)) {
        now = now + moving(unpark->lease);
        yielded.erase(unpark->lease);
        step(AttemptEvent{unpark->lease, Unparked{Unparked::How::runs, {}, ram}});
        measure();
      }
    }
  }
  Duration moving(LeaseId id) const { return 1s * (programs.at(id).second.count / GiB.count) / 2; }
  void quit(LeaseId id) {
    programs.erase(id);
    step(ProgramEnded{id, 0, false});
    measure();
    obey();
  }
  // Lets time pass as in the daemon, and carries out the orders meanwhile.
  void live(Duration d) {
    const Time until = now + d;
    while (now < until) {
      now = std::max(now, std::min({until, now + 1s, std::max(last.wake_at, now + 1ms)}));
      step(Tick{});
      measure();
      obey();
    }
  }
};

}  // namespace sublet::core::testing
