// SPDX-License-Identifier: Apache-2.0
#include "cli/config_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

namespace sublet::cli {
namespace {

using nlohmann::json;

// With an environment of its own.
struct ConfigFile : ::testing::Test {
  ConfigFile() {
    for (const char* name : {"XDG_STATE_HOME", "XDG_CONFIG_HOME"}) ::unsetenv(name);
    ::setenv("XDG_RUNTIME_DIR", "/nonexistent/run", 1);
    ::setenv("HOME", "/nonexistent/home", 1);
  }
  static std::string of(const std::string& socket, const json& status = {}, bool named = true) {
    return config_file(client::Endpoint{.path = socket}, status, named).string();
  }
  static constexpr auto own = "/nonexistent/home/.config/sublet/sublet.toml";
};

TEST_F(ConfigFile, IsTheOneThatTheDaemonNames) {
  const json status{{"daemon", {{"config", "/srv/own.toml"}}}};
  EXPECT_EQ(of("/run/sublet/sublet.sock", status), "/srv/own.toml");
  EXPECT_EQ(config_file(client::Endpoint{.host = "127.0.0.1", .port = 1}, status, true), "/srv/own.toml");
  EXPECT_EQ(config_file(client::Endpoint{.host = "127.0.0.1", .port = 1}, nullptr, true), "");
}

TEST_F(ConfigFile, ElseGoesByItsSocket) {
  EXPECT_EQ(of("/nonexistent/run/sublet/sublet.sock"), own);
  EXPECT_EQ(of("/nonexistent/home/.local/state/sublet/sublet.sock"), own);
  EXPECT_EQ(of("/srv/private/sublet.sock"), "/srv/private/sublet.toml");
  EXPECT_EQ(of("/run/sublet/sublet.sock"), "/etc/sublet/sublet.toml");
  EXPECT_EQ(of("/run/sublet/sublet.sock", {{"daemon", {{"config", nullptr}}}}), "/etc/sublet/sublet.toml");
}

TEST_F(ConfigFile, WhereNoneIsItIsThatOfTheOneThatWouldBeStarted) {
  if (::access("/run/sublet/sublet.sock", F_OK) == 0) GTEST_SKIP() << "a daemon is here";
  EXPECT_EQ(of("/run/sublet/sublet.sock", {}, false), ::geteuid() == 0 ? "/etc/sublet/sublet.toml" : own);
}

}  // namespace
}  // namespace sublet::cli
