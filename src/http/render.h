// SPDX-License-Identifier: Apache-2.0
// Writes values as the JSON of the contract in api/.
#pragma once

#include "base/json_text.h"
#include "engine/engine.h"
#include "explain/explain.h"
#include "http/message.h"
#include "state/preemption_plan.h"

namespace sublet::http {

// Writes a lease, for calls on a lease and for tables. `detailed`: with place, holders and estimate of a queued lease,
// which needs a projection. `estimates`: those that a list shares.
void write_lease(JsonText& out, const core::Lease& lease, const engine::Engine& engine, const engine::Peer& viewer,
                 bool detailed, explain::Estimates* estimates = nullptr);
std::string render_lease(const core::Lease& lease, const engine::Engine& engine, const engine::Peer& viewer,
                         bool detailed);
void write_queue_info(JsonText& out, const explain::QueueInfo& info, const engine::Engine& engine,
                      bool held_back = false);
// The place of a lease that waits, or the one that is kept for a lease that is held back; null for others.
void write_queue(JsonText& out, const core::Lease& lease, const engine::Engine& engine, explain::Estimates& estimates);
// Writes the fields of a preemption preview into an open object.
void write_preview(JsonText& out, const core::VictimPlan& plan, const core::State& state);
// The slices of a card in MIG mode that are there, in their order.
std::vector<const core::Device*> slices_of(const engine::Engine& engine, const gpu::GpuDevice& card);
// A card in MIG mode, with the uuids of its slices.
json render_divided(const gpu::GpuDevice& card, const engine::Engine& engine);
json render_device(const core::Device& device, const engine::Engine& engine, Time now);

}  // namespace sublet::http
