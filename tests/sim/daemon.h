// SPDX-License-Identifier: Apache-2.0
// The daemon without its edge: an engine, a store, a machine, from one start to its end, however it ends.
#pragma once

#include "machine.h"
#include "oracle.h"
#include "store/faulty_store.h"
#include "store/memory_store.h"
#include "store/sqlite_store.h"

#include <boost/asio/io_context.hpp>

#include <filesystem>
#include <optional>

namespace sublet::sim {

// The disk outlives the daemon: the files of the store, or a store in memory in their place.
class Disk {
 public:
  Disk(const Config& config, Agenda& agenda, Verdict& verdict, Oracle& oracle);
  ~Disk();
  Disk(const Disk&) = delete;
  static void remove_files_of(pid_t process);  // for a process that died before it removed them

  WatchedStore& store() { return *watched_; }
  void crash();
  // Makes the next commit fail; it is kept all the same, or lost.
  void fail_next(Random& random);
  void heal();
  void pump();

 private:
  void wake();

  const Config& config_;
  Agenda& agenda_;
  Random random_;
  std::filesystem::path directory_;
  std::unique_ptr<store::MemoryStore> memory_;
  std::unique_ptr<store::SqliteStore> sqlite_;
  std::optional<store::FaultyStore> faulty_;
  std::optional<WatchedStore> watched_;
  bool woken_ = false;
};

// The tree of tenants, which a capability gives to the engine.
class Tenancy : public engine::Capability {
 public:
  explicit Tenancy(const Config& config) : config_(config) {}
  void loaded(const store::Loaded&, Time) override {}
  std::vector<core::Fact> first_facts() const override { return {core::SetTenants{config_.tenants, {}}}; }
  Time due(Time) override { return Time::never(); }

 private:
  const Config& config_;
};

class Daemon {
 public:
  Daemon(const Config& config, World& world, Agenda& agenda, Verdict& verdict, Oracle& oracle, Disk& disk,
         std::uint64_t seed, Time wall, const std::string& boot_id,
         const std::function<void(engine::Engine&, boost::asio::io_context&)>& before_start = {});
  ~Daemon();

  // Runs all handlers that became ready.
  void turn();
  void no_more_faults();

  // A capability declares a lease reclaimable, or withdraws that.
  void declare(const core::Reclaimable& fact) { (void)engine_->decide(fact); }
  // Calls the engine like the HTTP edge. A remembered answer is given again; otherwise the call is decided, and `told`
  // says whether the answer is durable once that is known.
  struct Answer {
    int status = 0;
    std::string body;  // the lease, or the error's code
    LeaseId lease;
    std::uint64_t generation = 0;
    bool durable = false;
    bool again = false;  // a remembered answer
  };
  using Told = std::function<void(const Answer&)>;
  void call(const core::Fact& fact, const std::string& key, Told told);
  void grant(const core::Grant& grant);  // like call(), without an answer
  void change_tokens(Random& random);    // access tokens: one is made or revoked, or a call is only answered

  engine::Engine& engine() { return *engine_; }
  const SimPrograms& programs() const { return *parts_.programs; }
  const SimActor& actor() const { return *parts_.actor; }

 private:
  void decide(const core::Fact& fact, const std::string& key, const Told& told);

  const Config& config_;
  Verdict& verdict_;
  Oracle& oracle_;
  Disk& disk_;
  Tenancy tenancy_;
  std::shared_ptr<Life> life_;
  boost::asio::io_context io_{1};
  Parts parts_;
  std::optional<engine::Engine> engine_;
};

}  // namespace sublet::sim
