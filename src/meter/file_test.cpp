// SPDX-License-Identifier: Apache-2.0
#include "meter/file.h"
#include "meter/integrator.h"
#include "meter/report.h"
#include "meter/test_support.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>

namespace sublet::meter {
namespace {

using core::LeaseState;
using nlohmann::json;

class MeterFile : public ::testing::Test {
 protected:
  MeterFile() {
    path_ = std::filesystem::temp_directory_path() / ("meter-" + std::to_string(::getpid()));
    std::filesystem::remove_all(path_);
    std::filesystem::create_directory(path_);
    open();
  }
  ~MeterFile() override { std::filesystem::remove_all(path_); }

  void open() {
    file_.reset();
    bool unusable = false;
    auto opened = File::open(name(), unusable);
    ASSERT_TRUE(opened) << opened.error().detail;
    file_ = std::move(*opened);
  }
  std::string name() const { return path_ / "meter.db"; }
  void put(Integrator& meter, Ms at) {
    const Deltas deltas = meter.flush(at);
    const Status done = file_->put(deltas, {"life", 7, meter.write().dump()});
    ASSERT_TRUE(done) << done.error().detail;
  }
  json report(By by, Ms from, Ms to, bool whole = false) {
    auto read = read_report(*file_, {from, to, to, by, whole, {{"g0", "gpu0"}}});
    EXPECT_TRUE(read) << read.error().detail;
    return read ? *read : json();
  }
  static json row(const json& report, const std::string& name) {
    for (const json& row : report.at("rows"))
      if (row.at("name") == name) return row;
    return {};
  }

