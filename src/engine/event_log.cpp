// SPDX-License-Identifier: Apache-2.0
#include "engine/event_log.h"

#include "base/json_text.h"
#include "lease/reason_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

namespace sublet::engine {
namespace {

// Number of events that are read without the store.
constexpr std::size_t kept_in_memory = 256;

JsonText begin(std::string_view type, Time at) {
  JsonText out(512);
  out.begin_object().field("type", type).field("at", format_rfc3339(at));
  return out;
}

void write_reason(JsonText& out, const core::Reason& reason) {
  out.field("kind", core::to_string(reason.kind)).field("code", core::code(reason));
  out.field("text", core::text_of(reason));
  core::write_args(out.key("args"), reason.args);
}

// Without the command line: all users may read the stream.
std::string lease_data(const core::Reason& reason, const core::Lease& lease) {
  JsonText out = begin("lease", reason.at);
  out.field("lease", to_string(lease.id)).field("state", core::to_string(lease.state));
  out.key("end_reason");
  if (lease.ended()) out.value(core::to_string(lease.end_reason));
  else out.value(nullptr);
  write_reason(out, reason);
  out.field("user", lease.user).field("tenant", lease.tenant).field("consumer", lease.consumer);
  out.key("tag");
  if (lease.tag.empty()) out.value(nullptr);
  else out.value(lease.tag);
  out.field("tier", core::to_string(lease.tier));
  out.field("vram_bytes", lease.vram.count).key("devices").begin_array();
  for (const std::string& device : lease.devices) out.value(device);
  out.end_array().field("generation", lease.generation);
  if (lease.held_back_at) out.field("held_back", true);
  out.end_object();
  return out.take();
}

}  // namespace

void EventLog::open(std::uint64_t last_number, std::string life) {
  // Changes whose events were lost must get events again. A new store gets all of them.
  if (life != life_) told_ = durable_ = {};
  else if (ahead_) told_ = durable_;
  ahead_ = false;
  waiting_.clear();
  // A batch of unknown fate may have been kept. Then the store has events that were never sent.
  if (life != life_ || last_number != last_told_) recent_.clear();
  life_ = std::move(life);
  last_number_ = last_told_ = last_number;
}

EventLog::Event EventLog::make(std::string type, LeaseId lease, std::string data) {
  return std::make_shared<const store::LoggedEvent>(
      store::LoggedEvent{++last_number_, std::move(type), lease, std::move(data)});
}

std::vector<EventLog::Event> EventLog::of_plan(const core::Plan& plan, const Find& find) {
  std::vector<Event> events;
  std::unordered_map<LeaseId, const core::Lease*> changed;  // a release may grant thousands of leases
  for (const core::Lease& lease : plan.changed) changed.emplace(lease.id, &lease);
  for (const core::Reason& reason : plan.reasons) {
    const auto found = changed.find(reason.lease);
    const core::Lease* lease = found != changed.end() ? found->second : find(reason.lease);
    if (lease != nullptr) events.push_back(make("lease", reason.lease, lease_data(reason, *lease)));
  }
  return events;
}

EventLog::Event EventLog::of_daemon(std::string_view what, Time now, Duration asleep) {
  JsonText out = begin("daemon", now);
  out.field("state", what).field("version", SUBLET_VERSION);
  if (asleep > Duration::zero()) out.field("asleep_seconds", asleep / std::chrono::seconds(1));
  out.end_object();
  return make("daemon", {}, out.take());
}

EventLog::Event EventLog::of_capability(std::string type, std::string data) {
  return make(std::move(type), {}, std::move(data));
}

EventLog::Event EventLog::of_warning(const Warning& warning, bool begins, Time now) {
  JsonText out = begin("warning", now);
  out.field("state", begins ? "begun" : "ended").field("code", warning.code).field("text", warning.text);
  out.field("hint", warning.hint).field("since", format_rfc3339(warning.since)).end_object();
  return make("warning", {}, out.take());
}

std::vector<EventLog::Event> EventLog::of_changes(const core::State& state, const core::Rules& rules,
                                                  std::vector<Warning> warnings, Time now) {
  std::vector<Event> events;
  for (const auto& [uuid, device] : state.devices.by_uuid) {
    const char* word = device.lost ? "lost" : core::is_known(state, device, rules, now) ? "ok" : "unknown";
    auto& told = told_.devices[uuid];
    std::pair<std::string, std::string> is(word, device.problem);
    if (told == is) continue;
    told = is;
    JsonText out = begin("device", now);
    out.field("device", device.reading.id()).field("uuid", uuid).field("state", word);
    out.key("problem");
    if (device.problem.empty()) out.value(nullptr);
    else out.value(device.problem);
    out.end_object();
    events.push_back(make("device", {}, out.take()));
  }
  std::map<std::string, Warning> are;
  for (Warning& warning : warnings) are.emplace(warning.code + " " + warning.text, std::move(warning));
  for (const auto& [name, warning] : told_.warnings) {
    if (!are.contains(name)) events.push_back(of_warning(warning, false, now));
  }
  for (const auto& [name, warning] : are) {
    if (!told_.warnings.contains(name)) events.push_back(of_warning(warning, true, now));
  }
  told_.warnings = std::move(are);
  ahead_ |= !events.empty();
  return events;
}

void EventLog::intended(std::uint64_t sequence, const std::vector<Event>& events) {
  for (const Event& event : events) waiting_.push_back({sequence, event});
}

bool EventLog::committed(std::uint64_t sequence) {
  const std::uint64_t before = last_told_;
  while (!waiting_.empty() && waiting_.front().sequence <= sequence) {
    last_told_ = waiting_.front().event->number;
    recent_.push_back(std::move(waiting_.front().event));
    waiting_.pop_front();
    if (recent_.size() > kept_in_memory) recent_.pop_front();
  }
  if (ahead_ && waiting_.empty()) durable_ = told_, ahead_ = false;
  return last_told_ != before;
}

bool EventLog::holds(std::uint64_t after) const {
  return after >= last_told_ || (!recent_.empty() && after + 1 >= recent_.front()->number);
}

std::vector<EventLog::Event> EventLog::above(std::uint64_t after, std::size_t limit) const {
  std::vector<Event> found;
  auto from =
      std::partition_point(recent_.begin(), recent_.end(), [&](const Event& event) { return event->number <= after; });
  for (; from != recent_.end() && found.size() < limit; ++from) found.push_back(*from);
  return found;
}

}  // namespace sublet::engine
