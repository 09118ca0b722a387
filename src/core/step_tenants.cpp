// SPDX-License-Identifier: Apache-2.0
#include "core/step_tenants.h"

#include "base/size_bounds.h"
#include "state/format.h"
#include "state/tenant_rights.h"
#include "state/tenant_text.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sublet::core {
namespace {

// A share changes its step only clearly past the limit between two steps.
constexpr double clearly = 1.25;
// The first step ends here: a GiB for a minute.
constexpr double first_step = 1024.0 * 1024 * 1024 * 60e9;
constexpr int most_steps = 40;
constexpr Duration shortest_look = std::chrono::minutes(1);

bool moves_up(double use, int step) { return step < most_steps && use >= std::exp2(step) * first_step * clearly; }
bool moves_down(double use, int step) { return step > 0 && use < std::exp2(step - 1) * first_step / clearly; }

double use_by_weight(const Step& step, const TenantAccount& its) {
  return weighted_use(its, step.rules, step.now) * usual_weight / weight_of(its);
}

}  // namespace

// ---------------------------------------------------------------------------------- the queue

static bool move_waiter(Step& step, LeaseId id) {
  const Lease& lease = *find(step, id);
  const QueueKey before = *step.state.queue.key(id);
  step.state.queue.move(id, place_by_tenant(step.state, lease));
  if (before == *step.state.queue.key(id)) return false;
  const std::vector<std::string> devices = lease.certain_devices();
  step.state.devices.opened.insert(step.state.devices.opened.end(), devices.begin(), devices.end());
  return true;
}

// Accounts without waiters below them are passed over only one by one: this is called when a sum that matters to all of
// them changed.
static bool move_waiters_below(Step& step, AccountId id) {
  bool moved = false;
  if (const std::set<LeaseId>* waiters = step.state.queue.of_account(id))
    for (const LeaseId waiter : std::vector<LeaseId>(waiters->begin(), waiters->end()))
      moved |= move_waiter(step, waiter);
  for (AccountId below = account(step.state, id).first_child; below != 0;
       below = account(step.state, below).next_sibling)
    if (account(step.state, below).present > 0) moved |= move_waiters_below(step, below);
  return moved;
}

Result<LeaseId> on(Step& step, const SetTenants& set) {
  set_tenants(step.state, set.tenants, set.used);
  step.state.preemption.stale = true;
  place_waiters(step);
  return LeaseId{};
}

// When time alone may bring it past the next limit, at the earliest.
static Time next_look(const Step& step, const TenantAccount& its, double use) {
  const Window window = window_of(step.rules);
  Time next = Time::never();
  if (its.step > 0 && window.half_life > Duration{}) {
    const double low = std::exp2(its.step - 1) * first_step / clearly;
    const double halves = std::max(std::log2(use / low), 0.0);
    next = step.now + Duration(static_cast<std::int64_t>(halves * static_cast<double>(window.half_life.count())));
  } else if (its.step > 0) {
    next = window.start_of(window.slot_of(step.now) + 1);
  }
  const double rate = (static_cast<double>(its.bytes_used.amount()) * step.rules.tenant_byte_weight +
                       static_cast<double>(its.devices_used.amount()) / 1000 *
                           static_cast<double>(step.rules.tenant_device_weight.count)) *
                      usual_weight / weight_of(its);
  const double high = std::exp2(its.step) * first_step * clearly;
  if (rate > 0 && its.step < most_steps)
    next = std::min(
        next,
        after(step.now, Duration(static_cast<std::int64_t>(std::min(std::max(high - use, 0.0) / rate + 1, 1e18)))));
  if (window.half_life > Duration{}) next = std::max(next, step.now + shortest_look);
  return next;
}

