// SPDX-License-Identifier: Apache-2.0
// A crowd: programs that want more than there is, all at once, and stay. Most often all are equals that want the same
// card; else they are as different as leases can be.
#include "clients.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::sim {

using core::LeaseState;
using core::OwnerKind;

namespace {

// The programs rarely fit together, and host memory takes all of them: a program that cannot be parked takes no time
// slices.
std::vector<Bytes> some_sizes(const Config& config, Bytes card, Random& random) {
  const Bytes all = card - config.driver_reserved - config.rules.headroom;
  const Bytes host{(config.host_memory - config.rules.ledger_reserve).count / (config.headroom_known ? 4 : 1)};
  const Bytes place = std::min(config.rules.ledger_limit, host);
  const bool many = random.chance(40);  // of whom more than one fits into a slice
  std::vector<Bytes> sizes((many ? 3 : 2) + random.below(4));
  Bytes sum;
  for (Bytes& size : sizes) size = Bytes{all.count / 100 * random.between(25, many ? 65 : 100)}, sum += size;
  while (sum > place && sizes.size() > 2) sum -= sizes.back(), sizes.pop_back();
  if (sum > place) sum = {}, std::ranges::for_each(sizes, [&](Bytes& size) { sum += size = {place.count / 2}; });
  const Bytes more = std::min(place, all + GiB) - sum;
  if (sum <= all && place > all && random.chance(90))
    for (Bytes& size : sizes) size = std::min(size + Bytes{more.count / static_cast<std::int64_t>(sizes.size())}, all);
  return sizes;
}

}  // namespace

void Clients::gather(Random& random) {
  if (daemon_ == nullptr) return;
  const std::size_t card = random.below(config_.cards.size());
  const bool equals = random.chance(75);
  for (const Bytes size : some_sizes(config_, config_.cards[card], random)) {
    core::Lease lease;
    lease.uid = 1000;
    lease.user = lease.tenant = "ana";
    lease.consumer = random.chance(50) ? "crowd" : "guest";
    lease.vram = size;
    lease.priority = static_cast<int>(random.between(-1, 1));
    lease.owner.kind = OwnerKind::connection;
    lease.tier = core::Tier::standard;
    if (equals || random.chance(50)) lease.wanted_devices = {World::uuid_of(card)};
    else if (random.chance(50)) lease.device_count = static_cast<int>(1 + random.below(config_.cards.size()));
    if (lease.wanted_devices.empty() && random.chance(20))
      lease.wanted_devices = {World::uuid_of(card), World::uuid_of((card + 1) % config_.cards.size())};
    if (!equals) {
      lease.tier = static_cast<core::Tier>(1 + random.below(3));
      if (random.chance(15)) lease.pausable = core::Pausable::no;
    }
    Guest guest;
    if (random.chance(30)) guest.keeps = random.between(1, 8) * 64 * MiB;
    guest.lease = invite(std::move(lease));
    if (guest.lease) guests_.push_back(guest);
  }
}

// It stays for as long as it takes.
LeaseId Clients::invite(core::Lease lease) {
  core::Submit submit;
  submit.lease = std::move(lease);
  submit.may_queue = submit.held = true;
  const std::uint64_t before = daemon_->engine().state().leases.last_id;
  send(nullptr, submit, false);
  const LeaseId made{daemon_->engine().state().leases.last_id};
  if (made.number == before) return {};
  Client& client = clients_[made];
  client.lease = made;
  hold(client, true);
  return made;
}

void Clients::keep_company() {
  if (daemon_ == nullptr) return;
  for (Guest& guest : guests_) {
    const core::Lease* lease = guest.settled ? nullptr : seen(guest.lease);
    const auto client = clients_.find(guest.lease);
    if (lease == nullptr || client == clients_.end() || client->second.waiting) continue;
    if (lease->state == LeaseState::offered) send(&client->second, core::Claim{lease->id, lease->generation}, false);
    if (lease->state == LeaseState::active) settle(guest, client->second, *lease);
  }
}

void Clients::settle(Guest& guest, Client& client, const core::Lease& lease) {
  Program* program = world_.program_of(lease.id);
  if (program == nullptr) {
    std::vector<std::size_t> cards;
    for (const std::string& uuid : lease.devices) cards.push_back(*world_.card_of(uuid));
    Program& started = world_.start_program(lease.id, lease.uid, std::move(cards), lease.vram);
    core::Attach attach{lease.id, lease.generation, {}, true, {}};
    attach.owner = {.kind = OwnerKind::process,
                    .process = started.main,
                    .keeper = started.keeper,
                    .exit_record = fmt::format("/exits/{}", to_string(lease.id)),
                    .inode = 0};
    return send(&client, attach, false);
  }
  if (lease.owner.process != program->main) return;
  if (guest.keeps && !lease.cooperation) {
    core::Cooperation how;
    how.way = core::CooperationWay::poll;
    how.residue = *guest.keeps;
    how.process = program->main;
    return send(&client, core::Cooperate{lease.id, lease.generation, how}, false);
  }
  world_.take_all(*program);
  guest.settled = true;
}

}  // namespace sublet::sim
