// SPDX-License-Identifier: Apache-2.0
#include "cli/nested.h"

#include <gtest/gtest.h>

namespace sublet::cli {
namespace {

using nlohmann::json;

TEST(Nested, AListOfTheLeaseNamesItsDevicesAndNoOther) {
  const json status{{"devices", {{{"uuid", "GPU-a"}, {"index", 0}}, {{"uuid", "GPU-b"}, {"index", 1}}}}};
  struct Row {
    const char* list;
    std::vector<std::string> lease;
    bool same;
  };
  const Row rows[] = {
      {"GPU-a", {"GPU-a"}, true},           {"0", {"GPU-a"}, true},          {"1", {"GPU-a"}, false},
      {"GPU-b", {"GPU-a"}, false},          {"7", {"GPU-a"}, false},         {"", {"GPU-a"}, false},
      {"1,0", {"GPU-a", "GPU-b"}, true},    {"1,1", {"GPU-a", "GPU-b"}, false}, {"0", {"GPU-a", "GPU-b"}, false},
      {"0,GPU-b", {"GPU-a", "GPU-b"}, true}, {"0,0", {"GPU-a"}, false},
  };
  for (const Row& row : rows) EXPECT_EQ(names_exactly(row.list, row.lease, status), row.same) << row.list;
}

}  // namespace
}  // namespace sublet::cli
