// SPDX-License-Identifier: Apache-2.0
#include "kube/pod_record.h"

#include "kube/prepared.h"
#include "kube/state_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <thread>

namespace sublet::kube {
namespace {

namespace fs = std::filesystem;

struct PodRecords : testing::Test {
  std::string dir = [] {
    std::string name = fs::temp_directory_path() / "sublet-kube-XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    return name;
  }();
  ~PodRecords() override { fs::remove_all(dir); }

  static Pod pod(const std::string& uid) {
    Pod made;
    made.name = {"vision", uid};
    made.uid = made.group_uid = uid;
    return made;
  }
};

TEST_F(PodRecords, GiveADirectoryToTheNextPodWithTheSameUnits) {
  const std::string units = dir + "/units/1", own = dir + "/units/2";
  for (const std::string& made : {units, own}) ASSERT_TRUE(make_directory(made));
  ASSERT_TRUE(keep_record(dir, pod("first"), own));
  ASSERT_TRUE(keep_record(dir, pod("first"), units));
  const PodRecord first = all_records(dir).front();
  ASSERT_TRUE(keep_record(dir, pod("second"), units));
  drop_record(dir, first);
  EXPECT_TRUE(fs::exists(units)) << "the second pod has it";
  EXPECT_FALSE(fs::exists(own));
  ASSERT_EQ(all_records(dir).size(), 1U);
  drop_record(dir, all_records(dir).front());
  EXPECT_FALSE(fs::exists(units));
}

TEST_F(PodRecords, LeaveNoDirectoryWhoseStateIsWrittenMeanwhile) {
  const std::string units = dir + "/units/1";
  std::atomic<bool> ends = false;
  std::thread teller([&] {
    while (!ends) (void)write_states(dir, "first", {});
  });
  int left = 0;
  for (int round = 0; round < 300; ++round) {
    EXPECT_TRUE(make_directory(units));
    EXPECT_TRUE(keep_record(dir, pod("first"), units));
    drop_record(dir, all_records(dir).front());
    left += fs::exists(units) ? 1 : 0;
  }
  ends = true;
  teller.join();
  EXPECT_EQ(left, 0);
}

TEST_F(PodRecords, AreRegularFilesWithAPod) {
  ASSERT_TRUE(make_directory(dir + "/pods/directory.json"));
  ASSERT_TRUE(make_directory(dir + "/claims/directory.json"));
  ASSERT_EQ(::mkfifo((dir + "/pods/pipe.json").c_str(), 0600), 0);
  ASSERT_TRUE(write_file(dir + "/pods/number.json", R"({"group": 7})"));
  ASSERT_TRUE(write_file(dir + "/pods/half.json", R"({"group": "12)"));
  ASSERT_TRUE(write_file(dir + "/pods/deep.json", std::string(100'000, '[')));
  ASSERT_TRUE(keep_record(dir, pod("12"), dir + "/units/1"));
  EXPECT_EQ(all_records(dir).size(), 1U);
  EXPECT_TRUE(all_prepared(dir).empty());
}

}  // namespace
}  // namespace sublet::kube
