// SPDX-License-Identifier: Apache-2.0
// The beginning of a process: the lease that it belongs to, and its pages.
#include "base/log.h"
#include "limit/limits.h"
#include "limit/member.h"
#include "proc/pidfd.h"

#include <utility>

namespace sublet::limit {
namespace {

// Beyond these, a process is not limited. One user of a tenant cannot take the places of all others.
constexpr std::size_t most_members = 1024, most_of_one = 2048, most_processes = 8192;
constexpr Duration look_again = std::chrono::milliseconds(50);  // at processes that may belong to a lease soon

}  // namespace

// A process belongs to the lease around it or around its control group, by the kernel's word on the sender. Once it
// belongs to a lease, it stays there for as long as the lease lives.
const core::Lease* Limits::lease_for(const proc::Peer& sender) const {
  const core::State& state = engine_.state();
  if (const auto known = processes_.find(sender.process); known != processes_.end()) {
    const core::Lease* lease = core::find(state, known->second.lease);
    if (is_limited(lease) && !known->second.ended) return lease;
  }
  const machine::Programs& programs = engine_.programs();
  // Without a pidfd from the kernel, another process may have got the pid: at least it has the same user.
  if (!sender.exact) {
    const auto now = programs.root().read(sender.pid);
    if (!now || now->ref != sender.process || now->uid != sender.uid) return nullptr;
  }
  LeaseId around = programs.lease_around(sender.pid, true);
  if (!around) around = programs.lease_of_group(sender.pid);
  const core::Lease* lease = core::find(state, around);
  // While it lives, nobody else has its pid.
  return is_limited(lease) && !proc::is_dead(sender.pidfd.get()) ? lease : nullptr;
}

Limits::LeaseLimit* Limits::limit_of(const core::Lease& lease) {
  if (const auto known = limits_.find(lease.id); known != limits_.end()) return &known->second;
  std::vector<credit::DeviceLimit> devices;
  std::vector<std::string> uuids;
  for (const std::string& uuid : lease.devices) {
    const auto bytes = uuid_bytes(uuid);
    if (!bytes || devices.size() == SUBLET_LIMIT_DEVICES) continue;
    devices.push_back({.uuid = *bytes,
                       .limit = lease.vram,
                       .context = contexts_[uuid].bytes(),
                       .share = static_cast<std::uint32_t>(shares_ != nullptr ? shares_->percent(lease.id) : 0)});
    uuids.push_back(uuid);
  }
  if (devices.empty()) return nullptr;
  LeaseLimit limit{.lease = lease.id,
                   .who = {lease.tenant, lease.user},
                   .desk = credit::Desk(std::move(devices)),
                   .devices = std::move(uuids)};
  return &limits_.emplace(lease.id, std::move(limit)).first->second;
}

// Without the page, the process has its limit, and nothing holds its launches back: the readings show that.
int Limits::share_page(const LeaseLimit& limit) const {
  if (shares_ == nullptr) return -1;
  const auto page = shares_->page(limit.lease, static_cast<std::uint32_t>(limit.devices.size()));
  if (page) return *page;
  log::error({.lease = limit.lease}, "its processes have no share: {}", page.error().detail);
  return -1;
}

std::size_t Limits::processes_of(const Who& who) const {
  std::size_t sum = 0;
  for (const auto& [id, limit] : limits_)
    if (limit.who == who) sum += limit.members.size();
  return sum;
}

// A container runs before the engine tells of it.
bool Limits::is_early(const proc::Peer& sender) const {
  return awaits_ && lease_for(sender) == nullptr && !proc::is_dead(sender.pidfd.get()) && awaits_(sender.pid);
}

Time Limits::begin_early(Time now) {
  for (Waiting& waiting : std::exchange(early_, {})) {
    if (now < waiting.until && is_early(waiting.asked.question.sender)) early_.push_back(std::move(waiting));
    else begin(waiting.asked);
  }
  return early_.empty() ? Time::never() : now + look_again;
}

void Limits::begin(Asked& asked) {
  proc::Peer& sender = asked.question.sender;
  const core::Lease* lease = lease_for(sender);
  LeaseLimit* limit = lease != nullptr ? limit_of(*lease) : nullptr;
  const auto known = processes_.find(sender.process);
  const bool is_new = known == processes_.end();
  if (limit == nullptr || (!is_new && known->second.lease != lease->id)) return answer(asked, SUBLET_CREDIT_UNKNOWN);
  if (is_new && (limit->members.size() >= most_members || processes_of(limit->who) >= most_of_one ||
                 processes_.size() >= most_processes)) {
    log::warn({.lease = lease->id}, "process {} has no limit: {} processes have one, {} of them in this lease",
              sender.pid, processes_.size(), limit->members.size());
    return answer(asked, SUBLET_CREDIT_UNKNOWN);
  }
  if (!is_new) {  // its earlier program, or its counts move to the new page
    count(*limit, sender.process);
    known->second.counted = {};
  }
  const auto pages = limit->desk.begin(sender.process);
  if (!pages) {
    log::error({.lease = lease->id}, "process {} has no limit: {}", sender.pid, pages.error().detail);
    return answer(asked, SUBLET_CREDIT_UNKNOWN);
  }
  limit->desk.tell_others();
  const Status told = credit::answer(asked.connection.get(), SUBLET_CREDIT_GRANTED, *pages, share_page(*limit));
  // It has left, and goes on without a limit.
  if (!told && is_new) return limit->desk.end(sender.process), limit->desk.forget(sender.process);
  limit->desk.close_files(sender.process);
  limit->members.insert(sender.process);
  Process& process = processes_[sender.process];
  process.lease = lease->id;
  if (is_new) process.begun = engine_.now();
  process.pidfd = std::move(sender.pidfd);
  process.last.assign(limit->devices.size(), std::nullopt);
  process.given.clear();
  counts_.try_emplace(lease->id);
  if (told_) told_(lease->id, {});
  if (!is_new) return;
  for (const auto& device : limit->desk.devices()) process.given.push_back(device.context);
  rows_.store(sender.process);
}

}  // namespace sublet::limit
