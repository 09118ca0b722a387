// SPDX-License-Identifier: Apache-2.0
#include "store/sqlite_store.h"

#include "base/mutants.h"
#include "store/failed_reader.h"
#include "store/files.h"
#include "store/schema.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <cassert>
#include <csignal>
#include <utility>

namespace sublet::store {
namespace {

// Limits of a transaction, which bound the wait for its commit. If thousands of leases change at once, the first are
// reported while the last are written.
constexpr std::size_t group = 512;             // batches
constexpr std::size_t group_leases = 512;      // leases that the batches change
constexpr std::size_t idle_slice = 64;         // rows pruned in a transaction while there is no other work
constexpr int pages_before_checkpoint = 1000;  // 4 MiB of log
// Batches that wait for the next commit also wait for a checkpoint before it. The log stays below 16 MiB.
constexpr int pages_while_others_wait = 3 * pages_before_checkpoint;

Error closed_error() { return unavailable("the store is closed"); }

}  // namespace

SqliteStore::SqliteStore(std::filesystem::path path, Limits limits, Failpoints* failpoints)
    : path_(std::filesystem::absolute(path)), limits_(limits), failpoints_(failpoints), error_(closed_error()) {}

SqliteStore::SqliteStore(std::filesystem::path path, Limits limits, std::function<void()> wake)
    : path_(std::filesystem::absolute(path)),
      limits_(limits),
      failpoints_(nullptr),
      wake_(std::move(wake)),
      error_(closed_error()) {}

SqliteStore::~SqliteStore() { close(); }

// ------------------------------------------------------------------------------------------------ loop thread

Result<Loaded> SqliteStore::open(Events events) {
  stop_writer();
  events_ = std::move(events);
  if (!lock_) {
    if (auto ready = prepare_directory(path_.parent_path()); !ready) return ready.error();
    auto lock = take_lock(path_);
    if (!lock) return lock.error();
    lock_ = std::move(*lock);
  }
  auto loaded = load();
  if (!loaded) {
    tables_.reset();
    keys_.clear();
    const std::lock_guard lock(mutex_);
    error_ = loaded.error();
    return loaded;
  }
  start_writer();
  return loaded;
}

Result<Loaded> SqliteStore::load() {
  const auto site = inspect(path_);
  if (!site) return site.error();
  auto database = open_database(path_, site->exists);
  if (!database) return database.error();
  tables_ = std::make_unique<Tables>(std::move(*database), limits_);
  auto loaded = tables_->load();
  keys_.clear();
  Status keys;
  if (loaded) keys = tables_->each_answer_key([this](auto uid, auto key) { keys_.insert(uid, key); });
  if (loaded && keys) {
    now_ = loaded->last_time;
    return loaded;
  }
  Error error = loaded ? keys.error() : loaded.error();
  if (!tables_->database().corrupt()) return error;
  tables_->database().checkpoint_on_close(false);
  tables_.reset();
  return set_aside(path_, error.detail);
}

void SqliteStore::start_writer() {
  {
    const std::lock_guard lock(mutex_);
    state_ = State::open;
    stopping_ = false;
  }
  if (wake_) return;
  // Signals belong to the loop thread: no handler may interrupt the writer.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  writer_ = std::thread([this] { write_loop(); });
  pthread_setname_np(writer_.native_handle(), "store");
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void SqliteStore::stop_writer() {
  if (writer_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    work_ready_.notify_one();
    writer_.join();
    finish_writer();
  } else if (wake_ && state_ != State::closed) {
    while (!queue_.empty() || !reads_.empty()) pump();
    finish_writer();
  }
}

void SqliteStore::finish_writer() {
  tables_.reset();
  const std::lock_guard lock(mutex_);
  state_ = State::closed;
  error_ = closed_error();
}

void SqliteStore::wake_writer() {
  if (!wake_) work_ready_.notify_one();
  else if (!pumping_) wake_();
}

void SqliteStore::pump(std::size_t at_most) {
  assert(wake_ && "there is a thread");
  if (state_ == State::closed || at_most == 0) return;
  pumping_ = true;
  write_once(next_work(at_most));
  pumping_ = false;
}

void SqliteStore::crash() {
  assert(wake_ && "there is a thread");
  queue_.clear();
  reads_.clear();
  if (tables_) tables_->database().checkpoint_on_close(false);
  finish_writer();
  lock_.reset();
}

void SqliteStore::close() {
  stop_writer();
  lock_.reset();
}

std::uint64_t SqliteStore::intend(Batch batch) {
  std::uint64_t sequence = 0;
  {
    const std::lock_guard lock(mutex_);
    sequence = ++last_sequence_;
    if (state_ != State::open) return sequence;
    // Added before the batch is queued, so that the writer cannot remove the key before it was added.
    if (batch.remembered) keys_.insert(batch.remembered->uid, batch.remembered->key);
    queue_.push_back({sequence, std::move(batch)});
  }
  wake_writer();
  return sequence;
}

Backlog SqliteStore::backlog() const {
  const std::lock_guard lock(mutex_);
  return {queue_.size() + being_written_, limits_.queued_batches};
}

void SqliteStore::read(std::function<void(Reader&)> work) {
  {
    std::unique_lock lock(mutex_);
    if (state_ == State::closed) {
      FailedReader reader(error_);
      lock.unlock();
      work(reader);
      return;
    }
    reads_.push_back(std::move(work));
  }
  wake_writer();
}

bool SqliteStore::maybe_remembered(std::uint32_t uid, std::string_view key) const {
  return keys_.contains(uid, key) && !mutant(Mutant::keys_are_forgotten);
}

std::optional<DiskRoom> SqliteStore::disk_room() const {
  const auto left = bytes_free(path_.parent_path());
  if (!left) return std::nullopt;
  return DiskRoom{*left, path_.parent_path().string()};
}

// ------------------------------------------------------------------------------------------------ writer thread

void SqliteStore::write_loop() {
  while (write_once(next_work(group))) {
  }
}

// False: this was the last round.
bool SqliteStore::write_once(Work work) {
  if (!work.batches.empty()) {
    const std::uint64_t sequence = work.batches.back().sequence;
    if (auto done = commit(work.batches); !done) {
      fail(done.error());
    } else {
      {
        const std::lock_guard lock(mutex_);
        being_written_ = 0;
      }
      if (events_.committed) events_.committed(sequence);
    }
  }
  answer(std::move(work.reads));
  // Pruning comes after the report, so that no caller waits for it.
  if (tables_) {
    if (auto done = tidy(); !done) fail(done.error());
  }
  return !work.last;
}

SqliteStore::Work SqliteStore::next_work(std::size_t at_most) {
  std::unique_lock lock(mutex_);
  work_ready_.wait(lock, [this] {
    return wake_ || stopping_ || !queue_.empty() || !reads_.empty() || (more_to_prune_ && state_ == State::open);
  });
  Work work;
  const std::size_t most = std::min({queue_.size(), group, at_most});
  auto end = queue_.begin();
  for (std::size_t leases = 0; end < queue_.begin() + static_cast<std::ptrdiff_t>(most); ++end) {
    leases += end->batch.changed.size();
    if (leases > group_leases && end != queue_.begin()) break;
  }
  work.batches.assign(std::make_move_iterator(queue_.begin()), std::make_move_iterator(end));
  queue_.erase(queue_.begin(), end);
  if (mutant(Mutant::batches_in_disorder)) std::reverse(work.batches.begin(), work.batches.end());
  being_written_ = work.batches.size();
  // A read sees all batches that were intended before it. So it waits while a batch is queued.
  if (queue_.empty()) work.reads.swap(reads_);
  work.last = stopping_ && queue_.empty();
  return work;
}

Status SqliteStore::commit(const std::vector<Queued>& batches) {
  std::vector<AnswerKey> dropped;
  if (auto done = tables_->begin(); !done) return done;
  if (auto reached = reach(batches, Failpoints::writing); !reached) return reached;
  for (const Queued& queued : batches) {
    if (auto done = tables_->put(queued.batch, dropped); !done) return done;
    now_ = std::max(now_, queued.batch.now);
  }
  // Twice the number of new rows, so that pruning keeps up under any load.
  const auto pruned = tables_->prune(now_, 2 * batches.size() + 2, dropped);
  if (!pruned) return pruned.error();
  if (auto reached = reach(batches, Failpoints::written); !reached) return reached;
  if (auto done = tables_->commit(); !done) return done;
  if (auto reached = reach(batches, Failpoints::committed); !reached) return reached;
  more_to_prune_ = *pruned;
  for (const auto& [uid, key] : dropped) keys_.erase(uid, key);
  return {};
}

// A failure that a test injects at this step looks like a failure of the disk.
Status SqliteStore::reach(const std::vector<Queued>& batches, std::string_view step) {
  if (failpoints_ == nullptr) return {};
  for (const Queued& queued : batches) {
    if (failpoints_->at(queued.batch.transitions, step)) {
      return unavailable(fmt::format("store {}: failpoint {}", path_.string(), step));
    }
  }
  return {};
}

Status SqliteStore::tidy() {
  {
    const std::lock_guard lock(mutex_);
    if (!queue_.empty()) return tables_->database().checkpoint(pages_while_others_wait);
  }
  if (more_to_prune_) {
    std::vector<AnswerKey> dropped;
    if (auto done = tables_->begin(); !done) return done;
    const auto pruned = tables_->prune(now_, idle_slice, dropped);
    if (!pruned) return pruned.error();
    if (auto done = tables_->commit(); !done) return done;
    more_to_prune_ = *pruned;
    for (const auto& [uid, key] : dropped) keys_.erase(uid, key);
  }
  return tables_->database().checkpoint(pages_before_checkpoint);
}

// A commit waits for at most one read. Later reads see the batches that were committed meanwhile.
void SqliteStore::answer(Reads reads) {
  for (auto work = reads.begin(); work != reads.end(); ++work) {
    if (work != reads.begin() && give_way(work, reads.end())) return;
    if (tables_) {
      (*work)(*tables_);
      if (const auto& failure = tables_->database().failure()) fail(*failure);
    } else {
      std::unique_lock lock(mutex_);
      FailedReader reader(error_);
      lock.unlock();
      (*work)(reader);
    }
  }
}

bool SqliteStore::give_way(Reads::iterator first, Reads::iterator last) {
  const std::lock_guard lock(mutex_);
  if (queue_.empty() || stopping_) return false;
  reads_.insert(reads_.begin(), std::make_move_iterator(first), std::make_move_iterator(last));
  return true;
}

void SqliteStore::fail(Error error) {
  Database& database = tables_->database();
  const bool corrupt = database.corrupt();
  // Only the files tell the fate of the last transaction, so closing must not change them.
  database.checkpoint_on_close(false);
  tables_.reset();
  error = corrupt ? set_aside(path_, error.detail) : with_free_space(std::move(error));
  more_to_prune_ = false;
  {
    const std::lock_guard lock(mutex_);
    state_ = State::failed;
    error_ = error;
    queue_.clear();
    being_written_ = 0;
  }
  if (events_.failed) events_.failed(std::move(error));
}

Error SqliteStore::with_free_space(Error error) const {
  error.detail += "; " + free_space(path_.parent_path());
  if (error.hint.empty()) error.hint = "free space on the disk or repair it; no lease is granted until the store works";
  return error;
}

}  // namespace sublet::store
