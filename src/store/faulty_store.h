// SPDX-License-Identifier: Apache-2.0
// A Store whose n-th commit fails, for tests. The batch fails before it is durable, or after it is durable but before
// the engine is told. An I/O error can mean either.
#pragma once

#include "store/store.h"

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace sublet::store {

class FaultyStore final : public Store {
 public:
  enum class Fate { lost, kept };

  // `inner` must outlive this object, and only this object may open and close it.
  explicit FaultyStore(Store& inner) : inner_(inner) {}

  // Makes the n-th batch from now fail (1: the next). Later batches are dropped until open() is called again.
  void fail_commit(std::uint64_t n, Fate fate, Error error);

  // Makes the next open() fail.
  void fail_open(Error error) { open_error_ = std::move(error); }

  Result<Loaded> open(Events events) override;
  void close() override;
  std::uint64_t intend(Batch batch) override;
  Backlog backlog() const override { return inner_.backlog(); }
  void read(std::function<void(Reader&)> work) override;
  bool maybe_remembered(std::uint32_t uid, std::string_view key) const override {
    return inner_.maybe_remembered(uid, key);
  }
  std::optional<DiskRoom> disk_room() const override { return inner_.disk_room(); }

 private:
  void report(std::uint64_t inner_sequence);

  Store& inner_;
  Events events_;
  std::uint64_t last_sequence_ = 0;
  std::uint64_t until_failure_ = 0;  // 0: no failure is planned
  Fate fate_ = Fate::lost;
  std::optional<Error> open_error_;

  std::mutex mutex_;  // guards the members below: the writer thread reports while the loop calls intend()
  Error error_;
  bool failed_ = false;                                         // intend() has reached the planned failure
  std::deque<std::pair<std::uint64_t, std::uint64_t>> passed_;  // inner sequence → ours, oldest first
};

}  // namespace sublet::store
