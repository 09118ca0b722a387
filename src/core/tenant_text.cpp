// SPDX-License-Identifier: Apache-2.0
#include "core/tenant_text.h"

#include "base/size_bounds.h"
#include "core/format.h"

#include <algorithm>

namespace sublet::core {
namespace {

std::string amount(TenantBar::What what, std::int64_t value) {
  if (what == TenantBar::What::live) return std::to_string(value) + (value == 1 ? " lease" : " leases");
  return what == TenantBar::What::devices ? format_devices(value) : format_size(Bytes{value});
}

}  // namespace

std::string format_devices(std::int64_t thousandths) {
  std::string part = std::to_string(thousandths % 1000 / 10);
  if (part.size() < 2) part = "0" + part;
  return std::to_string(thousandths / 1000) + (part == "00" ? "" : "." + part) +
         (thousandths == 1000 ? " device" : " devices");
}

std::string bar_text(const State& state, const Lease& lease, const TenantBar& bar) {
  if (bar.what == TenantBar::What::unpausable) {
    const std::string text =
        "the lease cannot be paused, so that it may not take memory that other tenants are "
        "guaranteed, and ";
    if (bar.account == 0)
      return text + "the tenant " + (lease.tenant.empty() ? lease.user : lease.tenant) + " has no guarantee";
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

std::string bar_hint(const State& state, const Lease&, const TenantBar& bar) {
  if (bar.what == TenantBar::What::unpausable)
    return "ask with `--tier spot`, let Sublet pause the program (`--pausable auto`), or ask an admin for a quota";
  const std::string rest = amount(bar.what, std::max<std::int64_t>(bar.most - bar.used, 0));
  const std::string tenant = account(state, bar.account).name;
  if (bar.what == TenantBar::What::live || bar.used >= bar.most)
    return "end a lease of the tenant (`sublet ps --tenant " + tenant + "`), or ask an admin for a higher limit";
  if (bar.alone && bar.used == 0) return "ask for " + amount(bar.what, bar.most) + " or less";
  return "ask for " + rest + " or less, or end a lease of the tenant";
}

Numbers bar_numbers(const TenantBar& bar) {
  switch (bar.what) {
    case TenantBar::What::live: return {{"live_leases", bar.used}, {"limit", bar.most}};
    case TenantBar::What::devices: return {{"used_thousandths", bar.used}, {"limit_thousandths", bar.most}};
    default: return {{"asked_bytes", bar.asked}, {"used_bytes", bar.used}, {"limit_bytes", bar.most}};
  }
}

}  // namespace sublet::core
