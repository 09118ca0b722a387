// SPDX-License-Identifier: Apache-2.0
// Tables at 80 columns: what tells most is read whole.
#include "cli/render.h"

#include <gtest/gtest.h>

namespace sublet::cli {
namespace {

using nlohmann::json;

Look narrow(std::size_t width = 80) {
  Look look;
  look.now = *parse_rfc3339("2026-11-21T12:00:00.000Z");
  look.device_names["GPU-1111"] = "gpu0";
  look.width = width;
  return look;
}

TEST(NarrowProclist, CommandsAreReadWhole) {
  const json list = json::parse(R"json({"processes": [
    {"pid": 1234567, "user": "ana", "uid": 1000, "device": "GPU-1111", "used_bytes": 6442450944, "lease": "lease-12",
     "link": "descendant", "start_ticks": 7, "command": "python train.py --data /srv/sets/images --epochs 90"},
    {"pid": 99, "user": "somebody-with-a-long-name", "uid": 1001, "device": "GPU-1111", "used_bytes": 1073741824,
     "lease": null, "link": "none", "start_ticks": 8, "command": null}]})json");
  EXPECT_EQ(*render_processes(list, Common{}, narrow()),
            "    PID  USER          GPU      USED  LEASE     LINK\n"
            "1234567  ana           gpu0  6.0 GiB  lease-12  descendant\n"
            "    python train.py --data /srv/sets/images --epochs 90\n"
            "     99  somebody-wi…  gpu0  1.0 GiB  none      none\n");
}

const json report = json::parse(R"json({"rows": [
  {"name": "ana", "leases": 12, "active": 1, "waiting": 2, "held_mib_seconds": 92160000, "never_used_mib_seconds": 100,
   "paused_mib_seconds": 0, "peak_used_bytes": 13421772800,
   "wait": {"count": 3, "p50_ms": 250, "p90_ms": 120000, "max_ms": 7200000}, "ended": {"released": 9, "failed": 2}},
  {"name": "the-render-farm-of-the-department", "leases": 1, "active": 0, "waiting": 0, "held_mib_seconds": 0,
   "never_used_mib_seconds": 0, "paused_mib_seconds": 0, "peak_used_bytes": 0, "wait": null, "ended": {}}]})json");

TEST(NarrowReport, WhatIsMissedLeastIsLeftOut) {
  json usual = report;
  usual["rows"][1]["name"] = "ben";
  EXPECT_EQ(*render_report(usual, Common{}, narrow()),
            "NAME  LEASES  ACTIVE  WAITING  GiB·h  UNUSED      PEAK  WAIT p50  p90  MAX\n"
            "ana       12       1        2   25.0     0 %  12.5 GiB     250ms   2m   2h\n"
            "    failed 2, released 9\n"
            "ben        1       0        0    0.0       -       0 B         -    -    -\n");
  EXPECT_EQ(*render_report(report, Common{}, narrow()),
            "NAME          LEASES  GiB·h  UNUSED      PEAK  WAIT p50  p90  MAX\n"
            "ana               12   25.0     0 %  12.5 GiB     250ms   2m   2h\n"
            "    failed 2, released 9\n"
            "the-render-…       1    0.0       -       0 B         -    -    -\n");
  EXPECT_NE(render_report(report, Common{}, narrow(0))->find("ENDED"), std::string::npos);
}

TEST(NarrowTokens, SayHowLongTheyLast) {
  const json tokens = json::parse(R"json({"tokens": [
    {"id": "token-1", "name": "continuous-integration-of-the-group", "scope": "submit", "user": "ana",
     "created_at": "2026-11-19T12:00:00.000Z", "expires_at": "2026-11-24T12:00:00.000Z"},
    {"id": "token-2", "name": null, "scope": "admin", "user": "ben", "created_at": "2026-11-21T11:00:00.000Z",
     "expires_at": null},
    {"id": "token-3", "name": "old", "scope": "read", "user": "ben", "created_at": "2026-11-01T11:00:00.000Z",
     "expires_at": "2026-11-21T12:00:00.000Z"}]})json");
  EXPECT_EQ(*render_tokens(tokens, Common{}, narrow()),
            "ID       NAME                                 SCOPE   USER  AGE  EXPIRES\n"
            "token-1  continuous-integration-of-the-group  submit  ana    2d  in 3d\n"
            "token-2  -                                    admin   ben    1h  never\n"
            "token-3  old                                  read    ben   20d  expired\n");
  Common common;
  common.columns = {"id", "created", "until"};
  EXPECT_NE(render_tokens(tokens, common, narrow())->find("2026-11-24T12:00:00.000Z"), std::string::npos);
}

}  // namespace
}  // namespace sublet::cli
