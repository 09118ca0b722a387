// SPDX-License-Identifier: Apache-2.0
// A Store without files or threads, for tests and simulations. Work is done only by `pump`, so a test chooses between
// which steps a commit falls. Committed data survives close and crash, as a file would.
#pragma once

#include "store/store.h"

#include <deque>
#include <map>
#include <set>
#include <utility>

namespace sublet::store {

class MemoryStore final : public Store {
 public:
  // `wake` is called by intend and read when `pump` has work to do, never from inside `pump`.
  explicit MemoryStore(Limits limits = {}, std::function<void()> wake = {});

  // Commits at most `at_most` queued batches as a group, reports the commit, and then runs the reads if no batch is
  // left. Called on the thread of all other methods.
  void pump(std::size_t at_most = SIZE_MAX);
  // Simulates the death of the daemon: queued batches are lost, committed data stays. Call open() to open again.
  void crash();

  Result<Loaded> open(Events events) override;
  void close() override;
  std::uint64_t intend(Batch batch) override;
  Backlog backlog() const override;
  void read(std::function<void(Reader&)> work) override;
  bool maybe_remembered(std::uint32_t uid, std::string_view key) const override;

 private:
  struct Row {
    core::Lease lease;
    bool settled = false;
  };
  using AnswerKey = std::pair<std::uint32_t, std::string>;
  class Tables final : public Reader {
   public:
    Result<std::optional<core::Lease>> lease(LeaseId id) override;
    Result<std::optional<core::Lease>> by_tag(std::string_view tag, std::optional<std::uint32_t> uid) override;
    Result<std::vector<core::Lease>> ended(std::size_t limit, std::optional<std::uint32_t> uid,
                                           std::optional<EndedBefore> before) override;
    Result<std::vector<core::Reason>> reasons(LeaseId id) override;
    Result<std::optional<Remembered>> remembered(std::uint32_t uid, std::string_view key) override;
    Result<Time> forgotten() override;
    Result<std::vector<LoggedEvent>> events(std::uint64_t after, std::size_t limit) override;

    void put(const Batch& batch, const Limits& limits);
    void prune(const Limits& limits);
    void forget(LeaseId id);
    void prune_users(const Limits& limits);
    Loaded load() const;

    std::map<LeaseId, Row> leases;
    std::map<LeaseId, std::deque<core::Reason>> reasons_of;
    std::map<AnswerKey, Remembered> answers;
    std::deque<AnswerKey> answers_by_age;
    std::uint64_t last_id = 0;
    Time last_time;
    Time latest_forgotten;
    std::string boot_id;
    std::optional<std::int64_t> clock_offset_ns;
    std::map<std::uint64_t, AccessToken> tokens;
    std::vector<core::LearnedMove> moves;
    std::map<std::pair<core::Consumer, core::PauseMethod>, core::LearnedRecord> records;
    std::uint64_t last_token = 0;
    std::set<std::pair<std::uint32_t, std::string>> grants;
    std::map<std::pair<std::string, std::string>, std::string> rows;  // by kind and key
    std::deque<LoggedEvent> logged;
    std::uint64_t last_event = 0;
    std::string life;
  };

  const Limits limits_;
  const std::function<void()> wake_;
  Events events_;
  bool open_ = false;
  Tables tables_;
  std::deque<Batch> queue_;
  std::vector<std::function<void(Reader&)>> reads_;
  std::uint64_t last_sequence_ = 0;
};

}  // namespace sublet::store
