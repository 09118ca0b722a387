// SPDX-License-Identifier: Apache-2.0
#include "store/faulty_store.h"

#include "store/failed_reader.h"

namespace sublet::store {

void FaultyStore::fail_commit(std::uint64_t n, Fate fate, Error error) {
  until_failure_ = n;
  fate_ = fate;
  const std::lock_guard lock(mutex_);
  error_ = std::move(error);
}

Result<Loaded> FaultyStore::open(Events events) {
  if (auto error = std::exchange(open_error_, {})) return std::move(*error);
  inner_.close();  // commits the batches accepted before the failure, without telling the engine
  events_ = std::move(events);
  {
    const std::lock_guard lock(mutex_);
    failed_ = false;
    passed_.clear();
  }
  return inner_.open({[this](std::uint64_t sequence) { report(sequence); },
                      [this](Error error) {
                        if (events_.failed) events_.failed(std::move(error));
                      }});
}

void FaultyStore::close() { inner_.close(); }

std::uint64_t FaultyStore::intend(Batch batch) {
  const std::uint64_t sequence = ++last_sequence_;
  std::unique_lock lock(mutex_);
  if (failed_) return sequence;
  const bool now = until_failure_ != 0 && --until_failure_ == 0;
  if (!now) {
    // Added under the lock, so that the report of this commit finds it.
    passed_.emplace_back(inner_.intend(std::move(batch)), sequence);
    return sequence;
  }
  failed_ = true;
  lock.unlock();
  // Not added to `passed_`: a kept batch becomes durable, but no report follows.
  if (fate_ == Fate::kept) inner_.intend(std::move(batch));
  // A read runs after every earlier commit, on the writer thread. There the failure is reported.
  inner_.read([this](Reader&) {
    std::unique_lock inner_lock(mutex_);
    Error error = error_;
    inner_lock.unlock();
    if (events_.failed) events_.failed(std::move(error));
  });
  return sequence;
}

void FaultyStore::report(std::uint64_t inner_sequence) {
  std::uint64_t ours = 0;
  {
    const std::lock_guard lock(mutex_);
    while (!passed_.empty() && passed_.front().first <= inner_sequence) {
      ours = passed_.front().second;
      passed_.pop_front();
    }
  }
  if (ours != 0 && events_.committed) events_.committed(ours);
}

void FaultyStore::read(std::function<void(Reader&)> work) {
  std::unique_lock lock(mutex_);
  if (!failed_) {
    lock.unlock();
    inner_.read(std::move(work));
    return;
  }
  const Error error = error_;
  lock.unlock();
  inner_.read([error, work = std::move(work)](Reader&) {
    FailedReader reader(error);
    work(reader);
  });
}

}  // namespace sublet::store
