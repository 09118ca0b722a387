// SPDX-License-Identifier: Apache-2.0
#include "cli/start_check.h"

#include "client/fake_server.h"

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>

namespace sublet::cli {
namespace {

using test::ScratchDir;

// Returns whether `is_right` holds in a process of its own, because the check changes the process.
bool holds_apart(const std::function<bool()>& is_right) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(is_right() ? 0 : 1);
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

TEST(StartCheck, RefusesARemovedDirectory) {
  EXPECT_TRUE(check_directory());
  const ScratchDir dir;
  EXPECT_TRUE(holds_apart([&] {
    const std::string gone = dir.path() + "/gone";
    if (::mkdir(gone.c_str(), 0700) != 0 || ::chdir(gone.c_str()) != 0 || ::rmdir(gone.c_str()) != 0) return false;
    const Status checked = check_directory();
    return !checked && checked.error().code == Code::NotFound;
  }));
}

TEST(StartCheck, WarnsOfDeviceFilesThatTheUserMayNotOpen) {
  const ScratchDir dir;
  ASSERT_EQ(::chmod(dir.path().c_str(), 0755), 0);
  const auto make = [&](const char* name, mode_t mode) {
    const std::string path = dir.path() + "/" + name;
    std::ofstream{path};
    ::chmod(path.c_str(), mode);
  };
  // "": no warning.
  const auto is_warned_of = [&](const std::string& file) {
    return holds_apart([&] {
      if (::getuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) return false;  // root may open everything
      const std::string warning = unusable_device_files(dir.path());
      return file.empty() ? warning.empty() : warning.find(dir.path() + "/" + file) != std::string::npos;
    });
  };
  EXPECT_TRUE(is_warned_of("")) << "no files";
  make("nvidiactl", 0666);
  make("nvidia0", 0);
  make("nvidia1", 0666);
  make("nvidia-caps", 0);
  EXPECT_TRUE(is_warned_of("")) << "one card is enough";
  make("nvidia1", 0444);
  EXPECT_TRUE(is_warned_of("nvidia0") || is_warned_of("nvidia1"));
  make("nvidia1", 0666);
  make("nvidia-uvm", 0444);
  EXPECT_TRUE(is_warned_of("nvidia-uvm"));
}

TEST(StartCheck, SeesTheDaemonInItsOwnPidNamespace) {
  const ScratchDir dir;
  const std::string path = dir.path() + "/s.sock";
  test::FakeServer server(path, [](const test::FakeRequest&) {
    return test::FakeServer::Out{test::FakeServer::json(200, "{}"), false};
  });
  client::Client client{client::Endpoint{path}};
  EXPECT_FALSE(client.daemon_pid()) << "not connected";
  ASSERT_TRUE(client.get("/v1/status"));
  EXPECT_EQ(client.daemon_pid(), ::getpid());
  EXPECT_TRUE(check_caller(client));
}

}  // namespace
}  // namespace sublet::cli