// True: the step of its share changed.
static bool review_share(Step& step, AccountId id) {
  Tenants& all = step.state.tenants;
  TenantAccount& its = all.accounts[id];
  const Window window = window_of(step.rules);
  its.bytes_used.hold(its.held.bytes.count, step.now, window);
  its.devices_used.hold(its.held.thousandths, step.now, window);
  const double use = use_by_weight(step, its);
  const std::uint8_t before = its.step;
  while (moves_up(use, its.step)) ++its.step;
  while (moves_down(use, its.step)) --its.step;
  const Time next = next_look(step, its, use);
  if (next < its.due) {  // a look too early changes nothing
    if (its.due != Time::never()) all.due.erase({its.due, id});
    all.due.insert({next, id});
    its.due = next;
  }
  return before != its.step;
}

bool place_waiters(Step& step) {
  Tenants& all = step.state.tenants;
  while (!all.due.empty() && all.due.begin()->first <= step.now) {
    const AccountId id = all.due.begin()->second;
    all.due.erase(all.due.begin());
    all.accounts[id].due = Time::never();
    if (!std::exchange(all.accounts[id].moved, true)) all.moved.push_back(id);
  }
  bool moved = false;
  for (const AccountId id : std::exchange(all.moved, {})) {
    TenantAccount& its = all.accounts[id];
    its.moved = false;
    const bool decides =
        its.entry != nullptr && (its.entry->quota.stated() || its.entry->limit.stated() || its.entry->live_leases);
    if (review_share(step, id) || decides) moved |= move_waiters_below(step, id);
  }
  if (!std::exchange(all.replaced, false)) return moved;
  for (const LeaseId id : step.state.queue.in_order()) moved |= move_waiter(step, id);
  return moved;
}

// ----------------------------------------------------------------------------------- requests

static Status refuse(Code code, std::string detail, std::string hint, Numbers numbers = {}) {
  return Error{code, std::move(detail), std::move(hint), std::move(numbers)};
}

// Rules of a tenant that hold whatever it has now.
static Status check_rules(const Tenant& tenant, const Lease& asked) {
  const std::string whose = "the tenant " + tenant.name;
  if (!tenant.tiers.empty() && std::ranges::find(tenant.tiers, asked.tier) == tenant.tiers.end()) {
    std::string allowed;
    for (const Tier tier : tenant.tiers) allowed += (allowed.empty() ? "" : ", ") + std::string(to_string(tier));
    return refuse(Code::Denied, whose + " may not have leases of the tier " + std::string(to_string(asked.tier)),
                  "ask for one of its tiers: " + allowed);
  }
  if (tenant.highest_priority && asked.priority > *tenant.highest_priority)
    return refuse(Code::Denied,
                  whose + " may have leases up to the priority " + std::to_string(*tenant.highest_priority) + ", not " +
                      std::to_string(asked.priority),
                  "ask for a priority of " + std::to_string(*tenant.highest_priority) + " or less");
  if (tenant.longest_lease && asked.ttl && *asked.ttl > *tenant.longest_lease)
    return refuse(
        Code::Quota,
        whose + " may have leases for at most " + format_duration(*tenant.longest_lease) + ", not for " +
            format_duration(*asked.ttl),
        "ask for a time limit of " + format_duration(*tenant.longest_lease) + " or less, and renew the lease");
  return {};
}

// The entries from the lease's tenant up to the top.
static std::vector<const TenantAccount*> entries_above(const State& state, AccountId id) {
  std::vector<const TenantAccount*> all;
  for (; id != 0; id = account(state, id).parent)
    if (account(state, id).entry != nullptr) all.push_back(&account(state, id));
  return all;
}

static Status check_bar(const Step& step, const Lease& asked, const std::optional<TenantBar>& bar) {
  if (!bar) return {};
  const Tenant* entry = bar->account == 0 ? nullptr : account(step.state, bar->account).entry;
  const bool queues = entry != nullptr && entry->on_limit == OnLimit::queue;
  if (!bar->alone && (queues || bar->what == TenantBar::What::unpausable)) return {};
  return refuse(bar->alone && bar->what != TenantBar::What::unpausable ? Code::TooLarge : Code::Quota,
                bar_text(step.state, asked, *bar), bar_hint(*bar), bar_numbers(*bar));
}

