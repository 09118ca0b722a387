// SPDX-License-Identifier: Apache-2.0
#include "share/shares.h"

#include "base/json_text.h"
#include "state/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace sublet::share {
namespace {

constexpr double ns_per_second = 1e9;

bool is_held(const core::Lease& lease) { return lease.share > 0 && lease.share < 100; }

// Percent of the device's time, by the card; unset: it does not tell for each process.
std::optional<int> shown_percent(const core::DeviceReading& reading, LeaseId lease) {
  int sum = 0;
  for (const core::ProcessUse& use : reading.processes) {
    if (use.lease != lease || use.graphics_only) continue;
    if (!use.computing_percent) return std::nullopt;
    sum += *use.computing_percent;
  }
  return std::min(sum, 100);
}

// Rounded to parts of `unit`.
std::string number(double value, double unit = 10) { return fmt::format("{}", std::round(value * unit) / unit); }

}  // namespace

int Shares::percent(LeaseId lease) const {
  const core::Lease* found = core::find(engine_.state(), lease);
  return found != nullptr ? found->share : 0;
}

Result<Fd> Shares::page(LeaseId lease, std::uint32_t devices) {
  const core::Lease* found = core::find(engine_.state(), lease);
  if (found == nullptr || !is_held(*found)) return Fd();
  pages_.insert(lease);
  return files_.open(lease, devices);
}

std::uint32_t Shares::take_use(LeaseId lease, const std::string& device, const credit::ComputeUse& use) {
  const core::Lease* found = core::find(engine_.state(), lease);
  if (found == nullptr || !is_held(*found)) return usual_gain;
  OnDevice& on = leases_[lease][device];
  on.use = use;
  const core::Device* read = core::find_device(engine_.state(), device);
  if (read != nullptr && read->read_at && read->problem.empty() && found->state == core::LeaseState::active)
    on.audit.look(*read->read_at, use.busy, shown_percent(read->reading, lease), found->share);
  return on.audit.gain();
}

void Shares::loaded(const store::Loaded&, Time) {
  std::set<LeaseId> living;
  for (const auto& [id, lease] : engine_.state().leases.by_id)
    if (!lease.ended() && is_held(lease)) living.insert(id);
  files_.keep_only(living);
  pages_ = std::move(living);
  forget_ended();
}

void Shares::forget_ended() {
  const auto has_ended = [this](LeaseId id) {
    const core::Lease* lease = core::find(engine_.state(), id);
    return lease == nullptr || lease->ended();
  };
  std::erase_if(pages_, [&](LeaseId id) { return has_ended(id) && (files_.remove(id), true); });
  std::erase_if(leases_, [&](const auto& entry) { return has_ended(entry.first); });
}

void Shares::measured(Time) {
  for (const LeaseId lease : pages_) files_.mend(lease);
}

Time Shares::due(Time) {
  forget_ended();
  return Time::never();
}

// The text stays the same while the warning lasts: another text would be another event.
std::vector<engine::Warning> Shares::warnings(Time now) const {
  std::vector<engine::Warning> all;
  for (const auto& [id, devices] : leases_) {
    const core::Lease* lease = core::find(engine_.state(), id);
    if (lease == nullptr) continue;
    for (const auto& [uuid, on] : devices)
      if (const auto& excess = on.audit.excess(); excess && !on.audit.is_stale(now))
        all.push_back({"share_exceeded",
                       fmt::format("{} has used {:.0f} % of the computing time of {}, and its share is {} %",
                                   core::name_of(*lease), excess->percent,
                                   core::device_names(engine_.state(), {uuid}).front(), lease->share),
                       fmt::format("sublet why {} names processes that its limit does not hold", to_string(id)),
                       excess->since});
  }
  return all;
}

std::string Shares::lease_field(std::string_view name, const core::Lease& lease) const {
  const auto known = leases_.find(lease.id);
  if (name != "share_use" || known == leases_.end()) return {};
  double busy = 0, waited = 0;
  JsonText out;
  out.begin_object().key("devices").begin_array();
  for (const auto& [uuid, on] : known->second) {
    busy += static_cast<double>(on.use.busy) / ns_per_second;
    waited += static_cast<double>(on.use.waited) / ns_per_second;
    out.begin_object().field("uuid", uuid).key("used_percent");
    const bool is_stale = on.audit.is_stale(engine_.now());
    if (const auto used = on.audit.used(); used && !is_stale) out.raw(number(*used));
    else out.value(nullptr);
    out.key("gain").raw(number(on.audit.gain() / 1000.0, 1000));
    out.field("exceeded", on.audit.excess() && !is_stale).end_object();
  }
  out.end_array().key("busy_seconds").raw(number(busy)).key("waited_seconds").raw(number(waited));
  return out.end_object().take();
}

}  // namespace sublet::share
