// SPDX-License-Identifier: Apache-2.0
// The rendered text of verdicts, and the lines of `doctor` about the enforcer.
#include "cli/checks.h"
#include "cli/render_test.h"

#include <gtest/gtest.h>

namespace sublet::cli {
namespace {

using nlohmann::json;

TEST(Verdict, ShowsTheSourceOfEachParentThatHasEnded) {
  const json verdict{{"id", 3},
                     {"summary", "train (pid 50, ana) holds 1.0 GiB"},
                     {"user", "ana"},
                     {"uid", 1000},
                     {"ancestry",
                      {{{"pid", 40},
                        {"name", "sh\x1b[31m"},
                        {"source", "connector"},
                        {"certain", true},
                        {"ended", true},
                        {"ended_at", "2026-11-27T12:00:00.000Z"}},
                       {{"pid", 30},
                        {"name", nullptr},
                        {"source", "accounting"},
                        {"certain", false},
                        {"ended", true},
                        {"ended_at", nullptr}},
                       {{"pid", 1},
                        {"name", "systemd"},
                        {"source", "proc"},
                        {"certain", true},
                        {"ended", false},
                        {"ended_at", nullptr}}}},
                     {"missing_record", "the parent of process 30 ended before noon; no record"}};
  EXPECT_EQ(render_verdict(verdict, at_noon()),
            "verdict 3: train (pid 50, ana) holds 1.0 GiB\n"
            "  user       ana (1000)\n"
            "  parents    sh\\x1b[31m (40, ended 2026-11-27T12:00:00.000Z, by connector) < ? (30, ended, likely, by "
            "accounting) < systemd (1)\n"
            "  missing    the parent of process 30 ended before noon; no record\n"
            "  evidence   the driver's list\n");
}

TEST(EnforcementPreview, NamesWhatWouldBeEndedNowFirst) {
  const auto row = [](int id, const char* name) {
    return json{{"id", id}, {"user", "ana"}, {"pid", 50 + id}, {"name", name}, {"used_bytes", 1 << 30}};
  };
  json gone = row(1, "old"), ended = row(4, "loop"), lives = row(3, "train"), screen = row(2, "Xorg");
  gone["would_end_now"] = ended["would_end_now"] = false;
  gone["outcome"] = "gone";  // it may live, and hold no memory
  ended["outcome"] = "ended";
  lives["would_end_now"] = true;
  screen["spared_because"] = "it only draws";
  const json body{{"would_end", {gone, ended, lives}}, {"spared", {screen}}};
  Common common;
  common.columns = {"id", "name", "now"};
  EXPECT_EQ(*render_enforcement_preview(body, common, at_noon()),
            "ID  NAME   NOW\n"
            " 3  train  ends\n"
            " 1  old    holds no memory\n"
            " 4  loop   has ended\n"
            " 2  Xorg   spared: it only draws\n");
}

TEST(Doctor, TellsWhichSourcesOfLinksWork) {
  const json enforcer{{"policy", "warn"},
                      {"policies", json::array()},
                      {"approvals", {{{"id", 1}}}},
                      {"sources",
                       {{{"name", "connector"}, {"works", true}, {"text", "complete since noon"}},
                        {{"name", "accounting"}, {"works", false}, {"text", "enforcer.accounting names no file"}}}}};
  const json status{{"daemon", {{"actor", {{"groups", "/sys/fs/cgroup"}}}}}};
  EXPECT_EQ(render_checks(judge_enforcer(enforcer, status), Look{}),
            "ok    the policy for processes without a lease is warn, with 0 exceptions and 1 approvals\n"
            "ok    links of processes to leases: control groups, keepers, ancestry, sessions and process groups\n"
            "ok    fork records of the kernel (process connector): complete since noon\n"
            "note  process accounting: not read: enforcer.accounting names no file\n"
            "      hint: without it, parents that were dead before the daemon's start have no name: turn it on "
            "(package acct) and set enforcer.accounting\n"
            "all is well\n");
  json without = enforcer;
  without["sources"][0] = {{"name", "connector"}, {"works", false}, {"text", "no right"}};
  const Checks checks = judge_enforcer(without, json::object());
  EXPECT_EQ(checks[1].level, Check::Level::note) << "no control groups";
  EXPECT_EQ(checks[2].level, Check::Level::note);
  EXPECT_EQ(checks[2].text, "fork records of the kernel (process connector): not read: no right");
  EXPECT_NE(checks[2].hint.find("without them, a parent that ended before it was seen is missing"), std::string::npos);
  EXPECT_EQ(judge_enforcer(json(), status).size(), 1u) << "it is switched off";
}

}  // namespace
}  // namespace sublet::cli
