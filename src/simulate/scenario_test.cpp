// SPDX-License-Identifier: Apache-2.0
// Scenarios, the past of a daemon, and the scheduler to compare with.
#include "simulate/scenario.h"

#include "simulate/history.h"
#include "simulate/output.h"
#include "simulate/point_in_time.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace sublet::simulate {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;

class ScenarioFile : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::ofstream(file_) << text;
    return file_;
  }
  void TearDown() override { std::filesystem::remove(file_); }
  const std::string file_ = testing::TempDir() + "/scenario-" + std::to_string(::getpid()) + ".toml";
};

const std::string head = "[scenario]\ndevices = \"2x24GiB\"\nlength = \"1h\"\n";
const std::string stream = "[[stream]]\nname = \"train\"\nruns = \"10m\"\n";

TEST_F(ScenarioFile, NamesTheLineOfWhatIsWrong) {
  const struct {
    std::string text;
    const char* problem;
  } rows[] = {
      {head + stream + "[placement]\npolicy = \"cheapest\"\n", ":8:"},
      {head + stream + "[placement]\npolicy = \"cheapest\"\n", "placement.policy"},
      {head + stream + "speed = 2\n", ":7:"},
      {head + "[fairness]\nwindow = \"1h\"\n", ":4:"},
      {head + "[[stream]]\nname = \"train\"\n", "runs"},
      {head + stream + "tier = \"urgent\"\n", ":7:"},
      {head + stream + "tenant = \"lba\"\n[[tenant]]\nname = \"lab\"\n", ":4: tenant = 'lba' has no entry"},
      {head + "[[stream]]\nname = \"a/b\"\nruns = \"10m\"\n", ":4: name = 'a/b' is no name"},
      {head + stream + "user = \"a\\u0007\"\n", ":7:8: stream.user"},
      {head + stream + "[[tenant]]\nname = \"a\"\nparent = \"b\"\n", ":7:"},
      {head, "there is no stream of jobs"},
      {stream, "scenario.devices is missing"},
      {"[scenario]\ndevices = \"many\"\nlength = \"1h\"\n" + stream, ":2: scenario.devices: 'many' names no devices"},
      {head + stream + "first = \"2h\"\n", "no job arrives before the end of the scenario"},
      {head + stream + "every = \"1ms\"\nat_once = 100000\n", ":4: the streams have more than 2000000 jobs"},
  };
  for (const auto& row : rows) {
    const auto read = read_scenario(write(row.text));
    ASSERT_FALSE(read) << row.text;
    EXPECT_NE(read.error().detail.find(row.problem), std::string::npos) << read.error().detail;
  }
  EXPECT_NE(read_scenario("rush").error().detail.find("there is no scenario 'rush'"), std::string::npos);
  EXPECT_FALSE(read_scenario("/none.toml"));
}

TEST_F(ScenarioFile, StreamsBecomeJobsThatAreTheSameEachTime) {
  const std::string text = head + stream +
                           "tenant = \"lab\"\nevery = \"20m\"\nfirst = \"5m\"\nat_once = 2\nspread = 0.5\n"
                           "[[tenant]]\nname = \"lab\"\nquota_devices = 1\n[tenants]\nwindow = \"3h\"\n";
  const auto read = read_scenario(write(text));
  ASSERT_TRUE(read) << read.error().detail;
  ASSERT_GE(read->jobs.size(), 4U);
  EXPECT_EQ(read->jobs[0].arrives, 5min);
  EXPECT_EQ(read->jobs[1].arrives, 5min);
  EXPECT_EQ(read->jobs[0].whose(), "lab");
  EXPECT_EQ(read->jobs[0].vram, Bytes{}) << "all of a device, whichever there will be";
  for (const Job& job : read->jobs) {
    EXPECT_GE(job.runs, 5min);
    EXPECT_LE(job.runs, 15min);
    EXPECT_LT(job.arrives, 1h);
  }
  EXPECT_EQ(read->tenants.at(0).quota.thousandths, 1000);
  EXPECT_EQ(read->config.tenants.window, 3h);
  const auto again = read_scenario(file_);
  for (std::size_t i = 0; i < read->jobs.size(); ++i) EXPECT_EQ(again->jobs[i].runs, read->jobs[i].runs);
  EXPECT_NE(read_scenario(file_, 7)->jobs[0].runs, read->jobs[0].runs) << "another seed";
}

