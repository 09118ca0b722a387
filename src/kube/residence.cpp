// SPDX-License-Identifier: Apache-2.0
#include "kube/residence.h"

#include "base/clock.h"
#include "base/log.h"
#include "client/http.h"
#include "kube/pod_event.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::kube {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

constexpr Duration between_writes = 1s, after_failure = 5s;

std::string reason_of(const Held& lease) {
  if (lease.state == "poisoned") return "Poisoned";
  if (lease.state == "queued" && lease.reason.empty()) return "Queued";
  if (lease.reason == "slice") return "Timeshare";
  constexpr std::string_view by_people[] = {"owner_request", "admin_request", "owner_preemption", "admin_preemption",
                                            "drain"};
  return std::ranges::count(by_people, lease.reason) > 0 ? "Operator" : "Preempted";
}

std::string target_of(const PodName& name) {
  return fmt::format("/api/v1/namespaces/{}/pods/{}", client::encode(name.space), client::encode(name.name));
}

}  // namespace

Residence residence_of(const Held* lease) {
  if (lease == nullptr) return {false, "NoLease", "the lease of the pod has ended"};
  if (lease->has_memory()) return {true, "Granted", lease->summary};
  std::string message = fmt::format("{} is {}", lease->id, lease->state);
  if (lease->state == "queued") message = lease->summary;
  else if (!lease->preemptor.empty()) message += fmt::format(" for {}", lease->preemptor);
  constexpr std::size_t hour_at = 11, hour_size = 5;
  if (lease->until && lease->until->size() > hour_at + hour_size)
    message += fmt::format(", back about {} UTC", lease->until->substr(hour_at, hour_size));
  return {false, reason_of(*lease), message};
}

json condition_patch(const std::string& uid, const Residence& residence, Time now) {
  return {{"metadata", {{"uid", uid}}},
          {"status",
           {{"conditions", json::array({{{"type", resident_condition},
                                         {"status", residence.resident ? "True" : "False"},
                                         {"reason", residence.reason},
                                         {"message", residence.message},
                                         {"lastTransitionTime", kube_time(now)}}})}}}};
}

std::optional<Duration> ResidenceTeller::work() {
  const auto records = all_records(settings_.state_dir);
  std::erase_if(known_, [&records](const auto& its) {
    return std::ranges::none_of(records, [&](const PodRecord& record) { return record.group_uid == its.first; });
  });
  if (records.empty()) return std::nullopt;
  const auto leases = daemon_.of_pods();
  if (!leases) return after_failure;
  const std::int64_t now = monotonic_ns();
  std::optional<Duration> next;
  const PodRecord* oldest = nullptr;  // of those whose change may be written now
  for (const PodRecord& record : records) {
    const auto found = leases->find(record.group_uid);
    const Held* lease = found == leases->end() ? nullptr : &found->second;
    Known& known = known_[record.group_uid];
    known.wanted = residence_of(lease);
    if (known.written && known.written->same_as(known.wanted)) {
      known.differs_since.reset();
      continue;
    }
    if (!known.differs_since) known.differs_since = now;
    const Duration wait = known.wanted.resident ? 0ns : shortest_told_pause - Duration(now - *known.differs_since);
    if (wait > 0ns) next = std::min(wait, next.value_or(wait));
    else if (oldest == nullptr || *known.differs_since < *known_[oldest->group_uid].differs_since) oldest = &record;
  }
  if (oldest == nullptr) return next;
  if (now < silent_until_ns_) return Duration(silent_until_ns_ - now);
  silent_until_ns_ = now + between_writes.count();
  if (const Status written = write(*oldest, known_[oldest->group_uid]); !written) {
    log::warn("the condition of pod {} is not written: {}", to_text(oldest->name), written.error().detail);
    known_[oldest->group_uid].differs_since = now;  // the others first
    silent_until_ns_ = now + after_failure.count();
  }
  return Duration(silent_until_ns_ - now);
}

Status ResidenceTeller::write(const PodRecord& record, Known& known) {
  const Residence& wanted = known.wanted;
  const auto pod = pods_.api().get(target_of(record.name));
  const bool gone = pod ? text_at(*pod, {"metadata", "uid"}) != record.uid : pod.error().code == Code::NotFound;
  const std::string phase = pod ? text_at(*pod, {"status", "phase"}) : "";
  if (gone || (wanted.reason == "NoLease" && (phase == "Succeeded" || phase == "Failed"))) {
    drop_record(settings_.state_dir, record);
    return {};
  }
  if (!pod) return pod.error();
  std::optional<Residence> before;
  for (const json& condition : list_at(*pod, {"status", "conditions"}))
    if (text_at(condition, {"type"}) == resident_condition)
      before = Residence{text_at(condition, {"status"}) == "True", text_at(condition, {"reason"}), {}};
  if (!before || !before->same_as(wanted)) {
    const auto done = pods_.api().patch(target_of(record.name) + "/status",
                                        condition_patch(record.uid, wanted, wall_time()), strategic_patch);
    if (!done) return done.error();
    log::info("pod {}: {}={} ({}): {}", to_text(record.name), resident_condition, wanted.resident, wanted.reason,
              wanted.message);
    const bool returns = before && !before->resident && before->reason != "Queued";
    if (wanted.resident ? returns : wanted.reason != "Queued") {
      const bool ended = wanted.reason == "NoLease";
      const char* kind = wanted.resident ? "VramBack" : ended ? "VramLost" : "VramParked";
      const PodEvent event{record.name, record.uid, kind, wanted.message, ended};
      if (auto told = write_event(pods_.api(), settings_.node, event); !told) log::debug("{}", told.error().detail);
    }
  }
  known.written = wanted;
  known.differs_since.reset();
  return {};
}

}  // namespace sublet::kube
