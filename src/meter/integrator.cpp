// SPDX-License-Identifier: Apache-2.0
#include "meter/integrator.h"

#include <algorithm>
#include <array>
#include <utility>

namespace sublet::meter {

using core::LeaseState;
using nlohmann::json;

namespace {

constexpr std::size_t most_pairs = 200;  // of waiters and holders in a minute

constexpr Ms long_break = 24 * hour;
constexpr Ms most_slots = 100'000;  // of all leases, in a long break
constexpr std::array<Ms, 5> steps{minute, 5 * minute, 15 * minute, 30 * minute, hour};
constexpr Ms longest_break = 60 * 24 * hour;

Ms slot_of(Ms at) { return at - at % minute; }

bool reserves_size(LeaseState state) {
  return state == LeaseState::offered || state == LeaseState::active || state == LeaseState::pausing ||
         state == LeaseState::resuming;
}

bool is_parked(LeaseState state) { return state == LeaseState::paused || state == LeaseState::poisoned; }

}  // namespace

bool Integrator::Live::holds() const { return reserves_size(row.state); }

// -------------------------------------------------------------------------------- time

// Integrates what is known of the machine as a whole. `at` is not behind the end of the minute.
void Integrator::pass(Ms at) {
  const Ms passed = at - now_, slot = slot_of(now_);
  if (passed <= 0) return;
  if (waiting_ > 0) {
    waited_ms_ += passed;
    deltas_.waiting[slot] += waiting_ * passed;
  }
  for (const auto& [device, bytes] : leased_)
    if (bytes > 0) deltas_.devices[{slot, device}].leased += bytes * passed;
  if (has_reading_) {
    for (const auto& [uuid, device] : reading_.devices) {
      DeviceCell& cell = deltas_.devices[{slot, uuid}];
      cell.total = device.total;
      cell.used += device.used * passed;
      cell.used_ms += passed;
      if (device.busy_percent) {
        cell.busy += *device.busy_percent * passed;
        cell.busy_ms += passed;
      }
    }
  }
  now_ = at;
}

// Time between two integrations of all leases. After a break of more than a day with many leases it is longer than a
// minute, and the first minute of each step gets the amounts.
Ms Integrator::step_to(Ms at) const {
  const Ms passed = at - now_;
  if (passed <= long_break) return minute;
  const auto leases = static_cast<Ms>(live_.size()) + 1;
  return *std::ranges::find_if(steps, [&](Ms step) { return passed / step * leases <= most_slots || step == hour; });
}

// At the end of each minute, all leases are integrated, so that no interval spans two minutes. A very long break is a
// jump of the clock.
void Integrator::advance(Ms at) {
  if (at - now_ > longest_break) skip(at);
  const Ms step = step_to(at);
  for (Ms end = now_ - now_ % step + step; end <= at; end += step) {
    pass(end);
    settle_all(end);
  }
  pass(at);
}

// The time until `at` is not counted for anybody.
void Integrator::skip(Ms at) {
  settle_all(now_);
  add_gap({now_, at, "leased", "the clock jumped, or the daemon did not run for long"});
  for (auto& [id, live] : live_) live.since = at;
  blame_.skip(at);
  now_ = at;
}

void Integrator::settle_all(Ms at) {
  for (auto& [id, live] : live_) settle(live, at);
  add_pairs(slot_of(std::max<Ms>(at - 1, 0)), blame_.take(at));
}

// If there are very many pairs, only users and tenants are told apart.
void Integrator::add_pairs(Ms slot, const Blame::Pairs& pairs) {
  const bool many = pairs.size() > most_pairs;
  const auto shown = [many](const Account& account) {
    return many && account != Account{} ? Account{account.user, account.tenant, "(many)"} : account;
  };
  for (const auto& [pair, ms] : pairs) deltas_.pairs[{slot, shown(pair.first), shown(pair.second)}] += ms;
}

void Integrator::settle_lease_devices(Live& live, Ms passed, Ms waited, Ms slot) {
  for (const std::string& device : live.devices) {
    Cell& its = cell(live.row.lease, device, slot);
    its.leased += live.vram * passed;
    live.row.leased += static_cast<double>(live.vram) * static_cast<double>(passed);
    live.row.held += passed;
    const auto use = has_reading_ ? reading_.uses.find({device, live.row.lease.number}) : reading_.uses.end();
    if (!has_reading_ || use == reading_.uses.end()) continue;
    its.used += use->second.used * passed;
    its.used_ms += passed;
    its.peak = std::max(its.peak, use->second.used);
    if (!use->second.busy_percent) continue;
    its.busy += *use->second.busy_percent * passed;
    its.busy_ms += passed;
    its.judged += live.vram * passed;
    if (*use->second.busy_percent > 0) continue;
    its.idle += live.vram * passed;
    its.idle_waited += live.vram * waited;
  }
  settle_strays(live, passed, slot);
}

// Memory on devices that it has not leased is held as much as leased memory: nobody else can have it.
void Integrator::settle_strays(Live& live, Ms passed, Ms slot) {
  if (!has_reading_) return;
  for (const auto& [device, used] : reading_.strays) {
    const auto its = used.find(live.row.lease.number);
    if (its == used.end()) continue;
    Cell& there = cell(live.row.lease, device, slot);
    there.leased += its->second * passed;
    live.row.leased += static_cast<double>(its->second) * static_cast<double>(passed);
    there.used += its->second * passed;
    there.used_ms += passed;
    there.peak = std::max(there.peak, its->second);
  }
}

void Integrator::settle(Live& live, Ms at) {
  const Ms passed = at - live.since, slot = slot_of(live.since);
  const Ms waited = waited_ms_ - std::exchange(live.waited_at, waited_ms_);
  live.since = std::max(live.since, at);
  if (passed <= 0) return;
  changed_.insert(live.row.lease);
  if (live.holds()) return settle_lease_devices(live, passed, waited, slot);
  if (is_parked(live.row.state)) {
    for (const std::string& device : live.devices) cell(live.row.lease, device, slot).paused += live.vram * passed;
    live.row.paused +=
        static_cast<double>(live.vram) * static_cast<double>(live.devices.size()) * static_cast<double>(passed);
    if (live.parked_bytes > 0) cell(live.row.lease, {}, slot).parked += live.parked_bytes * passed;
  } else if (live.held_back) {
    live.held_back_ms += passed;
  } else if (live.waits()) {
    cell(live.row.lease, {}, slot).waited_ms += passed;
  }
}

// -------------------------------------------------------------------------------- leases

// Counts what the lease holds or waits for (+1), or no longer does (-1).
void Integrator::count(const Live& live, int sign, Ms at) {
  if (live.waits()) {
    waiting_ += sign;
    blame_.wait(live.row.account, sign, at);
  } else if (live.holds()) {
    for (const std::string& device : live.devices) leased_[device] += sign * live.vram;
    blame_.hold(live.row.account, sign * live.vram * static_cast<std::int64_t>(live.devices.size()), at);
  }
}

void Integrator::end_wait(const Live& live, bool granted, Ms at) {
  const auto devices = static_cast<std::int64_t>(std::max<std::size_t>(live.devices.size(), 1));
  const Ms waited = at - live.row.created - live.held_back_ms;
  deltas_.waits.push_back({at, live.row.lease, live.row.account, live.row.wanted * devices, waited, granted});
}

void Integrator::begin_pause(Live& live, const LeaseFact& fact) {
  ++cell(live.row.lease, {}, slot_of(now_)).pauses_suffered;
  if (fact.preemptor) ++cell(fact.preemptor, {}, slot_of(now_)).pauses_caused;
}

void Integrator::enter(const LeaseFact& fact) {
  Live live;
  live.row.lease = fact.lease;
  live.row.account = fact.account;
  live.row.created = live.since = now_;
  live.waited_at = waited_ms_;
  live.row.wanted = fact.vram;
  live.row.state = LeaseState::ended;  // it neither waits nor holds, until change() says more
  live_.emplace(fact.lease, std::move(live));
}

void Integrator::take(const LeaseFact& fact) {
  advance(std::max(fact.at, now_));
  auto found = live_.find(fact.lease);
  if (found == live_.end()) {
    if (fact.state == LeaseState::ended) return;  // it was counted when it ended
    enter(fact);
    found = live_.find(fact.lease);
  }
  change(found->second, fact);
  if (fact.state == LeaseState::ended) leave(found);
}

void Integrator::adopt(const Living& living) {
  advance(std::max(living.fact.at, now_));
  if (live_.contains(living.fact.lease)) return;
  enter(living.fact);
  Live& live = live_.at(living.fact.lease);
  live.row.created = std::min(living.created, now_);
  live.row.granted = living.granted;  // its wait is not known
  change(live, living.fact);
}

void Integrator::change(Live& live, const LeaseFact& fact) {
  settle(live, now_);
  count(live, -1, now_);
  const LeaseState before = live.row.state;
  const std::string session = std::exchange(live.row.account.session, {});
  live.row.account = fact.account;
  if (live.row.account.session.empty()) live.row.account.session = session;
  live.row.state = fact.state;
  live.held_back = fact.held_back && fact.state == LeaseState::queued;
  live.vram = fact.vram;
  live.devices = fact.devices;
  const bool granted = fact.state != LeaseState::queued && fact.state != LeaseState::ended;
  if (granted && !live.row.granted) {
    live.row.granted = now_;
    end_wait(live, true, now_);
  }
  if (fact.state == LeaseState::pausing && before != LeaseState::pausing && before != LeaseState::paused)
    begin_pause(live, fact);
  if (fact.parked_bytes && is_parked(fact.state)) {
    live.parked_bytes = *fact.parked_bytes;
    cell(live.row.lease, {}, slot_of(now_)).moved += *fact.parked_bytes;
  }
  if (!is_parked(fact.state)) live.parked_bytes = 0;
  count(live, +1, now_);
  changed_.insert(fact.lease);
  if (fact.state != LeaseState::ended) return;
  live.row.ended = now_;
  live.row.end_reason = core::to_string(fact.end_reason);
  if (!live.row.granted) end_wait(live, false, now_);
}

void Integrator::leave(std::map<LeaseId, Live>::iterator lease) {
  deltas_.leases.push_back(lease->second.row);
  changed_.erase(lease->first);
  live_.erase(lease);
}

void Integrator::take(const SessionFact& fact) {
  advance(std::max(fact.at, now_));
  if (fact.checkpoint_bytes) deltas_.checkpoints[{slot_of(now_), fact.lease.number}] += *fact.checkpoint_bytes;
  const auto found = live_.find(fact.lease);
  if (found == live_.end() || found->second.row.account.session == fact.session) return;
  Live& live = found->second;
  settle(live, now_);
  count(live, -1, now_);
  live.row.account.session = fact.session;
  count(live, +1, now_);
  changed_.insert(fact.lease);
}

// -------------------------------------------------------------------------------- readings

void Integrator::take(const Reading& reading) {
  advance(std::max(reading.at, now_));
  for (auto& [id, live] : live_) settle(live, now_);
  reading_ = reading;
  has_reading_ = true;
  for (const auto& [key, use] : reading.uses) {
    const auto found = live_.find(LeaseId{key.second});
    if (found != live_.end()) found->second.row.peak = std::max(found->second.row.peak, use.used);
  }
}

void Integrator::forget_reading(Ms at) {
  advance(std::max(at, now_));
  for (auto& [id, live] : live_) settle(live, now_);
  has_reading_ = false;
}

void Integrator::lose_events(Ms from, Ms at, const std::string& why) {
  advance(std::max(from, now_));
  settle_all(now_);
  for (auto& [id, live] : live_) {
    live.row.ended = now_;  // as far as it is known; a lease that lives on is adopted later
    live.row.end_reason = "unknown";
    deltas_.leases.push_back(live.row);
  }
  live_.clear();
  changed_.clear();
  leased_.clear();
  waiting_ = 0;
  blame_ = Blame();
  has_reading_ = false;
  now_ = std::max(at, now_);
  add_gap({from, now_, "leased", why});
}

// -------------------------------------------------------------------------------- flush

Deltas Integrator::flush(Ms at) {
  advance(std::max(at, now_));
  for (auto& [id, live] : live_) settle(live, now_);
  add_pairs(slot_of(now_), blame_.take(now_));
  for (const LeaseId id : std::exchange(changed_, {}))
    if (const auto found = live_.find(id); found != live_.end()) deltas_.leases.push_back(found->second.row);
  return std::exchange(deltas_, {});
}

json Integrator::write() const {
  json leases = json::array();
  for (const auto& [id, live] : live_) {
    const LeaseRow& row = live.row;
    leases.push_back({{"lease", id.number},
                      {"account", {row.account.user, row.account.tenant, row.account.consumer, row.account.session}},
                      {"created", row.created},
                      {"granted", row.granted ? json(*row.granted) : json(nullptr)},
                      {"state", core::to_string(row.state)},
                      {"wanted", row.wanted},
                      {"leased", row.leased},
                      {"paused", row.paused},
                      {"held", row.held},
                      {"peak", row.peak},
                      {"vram", live.vram},
                      {"devices", live.devices},
                      {"parked_bytes", live.parked_bytes}});
  }
  return {{"now", now_}, {"leases", std::move(leases)}};
}

Result<Integrator> Integrator::read(const json& from) {
  try {
    Integrator made(from.at("now").get<Ms>());
    for (const json& one : from.at("leases")) {
      Live live;
      LeaseRow& row = live.row;
      row.lease = LeaseId{one.at("lease").get<std::uint64_t>()};
      const json& account = one.at("account");
      row.account = {account.at(0).get<std::string>(), account.at(1).get<std::string>(),
                     account.at(2).get<std::string>(), account.at(3).get<std::string>()};
      row.created = one.at("created").get<Ms>();
      if (!one.at("granted").is_null()) row.granted = one.at("granted").get<Ms>();
      const auto state = core::parse_lease_state(one.at("state").get<std::string>());
      if (!state) return unavailable("the meter's state has a lease with an unknown state", {});
      row.state = *state;
      one.at("wanted").get_to(row.wanted);
      one.at("leased").get_to(row.leased);
      one.at("paused").get_to(row.paused);
      one.at("held").get_to(row.held);
      one.at("peak").get_to(row.peak);
      one.at("vram").get_to(live.vram);
      one.at("devices").get_to(live.devices);
      one.at("parked_bytes").get_to(live.parked_bytes);
      live.since = made.now_;
      made.count(live, +1, made.now_);
      made.live_.emplace(row.lease, std::move(live));
    }
    return made;
  } catch (const json::exception& wrong) {
    return unavailable(std::string("the meter's state cannot be read: ") + wrong.what(), {});
  }
}

}  // namespace sublet::meter