TEST(Scenario, TheOneThatShipsHasItsGuarantees) {
  const auto burst = read_scenario("burst");
  ASSERT_TRUE(burst) << burst.error().detail;
  EXPECT_EQ(burst->devices.size(), 60U);
  EXPECT_EQ(burst->config.tenants.window, 2h);
  EXPECT_EQ(burst->config.tenants.slot, 1h);
}

TEST(Divide, GivesGuaranteesFirstAndTheRestByWeight) {
  EXPECT_EQ(divide(60, {{20, 2, 40}, {10, 1, 5}, {0, 2, 100}}), (std::vector<double>{37.5, 5, 17.5}));
  EXPECT_EQ(divide(60, {{20, 1, 10}, {0, 1, 10}}), (std::vector<double>{10, 10})) << "nobody gets more than it wants";
  EXPECT_EQ(divide(10, {{20, 1, 20}, {20, 1, 20}}), (std::vector<double>{5, 5})) << "more is guaranteed than there is";
}

Job job(const char* tenant, Duration arrives, Duration runs, int devices) {
  Job its;
  its.name = its.user = its.tenant = tenant;
  its.arrives = arrives, its.runs = runs, its.devices = devices, its.vram = 24 * GiB;
  return its;
}

Setting four_cards() {
  Setting setting{.devices = {24 * GiB, 24 * GiB, 24 * GiB, 24 * GiB}, .rules = {}};
  setting.rules.headroom = {};
  setting.rules.ledger_limit = 1024 * GiB;
  setting.rules.ledger_user_share = 1;
  core::Tenant llm;
  llm.name = "llm", llm.quota.thousandths = 4000;
  setting.tenants = {llm};
  setting.until = 10h;
  return setting;
}

// One tenant borrows everything for two hours; after one of them, the other wants what is guaranteed to it.
const std::vector<Job> borrowed{job("vision", 0s, 2h, 4), job("llm", 1h, 1h, 4)};

TEST(PointInTime, EndsTheBorrowerWhichBeginsAnew) {
  const Outcome lost = run_point_in_time(borrowed, four_cards(), {});
  EXPECT_EQ(lost.jobs[1].started, 1h);
  EXPECT_EQ(lost.jobs[0].pauses, 1);
  EXPECT_EQ(lost.jobs[0].ended, 4h) << "it begins anew after the other";
  const Outcome kept = run_point_in_time(borrowed, four_cards(), {.checkpoint = 45min});
  EXPECT_EQ(kept.jobs[0].ended, 3h + 15min) << "it goes on from its checkpoint";
  EXPECT_EQ(kept.tenants.at("llm").served, 1U);
  const Outcome slow = run_point_in_time(borrowed, four_cards(), {.grace = 30s});
  EXPECT_EQ(slow.jobs[1].started, 1h + 30s) << "the borrower has its time to end";
}

TEST(PointInTime, GivesMemoryByTheTenantsOfThisMomentOnly) {
  Setting setting = four_cards();
  setting.tenants.clear();
  std::vector<Job> jobs{job("vision", 0s, 1h, 2), job("vision", 1min, 1h, 2), job("vision", 2min, 1h, 2),
                        job("speech", 3min, 1h, 4)};
  const Outcome out = run_point_in_time(jobs, setting, {});
  EXPECT_EQ(out.jobs[2].started, 1h) << "the large job is beyond the part of its tenant, and gets no memory back";
  EXPECT_EQ(out.jobs[3].started, 2h);
  EXPECT_EQ(run_point_in_time({job("a", 0s, 1h, 5)}, setting, {}).jobs[0].how, Ran::How::refused);
}

TEST(Tenants, AGuaranteeIsServedByAPauseThatTakesAsLongAsPredicted) {
  const Outcome out = run(borrowed, four_cards());
  const TenantSums::Sum& llm = out.tenants.at("llm");
  EXPECT_EQ(llm.asked, 1U);
  EXPECT_EQ(llm.served, 1U) << std::chrono::duration<double>(llm.latest).count() << " s late";
  EXPECT_EQ(out.jobs[0].got, 2h) << "nothing is lost";
  const Figures figures = figures_of("x", borrowed, out, 24 * GiB);
  ASSERT_EQ(figures.tenants.size(), 2U);
  EXPECT_GT(figures.useful, 0.29);
  const std::vector all{figures};
  EXPECT_NE(table_of(all).find("guarantees served"), std::string::npos);
  EXPECT_NE(tenants_csv_of(all).find("\nx,llm,100.0000,"), std::string::npos) << tenants_csv_of(all);
  EXPECT_NE(picture_of(all).find("xmlns"), std::string::npos);
}

