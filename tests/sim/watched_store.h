// SPDX-License-Identifier: Apache-2.0
// The store as the engine sees it, with a record of all batches, durable or open. It checks that a store that is opened
// again holds what it was told to keep.
#pragma once

#include "store/store.h"
#include "verdict.h"

#include <deque>
#include <functional>
#include <map>
#include <set>

namespace sublet::sim {

class WatchedStore final : public store::Store {
 public:
  // `seen`: called for each intended batch, with the leases as of the batches before.
  using Seen = std::function<void(const store::Batch&)>;
  WatchedStore(store::Store& inner, Verdict& verdict, Seen seen)
      : inner_(inner), verdict_(verdict), seen_(std::move(seen)) {}

  Result<store::Loaded> open(store::Events events) override;
  void close() override { inner_.close(); }
  std::uint64_t intend(store::Batch batch) override;
  store::Backlog backlog() const override { return inner_.backlog(); }
  void read(std::function<void(store::Reader&)> work) override { inner_.read(std::move(work)); }
  bool maybe_remembered(std::uint32_t uid, std::string_view key) const override {
    return inner_.maybe_remembered(uid, key);
  }

  // Called at each open, when all durable leases are loaded, with their latest time.
  void when_opened(std::function<void(Time)> opened) { opened_ = std::move(opened); }

  struct Row {
    core::Lease lease;
    bool settled = false;
  };
  using Rows = std::map<LeaseId, Row>;
  // The leases that are certainly durable, as of the last reported commit.
  const Rows& durable() const { return durable_; }
  const core::Lease* find(LeaseId id) const;
  bool ended(LeaseId id) const { return ended_.contains(id); }  // ended durably, at any time
  // The durable row of a capability; "": there is none.
  std::string row(std::string_view kind, std::string_view key) const;
  std::uint64_t durable_sequence() const { return durable_sequence_; }
  std::uint64_t last_event() const { return last_event_; }  // highest durable number
  struct Pending {
    std::uint64_t sequence;
    std::vector<core::Lease> changed;
    std::vector<LeaseId> settled;
    std::uint64_t last_event;
    Time now;
    std::vector<store::CapabilityRow> rows;
  };
  const std::deque<Pending>& pending() const { return pending_; }
  // The highest id that was ever intended, whether or not it became durable.
  std::uint64_t highest_id() const { return highest_id_; }

 private:
  void note(const core::Lease& lease);
  using CapabilityRows = std::map<std::pair<std::string, std::string>, std::string>;  // by kind and key
  static void apply(const Pending& batch, Rows& rows);
  static void apply(const Pending& batch, CapabilityRows& rows);
  void committed(std::uint64_t sequence);
  void check_loaded(const store::Loaded& loaded);
  static std::string difference(const Rows& rows, const CapabilityRows& others, const store::Loaded& loaded);

  store::Store& inner_;
  Verdict& verdict_;
  const Seen seen_;
  std::function<void(Time)> opened_;
  store::Events events_;
  Rows durable_;
  CapabilityRows durable_rows_;
  std::set<LeaseId> ended_;
  std::map<std::string, LeaseId> made_by_;  // the one lease that a call with this key has made, durably
  std::deque<Pending> pending_;             // batches not known to be durable
  std::uint64_t durable_sequence_ = 0;
  std::uint64_t last_event_ = 0;
  std::uint64_t highest_id_ = 0;
  Time last_time_, durable_time_;
};

}  // namespace sublet::sim
