// SPDX-License-Identifier: Apache-2.0
#include "state/tenant_text.h"

#include "base/size_bounds.h"
#include "base/spelled.h"
#include "state/format.h"

#include <algorithm>

namespace sublet::core {
namespace {

std::string tenant_of(const Lease& lease) { return lease.tenant.empty() ? lease.user : lease.tenant; }

std::string amount(TenantBar::What what, std::int64_t value) {
  if (what == TenantBar::What::live) return std::to_string(value) + (value == 1 ? " lease" : " leases");
  return what == TenantBar::What::devices ? format_devices(value) : format_size(Bytes{value});
}

}  // namespace

std::string format_devices(std::int64_t thousandths) {
  return spelled_thousandths(thousandths) + (thousandths == 1000 ? " device" : " devices");
}

std::string format_amount(const TenantAmount& amount) {
  std::string text = amount.bytes ? format_size(*amount.bytes) : "";
  if (amount.thousandths) text += (text.empty() ? "" : " and ") + format_devices(*amount.thousandths);
  return text.empty() ? "none" : text;
}

std::string bar_text(const State& state, const Lease& lease, const TenantBar& bar) {
  if (bar.what == TenantBar::What::unpausable) {
    const std::string text =
        "the lease cannot be paused, so that it may not take memory that other tenants are "
        "guaranteed, and ";
    if (bar.account == 0) return text + "the tenant " + tenant_of(lease) + " has no guarantee";
    return text + "of the " + amount(TenantBar::What::bytes, bar.most) + " that the tenant " +
           account(state, bar.account).name + " is guaranteed, " + amount(TenantBar::What::bytes, bar.used) +
           " are in use";
  }
  const std::string whose = "the tenant " + account(state, bar.account).name;
  const std::string most = amount(bar.what, bar.most);
  if (bar.alone) return whose + " may have " + most + " in all, and the lease asks for " + amount(bar.what, bar.asked);
  return whose + " has " + amount(bar.what, bar.used) + " and may have " + most + ": there is no place for " +
         amount(bar.what, bar.asked) + " more";
}

std::string bar_hint(const TenantBar& bar) {
  if (bar.what == TenantBar::What::unpausable)
    return "ask with `--tier spot`, let Sublet pause the program (`--pausable auto`), or ask an admin for a quota";
  const std::string rest = amount(bar.what, std::max<std::int64_t>(bar.most - bar.used, 0));
  if (bar.what == TenantBar::What::live || bar.used >= bar.most)
    return "end a lease of the tenant (`sublet ps -o id,tenant,state` lists them), or ask an admin for a higher limit";
  if (bar.alone && bar.used == 0) return "ask for " + amount(bar.what, bar.most) + " or less";
  return "ask for " + rest + " or less, or end a lease of the tenant";
}

ReasonArgs quota_args(const State& state, const Lease& preemptor, const Lease& victim) {
  const AccountId own = account(state, account_of(state, preemptor.id)).guarantor;
  const AccountId lender = account(state, account_of(state, victim.id)).guarantor;
  ReasonArgs all = args("tenant", own == 0 ? tenant_of(preemptor) : account(state, own).name);
  all.add("borrower", "the tenant " + (lender == 0 ? tenant_of(victim) : account(state, lender).name));
  all.add("borrowed", borrowed_by(state, victim));
  return all;
}

// The memory of the tenant, in the measures of its quota.
static TenantAmount held_like(const TenantAmount& quota, const TenantAccount& its) {
  TenantAmount held;
  if (quota.bytes) held.bytes = its.held.bytes;
  if (quota.thousandths) held.thousandths = static_cast<int>(its.held.thousandths);
  return held;
}

static std::string share_text(const State& state, const Rules& rules, AccountId id, Time now) {
  const TenantAccount& its = account(state, id);
  Integral all = 0;
  for (AccountId other = account(state, its.parent).first_child; other != 0; other = account(state, other).next_sibling)
    all += account(state, other).bytes_used.of(now, window_of(rules));
  const Integral own = its.bytes_used.of(now, window_of(rules));
  if (all <= 0) return {};
  const auto hours = static_cast<double>(own) / 3600e9 / static_cast<double>(GiB.count);
  const auto tenths = static_cast<std::int64_t>(hours * 10 + 0.5);
  return "the tenant " + its.name + " has had " + std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) +
         " GiB hours lately, " + std::to_string(static_cast<int>(own * 100 / all)) + " % of " +
         (its.parent == 0 ? "all" : account(state, its.parent).name) + ": tenants with less go first";
}

std::vector<std::string> tenant_helps(const State& state, const Rules& rules, const Lease& lease, Time now) {
  std::vector<std::string> helps;
  const AccountId own = account_of(state, lease.id);
  if (const auto bar = bar_by_tenant(state, lease))
    helps.push_back(bar_text(state, lease, *bar) + ": " + bar_hint(*bar));
  if (const AccountId guarantor = account(state, own).guarantor; guarantor != 0) {
    const TenantAccount& its = account(state, guarantor);
    helps.push_back("the tenant " + its.name + " is guaranteed " + format_amount(its.entry->quota) + " and has " +
                    format_amount(held_like(its.entry->quota, its)) + ": the lease is " +
                    (is_guaranteed(state, lease) ? "within the guarantee, and goes before all that are not"
                                                 : "beyond the guarantee"));
  }
  const AccountId tenant = account(state, own).parent;
  if (account(state, 0).first_child == 0 || account(state, account(state, 0).first_child).next_sibling == 0)
    return helps;  // no other tenant has used anything
  if (std::string share = tenant == 0 ? "" : share_text(state, rules, tenant, now); !share.empty())
    helps.push_back(std::move(share));
  return helps;
}

std::string holder_text(const State& state, const Lease& lease) {
  if (state.tenants.by_name.quotas() == 0) return {};
  const TenantAccount& guarantor = account(state, account(state, account_of(state, lease.id)).guarantor);
  const std::string has = guarantor.entry == nullptr ? "the tenant " + tenant_of(lease) + " has no quota"
                                                     : "the tenant " + guarantor.name + " is guaranteed " +
                                                           format_amount(guarantor.entry->quota) + " and has " +
                                                           format_amount(held_like(guarantor.entry->quota, guarantor));
  if (is_protected(state, lease)) return has + ": no lease beyond a guarantee pauses this lease";
  return has + ": " + format_size(borrowed_by(state, lease)) +
         (lease.pausable == Pausable::no ? " are borrowed"
                                         : " are borrowed, and a lease within another guarantee may pause this lease");
}

Numbers bar_numbers(const TenantBar& bar) {
  switch (bar.what) {
    case TenantBar::What::live: return {{"live_leases", bar.used}, {"limit", bar.most}};
    case TenantBar::What::devices: return {{"used_thousandths", bar.used}, {"limit_thousandths", bar.most}};
    default: return {{"asked_bytes", bar.asked}, {"used_bytes", bar.used}, {"limit_bytes", bar.most}};
  }
}

}  // namespace sublet::core
