// SPDX-License-Identifier: Apache-2.0
#include "simulate/figures.h"
#include "simulate/fill.h"
#include "simulate/output.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace sublet::simulate {
namespace {

using namespace std::chrono_literals;

class Csv : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::ofstream(file_) << text;
    return file_;
  }
  void TearDown() override { std::filesystem::remove(file_); }
  const std::string file_ = testing::TempDir() + "/trace-" + std::to_string(::getpid()) + ".csv";
};

TEST_F(Csv, NamesTheLineAndColumnOfABadTrace) {
  const struct {
    const char* text;
    const char* problem;
  } rows[] = {
      {"", ":1: the file is empty"},
      {"a,b\n1,2\n", ":1: the column 'arrives' is missing; there are a, b"},
      {"arrives,runs,vram,teir\n0,1h,8GiB,spot\n", ":1: the column 'teir' is not known – did you mean 'tier'?"},
      {"arrives,runs,vram,vram\n0,1h,8GiB,8GiB\n", ":1: the column 'vram' is there twice"},
      {"arrives,runs,vram\n", "there is no row below the names of the columns"},
      {"arrives,runs,vram\n0,1h,8GiB\n5,1h\n", ":3: 2 fields, and the first line names 3 columns"},
      {"arrives,runs,vram\n0,1h,8GiB\n5,1h,\"8G", ":3: a quotation mark is never closed"},
      {"arrives,runs,vram\n0,soon,8GiB\n", ":2: column 'runs': 'soon' is no duration"},
      {"arrives,runs,vram\n0,-5,8GiB\n", ":2: column 'runs': '-5' is a time that runs backwards"},
      {"arrives,runs,vram\n5,1h,8GiB\n-5,1h,8GiB\n", ":3: column 'arrives': '-5' is a time that runs backwards"},
      {"arrives,runs,vram\n0,1h,big\n", ":2: column 'vram': 'big' is no size"},
      {"arrives,runs,vram,devices\n0,1h,8GiB,0\n", ":2: column 'devices': '0' is not between 1 and 1024"},
      {"arrives,runs,vram,devices\n0,1h,8GiB,two\n", ":2: column 'devices': 'two' is no whole number"},
      {"arrives,runs,vram,tier\n0,1h,8GiB,urgent\n", ":2: column 'tier': 'urgent' is not known"},
  };
  for (const auto& row : rows) {
    const auto jobs = read_jobs(write(row.text));
    ASSERT_FALSE(jobs) << row.text;
    EXPECT_NE(jobs.error().detail.find(row.problem), std::string::npos) << jobs.error().detail;
  }
  EXPECT_NE(read_jobs(file_ + ".none").error().detail.find("cannot read"), std::string::npos);
  EXPECT_FALSE(read_openb(write("arrives,runs,vram\n0,1h,8GiB\n"))) << "a foreign file";
  EXPECT_FALSE(read_philly(write("timestamp,duration,num_gpus,cluster\nyesterday,1,1,a\n"), GiB));
}

TEST_F(Csv, SortsJobsByTheirArrivalAndFillsInWhatIsLeftOut) {
  const auto jobs =
      read_jobs(write("\xEF\xBB\xBF"
                      "runs,arrives,vram,user,pausable\r\n1h,1m,8GiB,\"a, b\",no\r\n\r\n90,30,1GiB,,\r\n"));
  ASSERT_TRUE(jobs) << jobs.error().detail;
  ASSERT_EQ(jobs->size(), 2U);
  EXPECT_EQ((*jobs)[0].arrives, 0s);
  EXPECT_EQ((*jobs)[0].runs, 90s);
  EXPECT_EQ((*jobs)[0].user, "user");
  EXPECT_EQ((*jobs)[1].arrives, 30s);
  EXPECT_EQ((*jobs)[1].user, "a, b");
  EXPECT_FALSE((*jobs)[1].pausable);
}

TEST(Devices, AreCountsAndSizes) {
  EXPECT_EQ(*parse_devices("2x24GiB,1x80GiB"), (std::vector<Bytes>{24 * GiB, 24 * GiB, 80 * GiB}));
  for (const char* text : {"", "24GiB", "0x24GiB", "2x", "x24GiB", "-1x1GiB"})
    EXPECT_FALSE(parse_devices(text)) << text;
}

Job job(Duration arrives, Duration runs, Bytes vram, core::Tier tier = core::Tier::standard) {
  Job its;
  its.arrives = arrives, its.runs = runs, its.vram = vram, its.tier = tier;
  return its;
}

Setting one_card() {
  Setting setting{.devices = {24 * GiB}, .rules = {}};
  setting.rules.headroom = {};
  return setting;
}