TEST(PointInTime, EndsNoMoreJobsThanNeeded) {
  // Two small jobs fit on what is left of the three devices of the first victim.
  Setting setting = four_cards();
  setting.tenants[0].quota.thousandths = 2000;
  const std::vector<Job> jobs{job("vision", 0s, 9h, 1), job("vision", 1min, 9h, 3), job("llm", 1h, 1h, 1),
                              job("llm", 1h, 1h, 1)};
  const Outcome out = run_point_in_time(jobs, setting, {});
  EXPECT_EQ(out.pauses, 1);
  EXPECT_EQ(out.jobs[2].started, 1h);
  EXPECT_EQ(out.jobs[3].started, 1h);
}

TEST(PointInTime, EveryJobWithinThePartMayTakeMemoryBack) {
  Setting setting = four_cards();
  setting.tenants[0].quota.thousandths = 1000;
  const std::vector<Job> jobs{job("vision", 0s, 9h, 4), job("llm", 1h, 1h, 4), job("llm", 1h + 1s, 1h, 1)};
  const Outcome out = run_point_in_time(jobs, setting, {});
  EXPECT_EQ(out.jobs[2].started, 1h + 1s) << "the large job before it is beyond the part, and does not hold it up";
}

TEST(Outcomes, CountUpToTheStatedEnd) {
  const std::vector<Job> jobs{job("llm", 0s, 1h, 4)};
  for (const Outcome& out : {run(jobs, four_cards()), run_point_in_time(jobs, four_cards(), {})}) {
    EXPECT_EQ(out.lasted, 10h);
    EXPECT_NEAR(out.used, static_cast<double>(out.capacity.count) / 10, 1e9);
  }
}

TEST(Outcomes, SamplesAreMeansOverTheirTime) {
  for (const Outcome& out : {run(borrowed, four_cards()), run_point_in_time(borrowed, four_cards(), {})}) {
    double sum = 0, held = 0;
    for (std::size_t i = 0; i < out.samples.size(); ++i) {
      const Duration next = i + 1 < out.samples.size() ? out.samples[i + 1].at : out.lasted;
      const double seconds = std::chrono::duration<double>(next - out.samples[i].at).count();
      sum += static_cast<double>(out.samples[i].allocated.count) * seconds;
      for (const Bytes bytes : out.samples[i].tenants) held += static_cast<double>(bytes.count) * seconds;
    }
    EXPECT_NEAR(sum, out.used * 36000, 1e-6 * sum);
    EXPECT_NEAR(held, sum, 1e-6 * sum);
    EXPECT_LE(out.samples.size(), 256U);
  }
}

// ------------------------------------------------------------------------------------ the past

Json lease(const char* created, Json granted, Json ended, Json more = Json::object()) {
  Json its{{"created_at", created}, {"granted_at", granted}, {"ended_at", ended},   {"vram_bytes", 1 << 30},
           {"user", "ana"},         {"tenant", "lab"},       {"tier", "batch"},     {"device_count", 1},
           {"priority", 3},         {"pausable", "no"},      {"consumer", "train"}, {"remembered", true},
           {"paused_seconds", 0}};
  its.update(more);
  return its;
}

Json past_of(Json leases, Json gaps = Json::array()) {
  return {
      {"from", "2026-11-20T00:00:00Z"},
      {"to", "2026-11-21T00:00:00Z"},
      {"whole", false},
      {"leases", std::move(leases)},
      {"devices", {{{"index", 1}, {"total_bytes", 4 * GiB.count}}, {{"index", 0}, {"total_bytes", 2 * GiB.count}}}},
      {"tenants",
       {{{"name", "lab"}, {"entry", true}, {"quota_bytes", 5}, {"weight", 1.5}}, {{"name", "x"}, {"entry", false}}}},
      {"gaps", std::move(gaps)}};
}

