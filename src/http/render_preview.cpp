// SPDX-License-Identifier: Apache-2.0
#include "http/render.h"

namespace sublet::http {
namespace {

std::int64_t ms(Duration duration) { return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count(); }

void write_victim(JsonText& out, const core::Victim& victim, const core::State& state) {
  const core::Lease* lease = core::find(state, victim.lease);
  out.begin_object().field("lease", to_string(victim.lease));
  out.field("consumer", lease != nullptr ? lease->consumer : "").field("user", lease != nullptr ? lease->user : "");
  out.field("tier", core::to_string(lease != nullptr ? lease->tier : core::Tier::standard));
  const bool gives_back = victim.reclaim && !victim.ends;
  out.field("method", victim.ends ? "end" : gives_back ? "give_back" : core::to_string(victim.method));
  out.field("bytes", victim.bytes.count).field("freed_bytes", victim.gain.count);
  out.field("pause_ms", ms(victim.pause.likely)).field("pause_p95_ms", ms(victim.pause.at_most));
  out.field("resume_ms", ms(victim.resume.likely)).field("cost_ms", ms(victim.cost));
  out.field("samples", victim.pause.samples);
  const bool failed = !victim.ends && !gives_back && lease != nullptr;
  const core::MethodRecord* record = failed ? core::record_of(state, lease->whose(), victim.method) : nullptr;
  out.field("penalty_ms", victim.ends ? 0 : ms(victim.cost - victim.pause.likely - victim.resume.likely));
  out.field("tried", record != nullptr ? record->tries : 0).field("failed", record != nullptr ? record->failed() : 0);
  out.end_object();
}

}  // namespace

void write_preview(JsonText& out, const core::VictimPlan& plan, const core::State& state) {
  out.field("found", plan.found).field("why_not", plan.why_not).key("devices").begin_array();
  for (const std::string& device : plan.devices) out.value(device);
  out.end_array().key("victims").begin_array();
  for (const core::Victim& victim : plan.victims) write_victim(out, victim, state);
  out.end_array().field("in_progress", plan.in_progress).field("pause_ms", ms(plan.pause));
  out.field("wait_ms", plan.wait ? std::optional(ms(*plan.wait)) : std::nullopt).field("wait_for", plan.wait_for);
  out.field("cost_ms", ms(plan.cost)).field("short_bytes", plan.short_bytes.count).key("ineligible").begin_array();
  for (const core::Ineligible& ineligible : plan.ineligible) {
    out.begin_object().field("lease", to_string(ineligible.lease)).field("why", ineligible.why).end_object();
  }
  out.end_array().field("paused_for_ms", plan.paused_for ? std::optional(ms(*plan.paused_for)) : std::nullopt);
  out.field("paused_for_basis", plan.paused_for_basis).field("hint", plan.hint);
}

}  // namespace sublet::http