// The memory that is kept for the lease after the last run of its program.
static TenantMemory kept_for(const Step& step, LeaseId successor_of, AccountId own) {
  TenantMemory kept;
  const Lease* before = successor_of ? find(step.state, successor_of) : nullptr;
  if (before == nullptr || !before->kept_until || account_of(step.state, before->id) != own) return kept;
  for (const std::string& uuid : before->devices)
    kept += as_memory(step.state.devices.by_uuid.at(uuid), charged_on(step.state, *before, uuid));
  return kept;
}

Status check_tenant(Step& step, Lease& asked, LeaseId successor_of) {
  if (step.state.tenants.by_name.empty()) return {};
  const AccountId own = open_account(step.state, asked.tenant, asked.user, asked.uid);
  const std::vector<const TenantAccount*> entries = entries_above(step.state, own);
  std::optional<Duration> longest;
  for (const TenantAccount* its : entries) {
    if (const Status ok = check_rules(*its->entry, asked); !ok) return ok.error();
    if (const auto& most = its->entry->longest_lease) longest = std::min(longest.value_or(*most), *most);
  }
  if (!asked.ttl) asked.ttl = longest;
  const auto bar = bar_by_tenant(step.state, asked, own, kept_for(step, successor_of, own));
  if (const Status ok = check_bar(step, asked, bar); !ok) return ok.error();
  for (const TenantAccount* its : entries) {
    const int queued = its->present - its->live;
    if (its->entry->queued_leases && queued >= *its->entry->queued_leases)
      return refuse(Code::Quota,
                    "the tenant " + its->name + " has " + std::to_string(queued) + " waiting leases, and may have " +
                        std::to_string(*its->entry->queued_leases),
                    "retry when one of them has started, or withdraw one",
                    {{"queued_leases", queued}, {"limit", *its->entry->queued_leases}});
  }
  return {};
}

// The rules of the new tenant hold for a lease that is charged to it from now on, and its limits for what the lease
// has. Tenants above both have it already.
Status check_charged(Step& step, const Lease& lease, const Lease& as) {
  if (step.state.tenants.by_name.empty() || (lease.tenant == as.tenant && lease.uid == as.uid)) return {};
  const AccountId before = account_of(step.state, lease.id);
  const AccountId own = open_account(step.state, as.tenant, as.user, as.uid);
  TenantMemory has;
  for (const std::string& uuid : lease.devices)
    has += as_memory(step.state.devices.by_uuid.at(uuid), std::max(lease.vram, charged_on(step.state, lease, uuid)));
  for (const TenantAccount* its : entries_above(step.state, own)) {
    if (const Status ok = check_rules(*its->entry, as); !ok) return ok.error();
    bool shared = false;
    for (AccountId id = before; id != 0; id = account(step.state, id).parent) shared |= &account(step.state, id) == its;
    const TenantAmount& limit = its->entry->limit;
    const TenantMemory sum = its->held + its->owed + has;
    if (shared ||
        ((!limit.bytes || sum.bytes <= *limit.bytes) && (!limit.thousandths || sum.thousandths <= *limit.thousandths)))
      continue;
    return refuse(Code::Quota,
                  "the tenant " + its->name + " holds " + format_size(its->held.bytes) + ", and cannot take over " +
                      format_size(has.bytes) + " more within its limit",
                  "end a lease of the tenant, or ask an admin for a higher limit");
  }
  return {};
}

Status check_growth(const Step& step, const Lease& lease) {
  return check_bar(step, lease, bar_by_tenant(step.state, lease));
}

Status check_time_limit(const Step& step, const Lease& lease, std::optional<Duration> ttl) {
  if (!ttl) return {};
  Lease asked;
  asked.tier = lease.tier;
  asked.ttl = ttl;
  for (const TenantAccount* its : entries_above(step.state, account_of(step.state, lease.id))) {
    Tenant only;
    only.name = its->name;
    only.longest_lease = its->entry->longest_lease;
    if (const Status ok = check_rules(only, asked); !ok) return ok.error();
  }
  return {};
}

}  // namespace sublet::core