bool tells(const History& history, const char* words) {
  return std::ranges::any_of(history.notes,
                             [words](const std::string& note) { return note.find(words) != std::string::npos; });
}

TEST(History, LeasesBecomeJobsThatRanAsLongAsTheyDid) {
  const auto history = read_history(past_of({
      lease("2026-11-20T02:00:00Z", "2026-11-20T03:00:00Z", "2026-11-20T05:00:00Z", {{"paused_seconds", 1800}}),
      lease("2026-11-20T01:00:00Z", "2026-11-20T01:00:00Z", nullptr),
      lease("2026-11-19T20:00:00Z", "2026-11-19T20:00:00Z", "2026-11-20T00:30:00Z"),
      lease("2026-11-20T04:00:00Z", nullptr, "2026-11-20T05:00:00Z"),
      lease("2026-11-19T04:00:00Z", "2026-11-19T04:00:00Z", "2026-11-19T05:00:00Z"),
  }));
  ASSERT_TRUE(history) << history.error().detail;
  ASSERT_EQ(history->jobs.size(), 3U);
  EXPECT_EQ(history->jobs[0].arrives, 0s);
  EXPECT_EQ(history->jobs[0].runs, 30min) << "only what is in the period";
  EXPECT_EQ(history->jobs[1].runs, 23h) << "up to now";
  EXPECT_EQ(history->jobs[2].arrives, 2h);
  EXPECT_EQ(history->jobs[2].runs, 90min) << "without its pause";
  EXPECT_EQ(history->jobs[2].name, "train");
  EXPECT_EQ(history->jobs[2].tier, core::Tier::batch);
  EXPECT_FALSE(history->jobs[2].pausable);
  EXPECT_EQ(history->devices, (std::vector<Bytes>{2 * GiB, 4 * GiB}));
  ASSERT_EQ(history->tenants.size(), 1U);
  EXPECT_EQ(history->tenants[0].weight, 1500);
  EXPECT_TRUE(tells(*history, "1 lease never got memory"));
  EXPECT_TRUE(tells(*history, "1 lease has not ended"));
  EXPECT_TRUE(tells(*history, "1 lease is older than the period"));
}

TEST(History, GapsAreToldWithTheirLengthAndNotFilled) {
  const Json one = lease("2026-11-20T10:00:00Z", "2026-11-20T10:00:00Z", "2026-11-20T11:00:00Z");
  const Json gaps = {{{"from", "2026-11-20T12:00:00Z"},
                      {"to", "2026-11-20T14:00:00Z"},
                      {"what", "used"},
                      {"why", "the daemon did not run"}},
                     {{"from", "2026-11-20T13:00:00Z"},
                      {"to", "2026-11-20T15:00:00Z"},
                      {"what", "leased"},
                      {"why", "the daemon did not run"}}};
  auto history = read_history(past_of({one}, gaps));
  EXPECT_EQ(history->gaps, 3h) << "where they overlap they count once";
  EXPECT_TRUE(tells(*history, "2 gaps of 3 h in all (the daemon did not run)"));
  EXPECT_EQ(history->jobs.size(), 1U);
  EXPECT_TRUE(tells(*read_history(past_of({one}, nullptr)), "gaps are not known"));
  Json others = past_of({one});
  others["all_tenants"] = false;
  EXPECT_TRUE(tells(*read_history(others), "only an admin sees all tenants"));
  Json whole = past_of({one});
  whole["whole"] = true;
  history = read_history(whole);
  EXPECT_TRUE(tells(*history, "nothing is known of the 10 h before"));
  EXPECT_EQ(history->jobs[0].arrives, 0s);
  whole["leases"].push_back(lease("2026-11-10T00:00:00Z", "2026-11-10T00:00:00Z", nullptr));
  history = read_history(whole);
  EXPECT_TRUE(tells(*history, "nothing is known of the 10 h before")) << "a living lease tells nothing of ended ones";
}

TEST(History, ReadsNothingFromAnAnswerOfAnotherKind) {
  EXPECT_FALSE(read_history(Json::object()));
  Json backwards = past_of(Json::array());
  std::swap(backwards["from"], backwards["to"]);
  EXPECT_FALSE(read_history(backwards)) << "its times run backwards";
  EXPECT_TRUE(read_history(past_of({{{"created_at", 7}}, "no lease"})));
}

}  // namespace
}  // namespace sublet::simulate
