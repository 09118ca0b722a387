// SPDX-License-Identifier: Apache-2.0
// Helpers for the tests of this folder: a temporary directory, the store's reports, answers to reads, and numbered
// batches. The numbered batches show afterwards which were kept and whether one is incomplete.
#pragma once

#include "lease/describe.h"
#include "store/sqlite.h"
#include "store/store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace sublet::store::test {

class TempDir {
 public:
  // Uses memory if possible: the tests sync thousands of times, and do not test the disk.
  TempDir() {
    const bool in_memory = ::access("/dev/shm", W_OK) == 0;
    const std::filesystem::path base = in_memory ? "/dev/shm" : std::filesystem::temp_directory_path();
    std::string name = (base / "sublet-store-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  std::filesystem::path operator/(const char* name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Collects the store's reports, and lets a test wait for one.
class News {
 public:
  Events events() {
    return {[this](std::uint64_t sequence) {
              const std::lock_guard lock(mutex_);
              committed_ = sequence;
              changed_.notify_all();
            },
            [this](Error error) {
              const std::lock_guard lock(mutex_);
              failure_ = std::move(error);
              changed_.notify_all();
            }};
  }
  // Waits for the batch. False if the store failed before it was committed.
  bool wait_for(std::uint64_t sequence) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return committed_ >= sequence || failure_; });
    return committed_ >= sequence;
  }
  std::uint64_t committed() const {
    const std::lock_guard lock(mutex_);
    return committed_;
  }
  std::optional<Error> failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t committed_ = 0;
  std::optional<Error> failure_;
};

// Returns the answer of a read, after waiting for it. `settle` lets a store without a thread do its work.
template <typename Question>
auto ask(Store& store, Question question, const std::function<void()>& settle = {}) {
  using Reply = decltype(question(std::declval<Reader&>()));
  auto promise = std::make_shared<std::promise<Reply>>();
  auto future = promise->get_future();
  store.read([promise, question](Reader& reader) { promise->set_value(question(reader)); });
  if (settle) settle();
  return future.get();
}

