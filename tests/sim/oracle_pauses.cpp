// SPDX-License-Identifier: Apache-2.0
// Checks of pauses: which lease may be a victim, by which method, and what proves that it holds nothing more.
#include "oracle.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::sim {

using core::LeaseState;

// Another lease waits for memory on a device of the victim: of its tier or above, or by a user's request. Where nothing
// is automatic only a request counts.
void Oracle::check_displaced(const Lease& lease) {
  const bool entitled = std::ranges::any_of(leases_, [&](const auto& entry) {
    const auto& [id, other] = entry;
    if (id == lease.id || !waits(other)) return false;
    const bool may = requested_.contains(id) || (config_.rules.automatic && other.tier >= lease.tier);
    if (other.queues())
      return may && std::ranges::any_of(lease.devices, [&](const std::string& uuid) { return may_be_on(other, uuid); });
    return may && std::ranges::any_of(other.devices, [&](const std::string& uuid) { return is_on(lease, uuid); });
  });
  verdict_.expect(entitled, "displaced-for-nobody", [&] {
    return fmt::format("{} ({}) is a victim, and no lease that is entitled to its memory waits", to_string(lease.id),
                       core::to_string(lease.tier));
  });
}

// Checks a pause order: method and consent.
void Oracle::check_method(const Lease* before, const Lease& lease) {
  using P = core::Pausable;
  const auto says = [&lease](const char* what) {
    return [&lease, what] { return fmt::format("{} is asked to yield: {}", to_string(lease.id), what); };
  };
  const bool by_driver = lease.parking->method == core::PauseMethod::driver;
  verdict_.expect(lease.pausable != P::no, "pinned-and-paused", says("its owner pinned it"));
  verdict_.expect(lease.pausable == P::automatic || lease.pausable == (by_driver ? P::driver : P::cooperative),
                  "method-not-allowed", says("its owner allows another method"));
  const bool agreed = lease.owner.keeper || core::is_granted(engine_->state(), lease.whose());
  const bool first = before == nullptr || before->state == LeaseState::active;
  verdict_.expect(!first || !by_driver || agreed, "parked-without-leave", says("its owner did not agree to that"));
  const bool idle = lease.parking->cause.kind == core::PauseCauseKind::idle;  // it comes back as its owner wants
  verdict_.expect(idle || lease.parking->resume_requested || !wanted_back_.contains(lease.id), "resume-lost",
                  says("its owner wants it back, and nobody else needs its memory"));
}

// True if another lease there came, went or moved since the pause order of this one.
bool Oracle::others_move(const Lease& lease, const std::string& device) const {
  return std::any_of(leases_.begin(), leases_.end(), [&](const auto& entry) {
    const Lease& other = entry.second;
    if (other.id == lease.id || !is_on(other, device)) return false;
    const Time since = std::max(other.granted_at.value_or(Time{}), other.resumed_at.value_or(Time{}));
    return other.parking || other.ended() || since >= lease.parking->since;
  });
}

// A lease counts as paused once a reading shows that it holds no more than its residue on each of its devices.
// The ledger counts at least what is really parked.
void Oracle::check_yielded(const Lease& lease) {
  Bytes parked;
  for (const std::string& uuid : lease.devices) parked += world_.parked_by(lease.id, *world_.card_of(uuid));
  const bool honest = lease.parking->method == core::PauseMethod::driver && config_.honest;
  verdict_.expect(!honest || lease.parking->host_bytes >= parked, "ledger-short", [&] {
    return fmt::format("{} is entered with {}, and {} of it are parked", to_string(lease.id),
                       format_size(lease.parking->host_bytes), format_size(parked));
  });
  for (const std::string& uuid : lease.devices) {
    const auto found = readings_.find(uuid);
    const bool known =
        found != readings_.end() && !unread_.contains(uuid) && found->second.began >= lease.parking->since;
    const auto says = [&, &uuid = uuid] {
      return fmt::format("{} counts as paused, and nothing shows its bytes gone from {}", to_string(lease.id), uuid);
    };
    verdict_.expect(known && found->second.used_by(lease.id) <= lease.parking->residue, "paused-unseen", says);
    if (!known) return;
    // Bytes of others that go at the same time could hide as many, and a reading that is not believed anything. Bytes
    // that were not listed when it was asked either may be anybody's.
    const auto unseen = found->second.unseen.find(lease.id);
    const bool hidden = unseen != found->second.unseen.end() && unseen->second > 256 * MiB;
    const bool others = found->second.used_by({}) > Bytes{} || !ends_.empty() || others_move(lease, uuid);
    const auto asked = asked_.find({lease.id, uuid});
    const bool listed = asked != asked_.end() && asked->second > Bytes{};
    verdict_.expect(!hidden || others || !listed || config_.ghosts > 0 || config_.lies > 0 || config_.lost_cards > 0,
                    "paused-unlisted", says);
  }
}

// The device of a parked lease is gone for good, so that nobody restores its program. The program is ended if it has a
// keeper; a program that yielded by itself got its resume order before.
void Oracle::check_left_parked(const Lease& before, const Lease& lease) {
  const bool parked = world_.waits_for_the_driver(lease.id) || world_.rests(lease.id);
  const bool ours = lease.owner.kind == core::OwnerKind::process && lease.owner.keeper;
  const bool untold = before.state == LeaseState::paused && before.parking->method == core::PauseMethod::cooperative;
  verdict_.expect(!parked || (!untold && (!ours || lease.stop_requested)), "left-parked", [&] {
    return fmt::format("{} was {} when it failed, and its program {}", to_string(lease.id), to_string(before.state),
                       untold ? "still waits for a resume order" : "stays parked");
  });
}

}  // namespace sublet::sim
