// SPDX-License-Identifier: Apache-2.0
#include "proc/accounting.h"

#include "proc/test_support.h"

#include <linux/acct.h>
#include <sys/stat.h>
#include <cstring>
#include <limits>

namespace sublet::proc {
namespace {

acct_v3 raw(std::uint32_t pid, std::uint32_t parent, const char* name) {
  acct_v3 record{};
  record.ac_version = 3;
  record.ac_pid = pid;
  record.ac_ppid = parent;
  record.ac_uid = 1000;
  record.ac_btime = 1'795'780'800;
  record.ac_etime = 250;  // 2.5 s
  std::memcpy(record.ac_comm, name, std::min(std::strlen(name), sizeof record.ac_comm));
  return record;
}

std::string text(const acct_v3& record) { return {reinterpret_cast<const char*>(&record), sizeof record}; }
std::optional<AccountingRecord> parse(const acct_v3& record) {
  return parse_accounting_record(std::as_bytes(std::span(&record, 1)));
}

struct AccountingFile : ::testing::Test {
  Result<std::vector<AccountingRecord>> read(std::size_t most = 100) const {
    return read_accounting(place.path("pacct"), ::geteuid(), most);
  }
  // Also where new files of a user are writable for the user's group.
  void write(const std::string& text) const {
    place.write("pacct", text);
    EXPECT_EQ(::chmod(place.path("pacct").c_str(), 0600), 0);
  }
  TempDir place;
};

TEST(AccountingRecords, AreReadAsTheKernelWritesThem) {
  const auto record = parse(raw(4711, 4000, "train"));
  ASSERT_TRUE(record);
  EXPECT_EQ(*record, (AccountingRecord{4711, 4000, 1000, Time{1'795'780'800'000'000'000},
                                       Time{1'795'780'802'000'000'000}, "train"}));
  EXPECT_EQ(parse(raw(1, 0, "0123456789abcdefXYZ"))->name, "0123456789abcdef") << "the name has no end";
  EXPECT_EQ(parse(raw(1, 0, "x\n\x1b[31m"))->name, "x\\x0a\\x1b[31m");
}

TEST(AccountingRecords, AreRefusedIfTheyMakeNoSense) {
  const struct {
    const char* name;
    void (*change)(acct_v3&);
    bool taken;
  } rows[] = {
      {"as it is", [](acct_v3&) {}, true},
      {"version 2", [](acct_v3& r) { r.ac_version = 2; }, false},
      {"the other byte order", [](acct_v3& r) { r.ac_version |= static_cast<char>(0x80); }, false},
      {"no pid", [](acct_v3& r) { r.ac_pid = 0; }, false},
      {"a large pid", [](acct_v3& r) { r.ac_pid = 0x80000000; }, false},
      {"a large parent", [](acct_v3& r) { r.ac_ppid = 0xffffffff; }, false},
      {"no duration", [](acct_v3& r) { r.ac_etime = std::numeric_limits<float>::quiet_NaN(); }, true},
      {"a long duration", [](acct_v3& r) { r.ac_etime = 1e30F; }, true},
  };
  for (const auto& row : rows) {
    acct_v3 record = raw(4711, 4000, "train");
    row.change(record);
    EXPECT_EQ(parse(record).has_value(), row.taken) << row.name;
  }
}

TEST_F(AccountingFile, GivesItsLastRecords) {
  std::string all;
  for (std::uint32_t pid = 1; pid <= 10; ++pid) all += text(raw(pid, 1, "sh"));
  write(all + "part");
  const auto records = read(3);
  ASSERT_TRUE(records) << records.error().detail;
  ASSERT_EQ(records->size(), 3u);
  EXPECT_EQ(records->front().pid, 8);
  EXPECT_EQ(records->back().pid, 10);
  write("");
  EXPECT_TRUE(read()->empty());
}

TEST_F(AccountingFile, IsRefusedIfItIsNoneOfRoot) {
  EXPECT_EQ(read().error().code, Code::Unavailable) << "there is none";
  write(std::string(128, 'x'));
  EXPECT_EQ(read().error().code, Code::BadRequest);
  write(text(raw(1, 1, "sh")));
  ASSERT_TRUE(read());
  ASSERT_EQ(::chmod(place.path("pacct").c_str(), 0666), 0);
  EXPECT_EQ(read().error().code, Code::Denied) << "everybody writes";
  const struct {
    gid_t group;
    mode_t mode;
    bool taken;
  } rows[] = {{0, 0660, true}, {0, 0640, true}, {1, 0640, true}, {1, 0660, false}};
  for (const auto& row : rows) {
    if (::chown(place.path("pacct").c_str(), static_cast<uid_t>(-1), row.group) != 0) continue;  // only root may
    ASSERT_EQ(::chmod(place.path("pacct").c_str(), row.mode), 0);
    EXPECT_EQ(bool(read()), row.taken) << row.group << " " << row.mode;
  }
  ASSERT_EQ(::unlink(place.path("pacct").c_str()), 0);
  ASSERT_EQ(::mkfifo(place.path("pacct").c_str(), 0600), 0);
  EXPECT_EQ(read().error().code, Code::Denied) << "a FIFO";
  ASSERT_EQ(::unlink(place.path("pacct").c_str()), 0);
  place.write("other", text(raw(1, 1, "sh")));
  ASSERT_EQ(::symlink(place.path("other").c_str(), place.path("pacct").c_str()), 0);
  EXPECT_EQ(read().error().code, Code::Denied) << "a link";
}

}  // namespace
}  // namespace sublet::proc