inline core::Lease make_lease(std::uint64_t id) {
  core::Lease lease;
  lease.id.number = id;
  lease.generation = 1;
  lease.uid = 1000;
  lease.user = "ada";
  lease.tenant = "lab";
  lease.consumer = "train";
  lease.vram = 6 * GiB;
  lease.token = "secret";
  lease.created_at = lease.queued_at = {1'000};
  return lease;
}

// The consumer of the lease above, and the same consumer of another user.
inline const core::Consumer adas{1000, "train"}, bobs{1001, "train"};

inline core::Lease ended_lease(std::uint64_t id, Time at, Duration run = Duration(1)) {
  core::Lease lease = make_lease(id);
  lease.state = core::LeaseState::ended;
  lease.end_reason = core::EndReason::released;
  lease.granted_at = at - run;
  lease.ended_at = at;
  return lease;
}

// --- a lease with something in every field ---

using core::describe;

inline core::Lease full_lease() {
  core::Lease lease = make_lease(7);
  lease.generation = UINT64_MAX - 1;
  lease.state = core::LeaseState::pausing;
  lease.uid = 4'294'967'294U;
  lease.tag = "tag 'quoted'; --";
  lease.command = std::string("a\0b \xc3\xa9 \n", 8);
  lease.tier = core::Tier::critical;
  lease.priority = -1000;
  lease.pausable = core::Pausable::interposer;
  lease.share = 30;
  lease.vram = {1LL << 62};
  lease.wanted_devices = {"GPU-1", "GPU-3"};
  lease.ttl = std::chrono::hours(1);
  lease.owner = {core::OwnerKind::process, {4321, UINT64_MAX}, {1234, 99}, "/run/exit/7"};
  lease.devices = {"GPU-1", "GPU-2"};
  lease.device_count = 2;
  lease.asked_vram = {(1LL << 62) - 1};
  lease.min_vram = 3 * GiB;
  lease.ceiling = 4 * GiB;
  lease.soft_limit = {33};
  lease.resize = core::Upgrade{{(1LL << 62) - 2}, {8}};
  lease.nameless = true;
  lease.sized = core::Sized{{(1LL << 62) - 5}, {29}, Duration(30)};
  lease.parking = core::Parking{core::PauseMethod::cooperative,
                                {9},
                                {core::PauseCauseKind::slice, LeaseId{7}, core::args("preemptor", "lease-7 (b)")},
                                {(1LL << 62) - 3},
                                true,
                                {10},
                                true,
                                true,
                                true};
  lease.parking->locked_processes = {{{4711, UINT64_MAX}, {4712, 5}}};
  lease.parking->held_when_paused = {{{14}, {{{4711, UINT64_MAX}, {(1LL << 62) - 4}}, {{4712, 5}, {15}}}, {16}, {17}},
                                     {{20}, {}, {21}, {22}}};
  lease.parking->orphaned_since = Time{31};
  lease.cooperation =
      core::Cooperation{core::CooperationWay::webhook, {11}, {77, UINT64_MAX}, "http://[::1]:1/x", 10, 12};
  lease.unfit = core::Obstacle{core::ObstacleCode::not_parkable, "it's why"};
  lease.preemption_request = core::PreemptionRequest{4'294'967'293U, true, Time{26}};
  lease.resumed_at = Time{13};
  lease.parked_for = Duration(27);
  lease.parked_at = Time{28};
  lease.had_process = true;
  lease.held_back_at = Time{31};
  lease.lapsed_offers = 1;
  lease.exit_status = 137;
  lease.stop_requested = true;
  lease.granted_at = Time{2};
  lease.offer_ends_at = Time{3};
  lease.expires_at = Time::never();
  lease.unheld_since = Time{5};
  lease.stop_at = Time{6};
  lease.ended_at = Time{0};
  lease.kept_until = Time{32};
  lease.peak_used = 5 * GiB;
  lease.booked = {{{4711, UINT64_MAX}, {}}, {{}, "/sys/fs/cgroup/train it"}};
  return lease;
}

// --- numbered batches ---

// Batch n moves lease 1 to generation n, makes lease 1000 + n, adds a reason, and remembers an answer.
inline Batch step(std::uint64_t n) {
  Batch batch;
  batch.now = {static_cast<std::int64_t>(n) * 1'000'000};
  core::Lease first = make_lease(1);
  first.generation = n;
  batch.changed = {first, make_lease(1000 + n)};
  batch.reasons = {{LeaseId{1}, batch.now, core::ReasonKind::note, core::args("text", std::to_string(n))}};
  batch.remembered = Remembered{1000, fmt::format("key-{}", n), "00ff", 201, std::string(300, 'x'), batch.now};
  return batch;
}

// Returns how many steps are in the store, or a description of the fault.
inline Result<std::uint64_t> count_steps(Store& store, const Loaded& loaded) {
  const auto wrong = [](std::string what) { return Error{Code::Unavailable, std::move(what), {}}; };
  std::uint64_t steps = 0;
  if (!loaded.leases.empty() && loaded.leases[0].id.number == 1) steps = loaded.leases[0].generation;
  if (loaded.leases.size() != (steps == 0 ? 0 : steps + 1)) {
    return wrong(fmt::format("{} leases after step {}", loaded.leases.size(), steps));
  }
  for (std::uint64_t n = 1; n <= steps; ++n) {
    if (loaded.leases[n].id.number != 1000 + n) return wrong(fmt::format("the lease of step {} is missing", n));
  }
  if (steps != 0 && loaded.last_time.ns != static_cast<std::int64_t>(steps) * 1'000'000) {
    return wrong(fmt::format("last time {} after step {}", loaded.last_time.ns, steps));
  }
  const auto reasons = ask(store, [](Reader& reader) { return reader.reasons(LeaseId{1}); });
  if (!reasons) return reasons.error();
  if (steps != 0 && (reasons->empty() || core::text_of(reasons->back()) != std::to_string(steps))) {
    return wrong(fmt::format("no reason of step {}", steps));
  }
  for (const std::uint64_t n : {steps, steps + 1}) {
    if (n == 0) continue;
    const std::string key = fmt::format("key-{}", n);
    const auto answer = ask(store, [key](Reader& reader) { return reader.remembered(1000, key); });
    if (!answer) return answer.error();
    if (answer->has_value() != (n <= steps)) return wrong(fmt::format("torn: the answer {} after step {}", n, steps));
    if (n <= steps && !store.maybe_remembered(1000, key)) return wrong("an answer is there that 'certainly' is not");
  }
  return steps;
}

// --- children: tests that affect a whole process run in a child ---

// Runs `body` in a child. Returns its result ("": success), or how the child died.
inline std::string in_child(const std::function<std::string()>& body) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    const std::string said = body();
    (void)!::write(ends[1], said.data(), said.size());
    ::_exit(said.empty() ? 0 : 1);
  }
  ::close(ends[1]);
  std::string said;
  char part[4096];
  for (ssize_t n = 0; (n = ::read(ends[0], part, sizeof(part))) > 0;) said.append(part, static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) return fmt::format("killed by signal {}", WTERMSIG(status));
  return said;
}

// Returns the names of the files in a directory, sorted.
inline std::vector<std::string> names_in(const std::filesystem::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Makes a store of an older version from testdata/vN.sql.
inline void make_old_store(const std::filesystem::path& path, int version) {
  const std::string script = read_file(fmt::format("{}/v{}.sql", STORE_TEST_DATA, version));
  ASSERT_FALSE(script.empty()) << "no testdata/v" << version << ".sql: every version that was ever released needs one";
  auto database = Database::open(path.string(), Database::Mode::create);
  ASSERT_TRUE(database);
  ASSERT_TRUE((*database)->run(script.c_str()));
}

}  // namespace sublet::store::test