TEST(Run, JobsWaitForMemoryAndEndAfterTheirRun) {
  const Outcome out = run({job(0s, 1h, 20 * GiB, core::Tier::batch), job(1min, 10min, 4 * GiB),
                           job(2min, 30min, 22 * GiB, core::Tier::batch), job(3min, 1h, 25 * GiB)},
                          [] {
                            Setting setting = one_card();
                            setting.rules.automatic = false;
                            return setting;
                          }());
  EXPECT_EQ(out.jobs[0].ended, 1h);
  EXPECT_EQ(out.jobs[1].started, 1min) << "it fits beside";
  EXPECT_EQ(out.jobs[2].started, 1h);
  EXPECT_EQ(out.jobs[2].ended, 90min);
  EXPECT_EQ(out.jobs[3].how, Ran::How::refused) << "no device has so much";
  EXPECT_EQ(out.lasted, 90min);
  EXPECT_FALSE(out.partial);
}

TEST(Run, AHigherTierPausesAndThePausedOneLosesNoWork) {
  const std::vector<Job> jobs{job(0s, 1h, 20 * GiB, core::Tier::batch),
                              job(10min, 10min, 20 * GiB, core::Tier::interactive)};
  const Outcome out = run(jobs, one_card());
  EXPECT_EQ(out.pauses, 1);
  EXPECT_EQ(out.moved, 40 * GiB) << "out and back";
  EXPECT_LT(*out.jobs[1].started, 10min + 10s) << "20 GiB at 10 GiB/s, and a proof";
  const Duration away = *out.jobs[0].ended - 1h;
  EXPECT_GT(away, 10min);
  EXPECT_LT(away, 10min + 20s);
  EXPECT_EQ(out.jobs[0].how, Ran::How::done);
  const Figures figures = figures_of("x", jobs, out, 24 * GiB);
  EXPECT_EQ(figures.done, 2U);
  EXPECT_EQ(figures.waits.front().jobs, 2U);
  EXPECT_GT(figures.allocated, 0.7);
}

// Tenants of one weight come one after the other, and share the card in strict turns.
TEST(Run, NoLeaseWaitsLongerThanItsStatedBound) {
  std::vector<Job> jobs;
  for (int i = 0; i < 8; ++i) {
    jobs.push_back(job(i * 10min, 2h + i % 3 * 30min, 20 * GiB));
    jobs.back().name = "train";
    jobs.back().user = "u" + std::to_string(i);
  }
  Setting setting = one_card();
  setting.rules.ledger_limit = 1024 * GiB;
  setting.rules.ledger_user_share = 1;
  const Outcome out = run(jobs, setting);
  EXPECT_GT(out.bounds.stated, 500U);
  EXPECT_EQ(out.bounds.kept, out.bounds.stated);
  EXPECT_EQ(out.bounds.late, 0U) << std::chrono::duration<double>(out.bounds.largest).count() << " s over";
  EXPECT_NE(table_of(std::vector{figures_of("x", jobs, out, 24 * GiB)}).find("waits with a stated bound"),
            std::string::npos);
}

TEST(Run, IsTheSameEachTimeAndEndsWhereItIsToldTo) {
  std::vector<Job> jobs;
  for (int i = 0; i < 400; ++i)
    jobs.push_back(job(i * 7s, (1 + i % 13) * 1min, (1 + i % 11) * 2 * GiB, core::Tier(1 + i % 3)));
  Setting setting{.devices = {24 * GiB, 24 * GiB, 24 * GiB}, .rules = {}};
  const auto text = [&] { return json_of(std::vector{figures_of("x", jobs, run(jobs, setting), 24 * GiB)}).dump(); };
  EXPECT_EQ(text(), text());
  setting.goes_on = [](std::size_t arrived) { return arrived == 0; };
  const Outcome cut = run(jobs, setting);
  EXPECT_TRUE(cut.partial);
  EXPECT_NE(table_of(std::vector{figures_of("x", jobs, cut, 24 * GiB)}).find("x (partial)"), std::string::npos);
}

TEST(Fill, PlacesUntilNothingFitsAndTheDecisionsAgree) {
  std::vector<Job> jobs;
  for (int i = 0; i < 40; ++i) {
    Job& its = jobs.emplace_back(job(0s, 0s, (100 + i % 7 * 130) * thousandth));
    its.cpu = 1000;
  }
  jobs.emplace_back().devices = 2;
  jobs.back().vram = 1000 * thousandth;
  const std::vector<Node> nodes{{"a", 4, 1000 * thousandth, 96000, 1}, {"b", 2, 1000 * thousandth, 64000, 1}};
  const auto filled = [&](placement::Policy policy) { return fill(jobs, nodes, {.policy = policy}); };
  const Filled good = filled(placement::Policy::fragmentation), bad = filled(placement::Policy::spread);
  EXPECT_GE(good.allocated.size(), 130U);
  EXPECT_DOUBLE_EQ(good.allocated[0], 0);
  EXPECT_GE(good.allocated_at(130), bad.allocated_at(130));
  EXPECT_LE(good.allocated_at(130), 100);
  EXPECT_EQ(filled(placement::Policy::random).allocated, filled(placement::Policy::random).allocated);
  const std::vector<NamedFill> named{{"a<b", good}};
  EXPECT_EQ(json_of(named).at("allocated_at_100"), good.allocated[100]);
  EXPECT_NE(page_of(named).find("a&lt;b"), std::string::npos);
  EXPECT_EQ(page_of(named).find("http"), std::string::npos) << "it needs no other file";
}

}  // namespace
}  // namespace sublet::simulate
