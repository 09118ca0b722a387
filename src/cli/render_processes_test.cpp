// SPDX-License-Identifier: Apache-2.0
#include "cli/render.h"
#include "cli/render_test.h"

#include <gtest/gtest.h>

namespace sublet::cli {
namespace {

using nlohmann::json;

TEST(Proclist, ShowsContainersWhereThereAreSome) {
  json list{{"processes",
             {{{"pid", 42},
               {"user", "ana"},
               {"command", "train"},
               {"device", "GPU-1111"},
               {"used_bytes", GiB.count},
               {"lease", "lease-1"},
               {"link", "owner"},
               {"container", nullptr}}}}};
  EXPECT_EQ(*render_processes(list, Common{}, at_noon()),
            "PID  USER  GPU      USED  LEASE    LINK   COMMAND\n"
            " 42  ana   gpu0  1.0 GiB  lease-1  owner  train\n");
  list["processes"][0]["container"] = "0123456789ab";
  EXPECT_EQ(*render_processes(list, Common{}, at_noon()),
            "PID  USER  GPU      USED  LEASE    LINK   CONTAINER     COMMAND\n"
            " 42  ana   gpu0  1.0 GiB  lease-1  owner  0123456789ab  train\n");
}

}  // namespace
}  // namespace sublet::cli
