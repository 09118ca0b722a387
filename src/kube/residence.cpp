// SPDX-License-Identifier: Apache-2.0
#include "kube/residence.h"

#include "base/clock.h"
#include "base/log.h"
#include "client/http.h"
#include "kube/state_file.h"

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

std::string kube_time(Time at) { return format_rfc3339(at).substr(0, 19) + "Z"; }  // without milliseconds

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
  if (records.empty()) {
    known_.clear();
    return std::nullopt;
  }
  const auto leases = daemon_.of_pods();
  if (!leases) return after_failure;
  const std::int64_t now = monotonic_ns();
  std::optional<Duration> next;
  const auto again_after = [&next](Duration time) { next = std::min(time, next.value_or(time)); };
  for (const PodRecord& record : records) {
    const auto found = leases->find(record.group_uid);
    const Held* lease = found == leases->end() ? nullptr : &found->second;
    Known& known = known_[record.group_uid];
    tell_containers(record, lease, known);
    const Residence wanted = residence_of(lease);
    if (known.written && known.written->same_as(wanted)) {
      known.paused_since.reset();
      continue;
    }
    if (!wanted.resident) {
      const std::int64_t since = known.paused_since.value_or(now);
      known.paused_since = since;
      if (const Duration left = shortest_told_pause - Duration(now - since); left > 0ns) {
        again_after(left);
        continue;
      }
    }
    if (now < silent_until_ns_) {
      again_after(Duration(silent_until_ns_ - now));
      continue;
    }
    silent_until_ns_ = now + between_writes.count();
    again_after(between_writes);
    if (const Status written = write(record, wanted, known); !written) {
      log::warn("the condition of pod {} is not written: {}", to_text(record.name), written.error().detail);
      silent_until_ns_ = now + after_failure.count();
      return after_failure;
    }
  }
  return next;
}

void ResidenceTeller::tell_containers(const PodRecord& record, const Held* lease, Known& known) {
  if (lease == nullptr || known.state == lease->state) return;
  known.state = lease->state;
  for (const std::string& directory : record.directories) (void)write_state(directory, *lease);
}

Status ResidenceTeller::write(const PodRecord& record, const Residence& wanted, Known& known) {
  const auto pod = pods_.api().get(target_of(record.name));
  const bool gone = pod ? text_at(*pod, {"metadata", "uid"}) != record.uid : pod.error().code == Code::NotFound;
  const std::string phase = pod ? text_at(*pod, {"status", "phase"}) : "";
  if (gone || (wanted.reason == "NoLease" && (phase == "Succeeded" || phase == "Failed"))) {
    drop_record(settings_.state_dir, record);
    known_.erase(record.group_uid);
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
    if (wanted.resident ? returns : wanted.reason != "Queued") write_event(record, wanted);
  }
  known.written = wanted;
  known.paused_since.reset();
  return {};
}

// One event object for each kind and pod, whose count grows.
void ResidenceTeller::write_event(const PodRecord& record, const Residence& now) {
  const std::string reason = now.resident ? "VramBack" : now.reason == "NoLease" ? "VramLost" : "VramParked";
  std::string name = fmt::format("{}.{}", record.name.name.substr(0, 200), record.uid.substr(0, 8));
  for (const char c : "." + reason) name += static_cast<char>(std::tolower(c));
  const std::string events = fmt::format("/api/v1/namespaces/{}/events", client::encode(record.name.space));
  const std::string at = kube_time(wall_time());
  const json event{{"apiVersion", "v1"},
                   {"kind", "Event"},
                   {"metadata", {{"name", name}, {"namespace", record.name.space}}},
                   {"involvedObject",
                    {{"apiVersion", "v1"},
                     {"kind", "Pod"},
                     {"name", record.name.name},
                     {"namespace", record.name.space},
                     {"uid", record.uid}}},
                   {"reason", reason},
                   {"message", now.message},
                   {"type", now.reason == "NoLease" ? "Warning" : "Normal"},
                   {"count", 1},
                   {"firstTimestamp", at},
                   {"lastTimestamp", at},
                   {"source", {{"component", "sublet-kube"}, {"host", settings_.node}}}};
  auto made = pods_.api().call("POST", events, event);
  if (!made && made.error().code == Code::InUse) {
    const auto old = pods_.api().get(fmt::format("{}/{}", events, name));
    const json& count = old ? member_at(*old, {"count"}) : json();
    made = pods_.api().patch(fmt::format("{}/{}", events, name),
                             {{"count", (count.is_number_integer() ? count.get<std::int64_t>() : 0) + 1},
                              {"lastTimestamp", at},
                              {"message", now.message}},
                             merge_patch);
  }
  if (!made) log::debug("no event of pod {}: {}", to_text(record.name), made.error().detail);
}

}  // namespace sublet::kube
