// SPDX-License-Identifier: Apache-2.0
// The stores, each wrapped for the tests of the promises that every Store makes (contract_*test.cpp).
#pragma once

#include "store/memory_store.h"
#include "store/sqlite_store.h"
#include "store/test_support.h"

namespace sublet::store::test {

class MemoryHarness {
 public:
  void limit(Limits limits) { store_ = std::make_unique<MemoryStore>(limits); }
  Store& store() { return *store_; }
  void settle() { store_->pump(); }
  void restart() {}  // committed data lives in the object

 private:
  std::unique_ptr<MemoryStore> store_ = std::make_unique<MemoryStore>();
};

class SqliteHarness {
 public:
  SqliteHarness() { restart(); }
  void limit(Limits limits) {
    limits_ = limits;
    restart();
  }
  Store& store() { return *store_; }
  void settle() {}
  void restart() {
    store_.reset();
    store_ = std::make_unique<SqliteStore>(dir_ / "store.db", limits_);
  }

 private:
  TempDir dir_;
  Limits limits_;
  std::unique_ptr<SqliteStore> store_;
};

// SqliteStore without its thread, as simulations use it.
class PumpedHarness {
 public:
  PumpedHarness() { restart(); }
  void limit(Limits limits) {
    limits_ = limits;
    restart();
  }
  Store& store() { return *store_; }
  void settle() {
    for (int round = 0; round < 8; ++round) store_->pump();  // old rows are pruned in slices
  }
  void restart() {
    store_.reset();
    store_ = std::make_unique<SqliteStore>(dir_ / "store.db", limits_, [] {});
  }

 private:
  TempDir dir_;
  Limits limits_;
  std::unique_ptr<SqliteStore> store_;
};

template <typename Harness>
class StoreContract : public testing::Test {
 protected:
  Loaded open() {
    auto loaded = harness_.store().open(news_.events());
    EXPECT_TRUE(loaded) << loaded.error().detail;
    return loaded ? *loaded : Loaded{};
  }
  Loaded reopen() {
    harness_.store().close();
    harness_.restart();
    return open();
  }
  std::uint64_t intend(Batch batch) { return harness_.store().intend(std::move(batch)); }
  void commit(Batch batch) {
    const std::uint64_t sequence = intend(std::move(batch));
    harness_.settle();
    ASSERT_TRUE(news_.wait_for(sequence)) << news_.failure()->detail;
  }
  template <typename Question>
  auto ask(Question question) {
    auto answer = test::ask(harness_.store(), question, [this] { harness_.settle(); });
    EXPECT_TRUE(answer) << answer.error().detail;
    return *answer;
  }
  // Commits empty batches until pruning, which works in slices, is certainly done.
  void let_prune(Time now) {
    for (int i = 0; i < 20; ++i) commit({.now = now});
  }
  std::optional<core::Lease> stored(std::uint64_t id) {
    return ask([id](Reader& reader) { return reader.lease(LeaseId{id}); });
  }
  std::vector<std::uint64_t> ended_ids(std::size_t limit, std::optional<std::uint32_t> uid = {}) {
    std::vector<std::uint64_t> ids;
    for (const core::Lease& lease : ask([=](Reader& reader) { return reader.ended(limit, uid); })) {
      ids.push_back(lease.id.number);
    }
    return ids;
  }

  Harness harness_;
  News news_;
};

using Harnesses = testing::Types<MemoryHarness, SqliteHarness, PumpedHarness>;
class HarnessNames {
 public:
  template <typename T>
  static std::string GetName(int) {
    if (std::is_same_v<T, PumpedHarness>) return "SqlitePumped";
    return std::is_same_v<T, MemoryHarness> ? "Memory" : "Sqlite";
  }
};

}  // namespace sublet::store::test
