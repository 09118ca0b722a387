// SPDX-License-Identifier: Apache-2.0
// Programs on their own simulated card, and a Parker that parks them through real helpers.
#pragma once

#include "base/clock.h"
#include "gpu/checkpoint_line.h"
#include "pause/driver_parker.h"
#include "pause/local_checkpoint_helper.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <boost/asio/io_context.hpp>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

namespace sublet::pause {

class Parking : public ::testing::Test {
 protected:
  using Kind = ParkOutcome::Kind;
  using Later = std::shared_ptr<std::optional<ParkOutcome>>;
  static constexpr LeaseId lease{1};
  static constexpr Bytes alloc = 32 * MiB, residue = 4 * MiB;

  void SetUp() override {
    if (!std::filesystem::exists(build("lib/simgpu/libcuda.so.1"))) GTEST_SKIP() << "no simulated driver is built";
    std::string pattern = (std::filesystem::temp_directory_path() / "sublet-parker-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    dir_ = pattern;
    ::setenv("SIMGPU_DIR", (dir_ + "/cards").c_str(), 1);
    ::setenv("LD_LIBRARY_PATH", build("lib/simgpu").c_str(), 1);
    ctl({"create",
         "1x1GiB,reserve=0,context_bytes=16MiB,link_bandwidth=0,checkpoint_us=0,restore_us=0,"
         "checkpoint_bandwidth=0,restore_bandwidth=0"});
    fresh_parker();
  }
  void TearDown() override {
    parker_.reset();
    for (const auto& [pid, ignored] : loads_) ::kill(pid, SIGKILL), finish(pid);
    ::unsetenv("SIMGPU_DIR");
    ::unsetenv("LD_LIBRARY_PATH");
    if (!dir_.empty()) std::filesystem::remove_all(dir_);
  }

  static std::string build(const std::string& file) { return TEST_BUILD "/" + file; }

  void fresh_parker() {
    parker_.reset();
    ParkerOptions options = local_parking(io_, options_);
    options.said_within = said_within_;
    parker_.emplace(io_, std::move(options));
    parker_->when_returned([this](LeaseId returned) { ++returned_[returned]; });
  }

  // --- programs

  static pid_t start(const std::string& program, std::vector<std::string> words, int out, int err) {
    words.insert(words.begin(), program);
    std::vector<char*> arguments;
    for (auto& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that crashes leaves no process behind
    ::dup2(out, 1);
    ::dup2(err, 2);
    ::execv(program.c_str(), arguments.data());
    ::_exit(127);
  }
  static int finish(pid_t pid) {
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  static std::string read_all(int fd, std::string_view until = {}) {
    std::string said;
    char byte = 0;
    while ((until.empty() || said.find(until) == std::string::npos) && ::read(fd, &byte, 1) == 1) said += byte;
    ::close(fd);
    return said;
  }
  ProcessRef load(const std::string& busy = "0") {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    const pid_t pid = start(build("bin/simgpu-load"),
                            {"--alloc", "32MiB", "--seconds", "1h", "--dense", "--busy", busy}, null, ends[1]);
    ::close(ends[1]);
    ::close(null);
    const std::string said = read_all(ends[0], "filled");
    EXPECT_NE(said.find("filled"), std::string::npos) << said;
    loads_[pid] = true;
    return process(pid);
  }
  ProcessRef sleeper() {
    const pid_t pid = start("/bin/sleep", {"3600"}, 1, 2);
    loads_[pid] = true;
    return process(pid);
  }
  static std::vector<std::string> stat_of(pid_t pid) {  // from the third field on
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string line;
    std::getline(file, line);
    std::istringstream rest(line.substr(std::min(line.rfind(')') + 1, line.size())));
    std::vector<std::string> fields;
    for (std::string field; rest >> field;) fields.push_back(field);
    fields.resize(std::max<std::size_t>(fields.size(), 20));
    return fields;
  }
  static ProcessRef process(pid_t pid) { return {pid, std::stoull("0" + stat_of(pid)[19])}; }
  void kill_load(ProcessRef load) {
    ::kill(load.pid, SIGKILL);
    finish(load.pid);
    loads_.erase(load.pid);
  }
  // Checks that the program runs and that all its bytes are right.
  void ends_right(ProcessRef load) {
    ::kill(load.pid, SIGTERM);
    EXPECT_EQ(finish(load.pid), 128 + SIGTERM);
    loads_.erase(load.pid);
  }

  // --- the card

  static std::string ctl(std::vector<std::string> words) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const pid_t pid = start(build("bin/simgpu-ctl"), std::move(words), ends[1], 2);
    ::close(ends[1]);
    std::string said = read_all(ends[0]);
    EXPECT_EQ(finish(pid), 0);
    return said;
  }
  static nlohmann::json show() { return nlohmann::json::parse(ctl({"show", "--json"})); }
  static std::string state(ProcessRef process) {
    const auto cards = show();
    for (const auto& entry : cards["processes"]) {
      if (entry["pid"] == process.pid) return entry["state"];
    }
    return "none";
  }
  static Bytes used() { return {show()["devices"][0]["used_bytes"].get<std::int64_t>()}; }
  static std::string card() { return show()["devices"][0]["uuid"]; }
  static void fault(const std::string& name, ProcessRef process, std::vector<std::string> more = {}) {
    std::vector<std::string> words{"fault", name, "--pid", std::to_string(process.pid)};
    words.insert(words.end(), more.begin(), more.end());
    ctl(words);
  }
  static int hits(const std::string& name) {
    int all = 0;
    const auto cards = show();
    for (const auto& entry : cards["faults"]) {
      if (entry["name"] == name) all += entry["hits"].get<int>();
    }
    return all;
  }

  // --- helpers

  static std::vector<pid_t> helpers_of(ProcessRef target) {
    std::vector<pid_t> found;
    const std::string wanted = std::string("\0--pid\0", 7) + std::to_string(target.pid) + '\0';
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string name = entry.path().filename();
      pid_t pid = 0;
      std::from_chars(name.data(), name.data() + name.size(), pid);
      if (pid <= 0 || stat_of(pid)[1] != std::to_string(::getpid())) continue;
      std::ifstream file(entry.path() / "cmdline");
      const std::string words((std::istreambuf_iterator<char>(file)), {});
      if (words.find(wanted) != std::string::npos) found.push_back(pid);
    }
    return found;
  }
  static pid_t helper_of(ProcessRef target) {
    const auto found = helpers_of(target);
    EXPECT_EQ(found.size(), 1);
    return found.empty() ? -1 : found.front();
  }

  // --- orders

  template <typename Condition>
  void until(Condition condition) {
    const std::int64_t end = monotonic_ns() + Duration(std::chrono::minutes(1)).count();
    while (!condition()) {
      ASSERT_LT(monotonic_ns(), end) << "it did not come to pass";
      io_.restart();
      io_.run_one_for(std::chrono::milliseconds(5));
    }
  }
  static Parker::Done into(const Later& later) {
    return [later](ParkOutcome outcome) {
      EXPECT_FALSE(later->has_value()) << "told twice";
      *later = std::move(outcome);
    };
  }
  // Allows every lock, and records the processes.
  Parker::Touch freely() {
    return [this](std::vector<ProcessRef> all, const std::function<void(bool)>& may) {
      touched_.push_back(std::move(all));
      may(true);
    };
  }
  Later begin_park(std::vector<ProcessRef> tree, LeaseId of = lease) {
    auto later = std::make_shared<std::optional<ParkOutcome>>();
    parker_->park(
        of, program_, give_up_, [tree] { return tree; }, freely(), weigh_, into(later));
    return later;
  }
  Later begin_unpark(std::vector<ProcessRef> tree, std::vector<Room> room = {}, LeaseId of = lease) {
    auto later = std::make_shared<std::optional<ParkOutcome>>();
    parker_->unpark(of, std::move(tree), std::move(room), give_up_, into(later));
    return later;
  }
  ParkOutcome wait(const Later& later, LeaseId of = lease) {
    until([&] { return later->has_value(); });
    EXPECT_FALSE(parker_->busy(of));
    return later->value_or(ParkOutcome{});
  }
  ParkOutcome park(const std::vector<ProcessRef>& tree) { return wait(begin_park(tree)); }
  ParkOutcome unpark(const std::vector<ProcessRef>& tree, std::vector<Room> room = {}) {
    return wait(begin_unpark(tree, std::move(room)));
  }
  static void expect(const ParkOutcome& outcome, Kind kind, const std::string& code = {}) {
    EXPECT_EQ(static_cast<int>(outcome.kind), static_cast<int>(kind))
        << to_string(outcome.code) << ": " << outcome.detail;
    EXPECT_EQ(to_string(outcome.code), code.empty() ? "none" : code) << outcome.detail;
    EXPECT_EQ(outcome.detail.empty(), code.empty());
  }

  std::string dir_;
  boost::asio::io_context io_{1};
  LocalParking options_{.helper = build("bin/sublet-gpu"), .driver = build("lib/simgpu/libcuda.so.1")};
  std::optional<DriverParker> parker_;
  std::map<pid_t, bool> loads_;
  std::map<LeaseId, int> returned_;
  Parker::Program program_{};
  Duration said_within_ = std::chrono::minutes(5);
  Duration give_up_ = std::chrono::minutes(5);
  Parker::Weigh weigh_ = [](const auto&, const auto& say) { say({}); };
  std::vector<std::vector<ProcessRef>> touched_;  // the processes of each request to lock
};

}  // namespace sublet::pause