  std::filesystem::path path_;
  std::unique_ptr<File> file_;
};

LeaseFact fact(std::uint64_t lease, Ms at, LeaseState state, const std::string& user, std::int64_t vram = gib) {
  LeaseFact made;
  made.lease = LeaseId{lease};
  made.at = at;
  made.state = state;
  made.account = {user, "lab", "train"};
  made.vram = vram;
  if (state != LeaseState::queued) made.devices = {"g0"};
  if (state == LeaseState::ended) made.end_reason = core::EndReason::released;
  return made;
}

TEST_F(MeterFile, TheMarkAndTheAmountsOutliveARestart) {
  Integrator meter(monday);
  meter.take(fact(1, monday, LeaseState::active, "ana"));
  put(meter, monday + 90'000);
  open();
  const auto mark = file_->mark();
  ASSERT_TRUE(mark);
  EXPECT_EQ(mark->life, "life");
  EXPECT_EQ(mark->event, 7U);
  auto again = Integrator::read(json::parse(mark->state));
  ASSERT_TRUE(again);
  put(*again, monday + 2 * hour);
  EXPECT_EQ(row(report(By::user, monday, monday + 2 * hour), "ana")["held_mib_seconds"], 1024 * 7200);
  // A part of the period: whole hours and the minutes around them.
  EXPECT_EQ(row(report(By::user, monday + 30 * minute, monday + 100 * minute), "ana")["held_mib_seconds"],
            1024 * 70 * 60);
}

TEST_F(MeterFile, DaysHoursAndMinutesMakeAnyPeriod) {
  Integrator meter(monday);
  meter.take(fact(1, monday, LeaseState::active, "ana"));
  for (int days = 1; days <= 4; ++days) put(meter, monday + days * day);
  for (const Ms from : {Ms{0}, 59 * minute, 60 * minute, 61 * minute, day, day + 90 * minute})
    for (const Ms length : {minute, 60 * minute, 61 * minute, day, 2 * day, 2 * day + 150 * minute})
      EXPECT_EQ(row(report(By::user, monday + from, monday + from + length), "ana")["held_mib_seconds"],
                1024 * length / 1000)
          << from << " " << length;
}

TEST_F(MeterFile, AFileOfAnEarlierProgramGetsWhatIsMissing) {
  Integrator before(monday - day);
  before.take(fact(2, monday - day, LeaseState::active, "ben"));
  Reading work{monday - day};
  work.uses[{"g0", 2}] = {gib, 50};
  before.take(work);
  put(before, monday - day + 10'000);
  for (const char* table : {"minutes", "hours", "days"}) {
    const std::string sql = std::string("ALTER TABLE ") + table + " DROP COLUMN judged";
    ASSERT_TRUE(file_->database().run(sql.c_str()));
  }
  for (const char* table : {"DROP TABLE checkpoints", "DROP TABLE work"}) ASSERT_TRUE(file_->database().run(table));
  open();
  Integrator meter(monday);
  meter.take(fact(1, monday, LeaseState::active, "ana"));
  Reading reading{monday};
  reading.uses[{"g0", 1}] = {gib, 0};
  meter.take(reading);
  meter.take(SessionFact{monday + 1'000, LeaseId{1}, "session-1", 700});
  put(meter, monday + 10'000);
  const json ana = row(report(By::user, monday, monday + minute), "ana");
  EXPECT_EQ(ana["judged_mib_seconds"], 1024 * 10);
  const json ben = row(report(By::user, monday - day, monday - day + minute), "ben");
  EXPECT_EQ(ben["judged_mib_seconds"], 1024 * 10) << "as the earlier program would have told";
  EXPECT_EQ(ana["checkpoint_bytes"], 700);
}

TEST_F(MeterFile, WorkBehindTheInterposerIsAddedUpAndUnknownElsewhere) {
  Integrator meter(monday);
  meter.take(fact(1, monday, LeaseState::active, "ana"));
  meter.take(fact(2, monday, LeaseState::active, "ana"));
  meter.take(fact(3, monday, LeaseState::active, "ben"));
  put(meter, monday + 3 * minute);
  constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  Deltas deltas;
  deltas.work[{monday, 1}] = {11, 3072, 4096, 2, 1'500'000, 12'300'000};
  deltas.work[{monday + minute, 1}] = {4, 0, 0, 0, 0, 0};
  deltas.work[{monday + minute, 2}] = {};
  Deltas later;
  later.work[{monday + minute, 1}] = {1, 0, largest, 0, 0, 0};
  deltas.add(std::move(later));
  ASSERT_TRUE(file_->put(deltas, {"life", 8, meter.write().dump()}));
  ASSERT_TRUE(file_->put(deltas, {"life", 9, meter.write().dump()}));
  const json all = report(By::user, monday, monday + 3 * minute);
  const json ana = row(all, "ana"), ben = row(all, "ben");
  EXPECT_EQ(ana["launches"], 2 * 16);
  EXPECT_EQ(ana["copied_bytes"], 2 * 3072);
  EXPECT_EQ(ana["errors"], 4);
  EXPECT_EQ(ana["charged_seconds"], 3.0);
  EXPECT_EQ(ana["share_waited_seconds"], 24.6);
  EXPECT_EQ(ana["allocated_bytes"], largest) << "a program may say any number";
  for (const char* field : {"launches", "errors", "copied_bytes", "allocated_bytes", "share_waited_seconds"})
    EXPECT_TRUE(ben[field].is_null()) << field;
  EXPECT_EQ(all["total"]["launches"], 32);
  EXPECT_EQ(row(report(By::user, monday + minute, monday + 2 * minute), "ana")["launches"], 10);
  EXPECT_TRUE(report(By::device, monday, monday + 3 * minute)["total"]["launches"].is_null());
}

TEST_F(MeterFile, PlotsBeginWithTheFirstAmount) {
  Integrator meter(monday + 5 * hour + 7 * minute);
  meter.take(fact(1, monday + 5 * hour + 7 * minute, LeaseState::active, "ana"));
  put(meter, monday + 5 * hour + 17 * minute);
  const json whole = report(By::user, monday, monday + 5 * hour + 17 * minute, true);
  const json& points = whole["series"]["devices"][0]["points"];
  EXPECT_EQ(points.size(), 10U);
  EXPECT_EQ(points[0]["at"], "2025-11-24T05:07:00.000Z");
}

TEST_F(MeterFile, RowsByEachName) {
  Integrator meter(monday);
  meter.take(fact(1, monday, LeaseState::active, "ana", 4 * gib));
  meter.take(fact(2, monday + 10'000, LeaseState::queued, "ben"));
  Reading reading{monday + 10'000};
  reading.uses[{"g0", 1}] = {gib, 0};
  reading.devices["g0"] = {8 * gib, gib, 0};
  meter.take(reading);
  meter.take(fact(1, monday + 40'000, LeaseState::ended, "ana", 4 * gib));
  meter.take(fact(2, monday + 40'000, LeaseState::active, "ben"));
  put(meter, monday + 70'000);
  const json by_user = report(By::user, monday, monday + 70'000, true);
  const json ana = row(by_user, "ana"), ben = row(by_user, "ben");
  EXPECT_EQ(ana["held_mib_seconds"], 4096 * 40);
  EXPECT_EQ(ana["used_mib_seconds"], 1024 * 30);
  EXPECT_EQ(ana["idle_mib_seconds"], 4096 * 30);
  EXPECT_EQ(ana["idle_waited_mib_seconds"], 4096 * 30);
  EXPECT_EQ(ana["never_used_mib_seconds"], 3072 * 40);
  EXPECT_EQ(ana["wait_caused_seconds"], 30.0);
  EXPECT_EQ(ana["ended"], (json{{"released", 1}}));
  EXPECT_EQ(ben["wait"]["p95_ms"], 30'000);
  EXPECT_EQ(ben["waited_seconds"], 30.0);
  EXPECT_EQ(ben["active"], 1);
  EXPECT_EQ(by_user["matrix"]["names"].size(), 2U);
  EXPECT_EQ(by_user["neighbours"][0]["name"], "ana");
  EXPECT_EQ(by_user["series"]["devices"][0]["points"][0]["leased_bytes"], (4 * gib * 40 + gib * 20) / 60);
  EXPECT_EQ(by_user["series"]["devices"][0]["total_bytes"], 8 * gib);
  EXPECT_EQ(row(report(By::tenant, monday, monday + 70'000), "lab")["leases"], 2);
  EXPECT_EQ(row(report(By::session, monday, monday + 70'000), "(no session)")["leases"], 2);
  const json device = row(report(By::device, monday, monday + 70'000), "gpu0");
  EXPECT_EQ(device["held_mib_seconds"], 4096 * 40 + 1024 * 30);
  EXPECT_TRUE(device["leases"].is_null());
}

TEST_F(MeterFile, AnEmptyPeriodAndManyNames) {
  EXPECT_EQ(report(By::user, monday, monday + hour, true)["rows"].size(), 0U);
  Integrator meter(monday);
  for (std::uint64_t i = 1; i <= 2000; ++i) {
    LeaseFact one = fact(i, monday, LeaseState::active, "ana", static_cast<std::int64_t>(i) << 20);
    one.account.consumer = "job-" + std::to_string(i);
    meter.take(one);
  }
  put(meter, monday + 60'000);
  const json rows = report(By::consumer, monday, monday + 60'000)["rows"];
  ASSERT_EQ(rows.size(), 51U);
  EXPECT_EQ(rows[0]["name"], "job-2000");
  EXPECT_EQ(rows[50]["name"], "(rest)");
  EXPECT_EQ(rows[50]["others"], 1950);
  EXPECT_EQ(rows[50]["leases"], 1950);
}

TEST_F(MeterFile, AnotherStoreBeginsWithTheFirstLeaseAgain) {
  Integrator meter(monday);
  meter.take(fact(1, monday, LeaseState::active, "ana"));
  meter.take(fact(1, monday + 60'000, LeaseState::ended, "ana"));
  put(meter, monday + 60'000);
  Integrator next(monday + 60'000);
  next.take(fact(1, monday + 60'000, LeaseState::active, "ben", 2 * gib));
  const Deltas deltas = next.flush(monday + 120'000);
  const Status done = file_->put(deltas, {"another life", 1, next.write().dump()});
  ASSERT_TRUE(done) << done.error().detail;
  const json rows = report(By::user, monday, monday + 120'000);
  EXPECT_EQ(row(rows, "ana")["held_mib_seconds"], 1024 * 60);
  EXPECT_EQ(row(rows, "ben")["held_mib_seconds"], 2048 * 60);
  EXPECT_EQ(row(rows, "ana")["leases"], 1);
}

TEST_F(MeterFile, OldMinutesGoAndHoursStay) {
  Integrator meter(monday);
  meter.take(fact(1, monday, LeaseState::active, "ana"));
  meter.take(fact(1, monday + 2 * hour, LeaseState::ended, "ana"));
  put(meter, monday + 3 * hour);
  for (bool more = true; more;) {
    const auto pruned = file_->prune(monday + 24 * hour, monday + 24 * hour, monday, 50);
    ASSERT_TRUE(pruned) << pruned.error().detail;
    more = *pruned;
  }
  EXPECT_EQ(*file_->database().integer("SELECT count(*) FROM minutes"), 0);
  EXPECT_EQ(*file_->database().integer("SELECT count(*) FROM leases"), 0);
  EXPECT_EQ(row(report(By::user, monday, monday + 3 * hour), "ana")["held_mib_seconds"], 1024 * 7200);
}

TEST_F(MeterFile, ADamagedFileIsAnError) {
  Integrator meter(monday);
  for (std::uint64_t i = 1; i < 500; ++i) meter.take(fact(i, monday, LeaseState::active, "ana"));
  put(meter, monday + hour);
  file_.reset();
  {
    std::fstream file(name(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096);
    for (int i = 0; i < 4096 * 8; ++i) file.put('x');
  }
  bool unusable = false;
  EXPECT_FALSE(File::open(name(), unusable));
  EXPECT_TRUE(unusable);
  std::ofstream(name()) << "not a database at all, but long enough to be read as one by mistake";
  unusable = false;
  EXPECT_FALSE(File::open(name(), unusable));
  EXPECT_TRUE(unusable);
  EXPECT_FALSE(File::open("/dev/null/meter.db", unusable = false));
  EXPECT_FALSE(unusable) << "it may be there later";
}

}  // namespace
}  // namespace sublet::meter
