// SPDX-License-Identifier: Apache-2.0
// The daemon's Store: one SQLite file, one connection, and a writer thread that writes all queued batches in one
// transaction and syncs it.
#pragma once

#include "base/failpoints.h"
#include "base/fd.h"
#include "store/key_set.h"
#include "store/store.h"
#include "store/tables.h"

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <thread>

namespace sublet::store {

class SqliteStore final : public Store {
 public:
  // `path`: the file, such as /var/lib/sublet/store.db. Its directory is made with mode 0700 if it is missing. The lock
  // beside it is taken at the first open and kept until close. `failpoints` may be null; it must outlive the store.
  explicit SqliteStore(std::filesystem::path path, Limits limits = {}, Failpoints* failpoints = nullptr);
  // A store without a thread, for simulations: pump() does the writer's work. `wake` is called by intend and read when
  // there is work, never from inside pump.
  SqliteStore(std::filesystem::path path, Limits limits, std::function<void()> wake);
  ~SqliteStore() override;

  Result<Loaded> open(Events events) override;
  void close() override;
  std::uint64_t intend(Batch batch) override;
  Backlog backlog() const override;
  void read(std::function<void(Reader&)> work) override;
  bool maybe_remembered(std::uint32_t uid, std::string_view key) const override;
  std::optional<DiskRoom> disk_room() const override;

  // Without a thread: runs a round of the writer, with at most `at_most` batches in its transaction.
  void pump(std::size_t at_most = SIZE_MAX);
  // Without a thread: simulates the death of the process. Queued batches are lost; committed data stays in the files.
  void crash();

 private:
  enum class State { closed, open, failed };
  struct Queued {
    std::uint64_t sequence = 0;
    Batch batch;
  };
  using Reads = std::vector<std::function<void(Reader&)>>;
  struct Work {
    std::vector<Queued> batches;
    Reads reads;
    bool last = false;
  };

  Result<Loaded> load();
  void start_writer();
  void stop_writer();
  void finish_writer();
  void wake_writer();
  Error with_free_space(Error error) const;

  // Called on the writer thread.
  void write_loop();
  bool write_once(Work work);
  Work next_work(std::size_t at_most);
  Status commit(const std::vector<Queued>& batches);
  Status reach(const std::vector<Queued>& batches, std::string_view step);
  Status tidy();
  void answer(Reads reads);
  // Lets waiting batches go first; true: the reads are queued again.
  bool give_way(Reads::iterator first, Reads::iterator last);
  void fail(Error error);

  const std::filesystem::path path_;
  const Limits limits_;
  Failpoints* const failpoints_;
  const std::function<void()> wake_;  // empty: there is a thread
  bool pumping_ = false;
  Fd lock_;
  Events events_;
  KeySet keys_;
  std::thread writer_;

  // Only the writer thread uses these members while it runs.
  std::unique_ptr<Tables> tables_;
  Time now_;  // greatest Batch::now
  bool more_to_prune_ = false;

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable work_ready_;
  State state_ = State::closed;
  Error error_;  // reason why the store is closed or failed
  bool stopping_ = false;
  std::deque<Queued> queue_;
  std::size_t being_written_ = 0;
  Reads reads_;
  std::uint64_t last_sequence_ = 0;
};

}  // namespace sublet::store
