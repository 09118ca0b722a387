// SPDX-License-Identifier: Apache-2.0
#include "daemon/stacks_env.h"

#include <gtest/gtest.h>

#include <map>

namespace sublet::daemon {
namespace {

using Variables = std::map<std::string, std::string>;

Status read(Config& config, const Variables& variables) {
  return stacks_from_env(config, [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(StacksFromEnv, TakesTheVariablesOfTheService) {
  Config config;
  ASSERT_TRUE(read(config, {{"GPU_SERVICES_DIR", "/srv/stacks"},
                            {"GPU_RUNTIME_DIR", "/srv/runtime"},
                            {"GPU_ENV_FILE", "/srv/all.env"},
                            {"DEFAULT_WAIT_S", "1.5"},
                            {"DEFAULT_LEASE_TTL_S", "60"},
                            {"QUEUE_CLAIM_WINDOW_S", "7"},
                            {"DOCKER_SOCK", "/run/other.sock"},
                            {"HEALTHCHECK_MASTER_LABEL", "a.b"},
                            {"HEALTHCHECK_MASTER_VALUE", "yes"}}));
  EXPECT_TRUE(config.stacks.enabled);
  EXPECT_EQ(config.stacks.dir, "/srv/stacks");
  EXPECT_EQ(config.stacks.mirror, "/srv/runtime/state.json");
  EXPECT_EQ(config.stacks.env_file, "/srv/all.env");
  EXPECT_EQ(config.stacks.ready_timeout, std::chrono::milliseconds(1500));
  EXPECT_EQ(config.stacks.ttl, std::chrono::minutes(1));
  EXPECT_EQ(config.stacks.claim_window, std::chrono::seconds(7));
  EXPECT_EQ(config.stacks.engine.text, "unix:///run/other.sock");
  EXPECT_EQ(config.stacks.label.text + "=" + config.stacks.label_value.text, "a.b=yes");
  EXPECT_EQ(config.stacks.http.text, "127.0.0.1:8080");
  EXPECT_EQ(config.stacks.http_role.word, "user");
}

TEST(StacksFromEnv, HasTheDefaultsOfTheService) {
  Config config;
  config.stacks.http.text = "127.0.0.1:9";
  ASSERT_TRUE(read(config, {}));
  EXPECT_EQ(config.stacks.dir, "/services");
  EXPECT_EQ(config.stacks.mirror, "/runtime/state.json");
  EXPECT_EQ(config.stacks.http.text, "127.0.0.1:9") << "the file names another address";
  Config listed;
  ASSERT_TRUE(read(listed, {{"GPU_SERVICE_CONFIG_YAML", "a: /srv/a"}}));
  EXPECT_EQ(listed.stacks.dir, "") << "only the listed stacks";
  ASSERT_TRUE(read(listed, {{"GPU_SERVICE_CONFIG_YAML", "a: /srv/a"}, {"GPU_ENV_FILE", "/srv/all.env"}}));
  EXPECT_TRUE(listed.stacks.env_file_may_lack);
}

TEST(StacksFromEnv, NamesAVariableThatIsWrong) {
  for (const auto& [name, value] : {std::pair("DEFAULT_WAIT_S", "soon"),
                                    {"DEFAULT_LEASE_TTL_S", "0"},
                                    {"QUEUE_CLAIM_WINDOW_S", "-1"},
                                    {"GPU_SERVICES_DIR", "services"},
                                    {"GPU_ENV_FILE", "x.env"},
                                    {"DOCKER_SOCK", "docker.sock"}}) {
    Config config;
    const Status read_it = read(config, {{name, value}});
    ASSERT_FALSE(read_it) << name;
    EXPECT_NE(read_it.error().detail.find(std::string(name) + "=" + value), std::string::npos);
  }
}

}  // namespace
}  // namespace sublet::daemon
