// SPDX-License-Identifier: Apache-2.0
// The answer to a dry run.
#include "explain/dry_run.h"

#include "explain/plan_ahead.h"
#include "http/asking.h"
#include "http/render.h"

namespace sublet::http {
namespace {

using core::Lease;

std::int64_t ms(Duration duration) { return std::chrono::duration_cast<std::chrono::milliseconds>(duration).count(); }

void write_yields(JsonText& out, const explain::Yields& yields, const engine::Engine& engine, Time now) {
  const Lease* lease = core::find(engine.state(), yields.lease);
  out.begin_object().field("lease", to_string(yields.lease));
  out.field("consumer", lease != nullptr ? lease->consumer : "").field("user", lease != nullptr ? lease->user : "");
  out.field("tier", core::to_string(lease != nullptr ? lease->tier : core::Tier::standard));
  out.field("ends", yields.ends).field("frees_in_ms", ms(yields.at - now));
  out.field("back_in_ms", yields.back ? std::optional(ms(*yields.back - now)) : std::nullopt).end_object();
}

void write_planned(JsonText& out, const std::vector<explain::PlannedStart>& all, const engine::Engine& engine,
                   Time now) {
  out.begin_array();
  for (const explain::PlannedStart& its : all) {
    out.begin_object().field("lease", to_string(its.lease.id));
    out.field("starts_in_ms", its.at ? std::optional(ms(*its.at - now)) : std::nullopt);
    out.key("devices").begin_array();
    for (const std::string& device : its.lease.devices) out.value(device);
    out.end_array().field("basis", its.queue.basis).key("yields").begin_array();
    for (const explain::Yields& yields : its.yields) write_yields(out, yields, engine, now);
    out.end_array().end_object();
  }
  out.end_array();
}

}  // namespace

Response dry_run_of(const Call& call, const LeaseCall& asked, std::optional<int> count) {
  const engine::Engine& engine = call.engine;
  const Time now = engine.now();
  auto found = explain::dry_run(engine.state(), engine.rules(), asked.submit, now);
  if (!found) return problem(found.error());
  explain::limit_to_host(found->room, engine.state(), engine.rules(), call.request.peer.uid);
  JsonText out;
  out.begin_object().field("would", explain::to_string(found->would)).key("devices").begin_array();
  const bool known = found->would == explain::Would::preempt;
  for (const std::string& device : known ? found->room.devices : found->lease.devices) out.value(device);
  out.end_array().field("vram_bytes", found->lease.vram.count).key("queue");
  if (found->queue.place > 0) write_queue_info(out, found->queue, engine);
  else out.value(nullptr);
  out.key("preemption").begin_object();
  write_preview(out, found->room, engine.state());
  out.end_object();
  if (count) {
    const auto planned = explain::plan_ahead(engine.state(), engine.rules(), asked.submit, *count, now);
    if (!planned) return problem(planned.error());
    write_planned(out.key("planned"), *planned, engine, now);
  }
  return as_json(200, out.end_object().take());
}

}  // namespace sublet::http
