// SPDX-License-Identifier: Apache-2.0
#include "cli/slurm.h"
#include "cli/scontrol.h"

#include <gtest/gtest.h>

namespace sublet::cli {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

TEST(SlurmJob, IsReadFromThePathOfItsGroup) {
  EXPECT_EQ(job_of_group("/slurm_n1/uid_0/job_23/step_0"), 23U);
  EXPECT_EQ(job_of_group("/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7"), 7U);
  for (const char* path : {"", "/", "/job_", "/job_x", "/job_7x", "/xjob_7", "/job_-7", "/job_99999999999999999999999"})
    EXPECT_FALSE(job_of_group(path)) << path;
  EXPECT_EQ(group_of_job("/slurm/uid_0/job_23/step_0/task_0", 23), "/slurm/uid_0/job_23");
  EXPECT_EQ(group_of_job("/slurm/uid_0/job_23/step_0", 24), "");
}

TEST(SlurmJob, SizesAreGiBUnlessTheySayOtherwise) {
  EXPECT_EQ(parse_vram("6"), 6 * GiB);
  for (const char* text : {"6G", "6g", "6GiB", "6gib"}) EXPECT_EQ(parse_vram(text), 6 * GiB) << text;
  for (const char* text : {"1536M", "1536MiB"}) EXPECT_EQ(parse_vram(text), 1536 * MiB) << text;
  for (const char* text : {"", "x", "-6", "6 GiB x"}) EXPECT_FALSE(parse_vram(text)) << text;
}

TEST(SlurmJob, TheTenantIsTheAccountUnlessAnAdminNamesAnother) {
  EXPECT_EQ(tenant_of_account("", "lab"), "lab");
  EXPECT_EQ(tenant_of_account("lab:vision,prod:ml", "prod"), "ml");
  EXPECT_EQ(tenant_of_account("lab:vision,prod:ml", "pro"), "pro");
  for (const char* text : {"lab", ":x", "lab:", "lab:vision,", ",", "lab:vision,x"})
    EXPECT_EQ(tenant_of_account(text, "lab").has_value(), text == std::string("lab:vision,")) << text;
}

TEST(SlurmComment, KeepsTheTextOfOthersAndTheMinutesGivenSoFar) {
  const AdminComment first{
      .others = "do not touch", .given_minutes = 7, .text = "paused for lease-9, back about 14:05"};
  EXPECT_EQ(to_text(first), "do not touch sublet: paused for lease-9, back about 14:05; given back 7 min");
  const AdminComment read = parse_comment(to_text(first));
  EXPECT_EQ(read.others, first.others);
  EXPECT_EQ(read.given_minutes, 7);
  EXPECT_EQ(read.text, first.text);
  EXPECT_EQ(parse_comment("(null)").given_minutes, 0);
  EXPECT_EQ(parse_comment("(null)").others, "");
  EXPECT_EQ(parse_comment("mine").others, "mine");
  EXPECT_EQ(parse_comment("sublet: runs; given back x min").given_minutes, 0) << "no number";
  EXPECT_EQ(parse_comment("sublet: runs; given back -3 min").given_minutes, 0);
}

TEST(SlurmComment, TimeIsGivenInWholeMinutesAndAhead) {
  EXPECT_EQ(minutes_due(0s, 0s), 0);
  EXPECT_EQ(minutes_due(1s, 0s), 1);
  EXPECT_EQ(minutes_due(60s, 0s), 1);
  EXPECT_EQ(minutes_due(61s, 0s), 2);
  EXPECT_EQ(minutes_due(0s, 60s), 1) << "it stands still now";
}

TEST(SlurmJobs, AreTheLivingLeasesOfTheirGroups) {
  const auto clock = [](Time) { return std::string("14:05"); };
  json paused{{"state", "paused"},
              {"owner", {{"kind", "group"}, {"cgroup", "/slurm/job_4"}}},
              {"created_at", "2026-11-28T12:00:00.000Z"},
              {"granted_at", "2026-11-28T12:00:30.000Z"},
              {"paused_seconds", 90},
              {"tenant", "vision"},
              {"pause", {{"preemptor", "lease-9"}, {"until", "2026-11-28T14:05:00.000Z"}}}};
  json ended = paused, other = paused, foreign = paused;
  ended["state"] = "ended";
  other["owner"]["kind"] = "process";
  foreign["owner"]["cgroup"] = "/user.slice";
  const auto jobs = jobs_of({{"leases", {paused, ended, other, foreign}}}, Time{}, clock);
  ASSERT_EQ(jobs.size(), 1U);
  EXPECT_EQ(jobs[0].job, 4U);
  EXPECT_EQ(jobs[0].lost, 120s);
  EXPECT_EQ(jobs[0].comment, "paused for lease-9, back about 14:05");
  EXPECT_EQ(jobs[0].tenant, "vision");
  EXPECT_TRUE(jobs_of(json(), Time{}, clock).empty());
}

TEST(Scontrol, AJobIsReadWithItsComment) {
  const auto job = parse_job(
      "JobId=4 JobName=a JobState=RUNNING TimeLimit=00:10:00 Account=vision "
      "AdminComment=sublet: paused for lease-9, back about 14:05; given back 7 min WorkDir=/tmp Power=");
  EXPECT_EQ(job.at("JobState"), "RUNNING");
  EXPECT_EQ(job.at("AdminComment"), "sublet: paused for lease-9, back about 14:05; given back 7 min");
  EXPECT_EQ(job.at("WorkDir"), "/tmp");
  EXPECT_TRUE(parse_job("").empty());
}

TEST(Slurm, ATimeLimitIsReadAsMinutes) {
  EXPECT_EQ(minutes_of_limit("00:10:00"), 10);
  EXPECT_EQ(minutes_of_limit("1-02:30:00"), 1590);
  for (const char* none : {"", "UNLIMITED", "Partition_Limit", "10", "x-00:10:00", "-00:10:00", "00:99:00", "00:-1:00"})
    EXPECT_FALSE(minutes_of_limit(none)) << none;
}

TEST(Scontrol, AQuestionHasADeadlineAndTellsWhatWentWrong) {
  const Scontrol hangs{"sleep", 100ms}, fails{"sh", 60s};
  EXPECT_NE(run_scontrol(hangs, {"600"}).error().detail.find("did not answer within"), std::string::npos);
  EXPECT_NE(run_scontrol(fails, {"-c", "echo first; echo it is away >&2; exit 1"}).error().detail.find("it is away"),
            std::string::npos);
  EXPECT_EQ(run_scontrol(fails, {"-c", "echo right"}).value(), "right\n");
  EXPECT_FALSE(run_scontrol({"/no/such/scontrol", 60s}, {}));
}

TEST(SlurmShare, IsReadFromTheNodesOfAJob) {
  const auto none = [](const std::string&) { return std::vector<std::string>(); };
  const std::string text =
      "JobId=2 JOB_GRES=shard:8   Nodes=n1 CPU_IDs=1 Mem=0 GRES=shard:4(IDX:0)   "
      "Nodes=n2 CPU_IDs=0 Mem=0 GRES=gpu:1(IDX:1),shard:tesla:6(IDX:0,2-3) Features=(null)";
  EXPECT_EQ(share_of(text, "n1", none)->shards, 4);
  EXPECT_EQ(share_of(text, "n1", none)->cards, std::vector<int>{0});
  EXPECT_EQ(share_of(text, "n2", none)->shards, 6);
  EXPECT_EQ(share_of(text, "n2", none)->cards, (std::vector<int>{0, 2, 3}));
  EXPECT_FALSE(share_of(text, "n3", none));
  EXPECT_EQ(share_of("Nodes=n1 GRES=", "n1", none)->shards, 0);
  const auto both = [](const std::string& list) {
    EXPECT_EQ(list, "n[1-2]");
    return std::vector<std::string>{"n1", "n2"};
  };
  EXPECT_EQ(share_of("Nodes=n[1-2] CPU_IDs=0 GRES=shard:3(IDX:0)", "n2", both)->shards, 3);
  for (const char* forged : {"JobId=2 JobName=x Nodes=n1 GRES=shard:99(IDX:1) Nodes=n1 CPU_IDs=1 GRES=shard:4(IDX:0)",
                             "JobId=2 Nodes=n1 CPU_IDs=1 GRES=shard:4(IDX:0) WorkDir=/x GRES=shard:99(IDX:1)",
                             "JobId=2 JobName=x Nodes=--help GRES=shard:9 Nodes=n1 GRES=shard:4(IDX:0)"})
    EXPECT_FALSE(share_of(forged, "n1", none)) << forged;
  EXPECT_EQ(parse_gres("shard:9223372036854775807,shard:9223372036854775807").shards, 1 << 20);
  EXPECT_EQ(word_of_user("JobId=2 Account=lab Command=/tmp/a Account=prod TimeLimit=1:00"), "Account=");
  EXPECT_EQ(word_of_user("JobId=2 Account=lab TimeLimit=1:00"), "");
  EXPECT_EQ(address_of_job("JobId=23 ArrayJobId=20 ArrayTaskId=3 JobName=x", 23), "20_3");
  EXPECT_EQ(address_of_job("JobId=23 ArrayJobId=20 ArrayTaskId=4-9%2 JobName=x", 23), "23");
  EXPECT_EQ(address_of_job("JobId=23 JobName=x ArrayJobId=20 ArrayTaskId=3", 23), "23") << "its user chose this name";
  EXPECT_EQ(line_of_job("JobId=2 A=1\nJobId=3 A=2\n", 3), "JobId=3 A=2");
  EXPECT_EQ(line_of_job("JobId=3 JobName=x\nJobId=3 A=2\n", 3), "") << "its name has a line end";
  for (const char* odd :
       {"", ",", "shard", "shard:", "shard:x", "shard:4(", "(IDX:0)", "shard:4(IDX:)", "shard:4(IDX:x"})
    EXPECT_LE(parse_gres(odd).shards, 4) << odd;
}

TEST(SlurmGres, EachCardHasShardsOfOneGiB) {
  EXPECT_EQ(shards_of(24 * GiB - 300 * MiB, 2), 47);
  const json devices{{"devices", {{{"index", 0}, {"capacity_bytes", (24 * GiB).count}}}}};
  const std::string text = gres_text(devices, "n1", 1.5, {"/dev/nvidia0"});
  EXPECT_NE(text.find("NodeName=n1 Name=gpu File=/dev/nvidia0\nNodeName=n1 Name=shard Count=36 File=/dev/nvidia0\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("Gres=gpu:1,shard:36"), std::string::npos) << text;
}

}  // namespace
}  // namespace sublet::cli
