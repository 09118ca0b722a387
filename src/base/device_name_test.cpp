// SPDX-License-Identifier: Apache-2.0
#include "base/device_name.h"

#include <gtest/gtest.h>

namespace sublet {
namespace {

TEST(DeviceName, AListHasEachNameOnceAndInOrder) {
  const struct {
    const char* list;
    std::vector<std::string> names;
  } rows[] = {
      {"", {}}, {"gpu1", {"gpu1"}}, {"3, 1 ,3", {"3", "1"}}, {"gpu1,", {"gpu1", ""}}, {",", {""}},
  };
  for (const auto& row : rows) EXPECT_EQ(device_list(row.list), row.names) << row.list;
}

TEST(DeviceName, NamesThatNameNoDeviceAreExplained) {
  struct Row {
    const char* name;
    const char* detail;  // a part; "": nothing to explain
    const char* hint;
  };
  const Row rows[] = {
      {"", "is empty", "gpu1,gpu3"},
      {"any", "in a list", "leave out 'any'"},
      {"cuda:1", "framework", "--gpu gpu1"},
      {"cuda:12", "framework", "as cuda:0"},
      {"gpu7", "", ""},
      {"GPU-0a1b", "", ""},
      {"cuda:", "", ""},
      {"00000000:01:00.0", "", ""},
      {"0:1", "", ""},  // MIG slices
      {"gpu0:12", "", ""},
  };
  for (const Row& row : rows) {
    const auto error = explain_device_name(row.name);
    ASSERT_EQ(error.has_value(), *row.detail != '\0') << row.name;
    if (!error) continue;
    EXPECT_NE(error->detail.find(row.detail), std::string::npos) << error->detail;
    EXPECT_NE(error->hint.find(row.hint), std::string::npos) << error->hint;
  }
}

}  // namespace
}  // namespace sublet
