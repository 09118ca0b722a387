// SPDX-License-Identifier: Apache-2.0
// Values to the JSON of api/openapi.yaml.
#pragma once

#include "core/explain.h"
#include "engine/engine.h"
#include "http/message.h"

namespace sublet::http {

// `detailed`: with place, holders and estimate of a queued lease, which costs a walk over the queue.
json render_lease(const core::Lease& lease, const engine::Engine& engine, const engine::Peer& viewer, bool detailed);
json render_queue_info(const core::QueueInfo& info);
json render_device(const core::Device& device, const engine::Engine& engine, Time now);

}  // namespace sublet::http
