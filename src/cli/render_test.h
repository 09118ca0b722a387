// SPDX-License-Identifier: Apache-2.0
// Literal replies of the API, for the tests of what a person sees.
#pragma once

#include "cli/render.h"

namespace sublet::cli {

inline Look at_noon() {
  Look look;
  look.now = *parse_rfc3339("2026-11-21T12:00:00.000Z");
  look.device_names["GPU-1111"] = "gpu0";
  return look;
}

inline const nlohmann::json leases = nlohmann::json::parse(R"json({"leases": [
  {"id": "lease-1", "state": "active", "consumer": "train", "tag": null, "user": "ana", "tier": "standard",
   "priority": 0, "devices": ["GPU-1111"], "vram_bytes": 8589934592, "reserved_bytes": 8589934592,
   "used_bytes": 6442450944,   "created_at": "2026-11-21T11:00:00.000Z", "granted_at": "2026-11-21T11:00:30.000Z",
   "ended_at": null,
   "expires_at": "2026-11-21T12:05:00.000Z", "owner": {"kind": "process", "pid": 77}, "stopping": false, "queue": null,
   "exit_status": null, "command": "python train.py\u001b[2J"},
  {"id": "lease-2", "state": "queued", "consumer": "eval", "tag": "e", "user": "ben", "tier": "batch", "priority": -5,
   "devices": [], "vram_bytes": 4294967296, "reserved_bytes": 0, "used_bytes": 0, "stopping": false,
   "created_at": "2026-11-21T11:58:00.000Z", "granted_at": null, "ended_at": null, "expires_at": null,
   "queue": {"place": 1, "short_bytes": 1073741824, "device": "GPU-1111", "eta_seconds": 300,
             "basis": "lease-1 expires",
             "holders": [{"lease": "lease-1", "what": "lease-1 (train, ana)", "bytes": 8589934592},
                         {"lease": null, "what": "firefox, pid 9 (without a lease)", "bytes": 209715200}]}},
  {"id": "lease-3", "state": "offered", "consumer": "web", "user": "ana", "tier": "interactive", "priority": 10,
   "devices": ["GPU-1111"], "vram_bytes": 1073741824, "used_bytes": 0, "stopping": false,
   "created_at": "2026-11-21T11:59:00.000Z", "offer_ends_at": "2026-11-21T12:00:08.000Z", "queue": null},
  {"id": "lease-4", "state": "ended", "end_reason": "released", "consumer": "old", "user": "ana", "tier": "standard",
   "priority": 0, "devices": ["GPU-2222-3333"], "vram_bytes": 1073741824, "used_bytes": 0, "exit_status": 3,
   "created_at": "2026-11-19T12:00:00.000Z", "ended_at": "2026-11-19T13:00:00.000Z", "stopping": false, "queue": null}
]})json");

}  // namespace sublet::cli
