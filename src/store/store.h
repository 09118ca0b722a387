// SPDX-License-Identifier: Apache-2.0
// The interface of the store. It keeps leases, the reasons of decisions, and the answers to calls with an
// Idempotency-Key, restarts of the daemon included. The engine's loop thread hands over the changes of each tick. A
// writer thread makes many ticks durable in one transaction. The engine answers and acts only after the commit of the
// tick was reported.
#pragma once

#include "base/error.h"
#include "base/ids.h"
#include "base/units.h"
#include "lease/cost.h"
#include "lease/facts.h"
#include "lease/lease.h"
#include "lease/reason.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::store {

// The stored answer to a call with an Idempotency-Key. The same call gets the same answer again.
struct Remembered {
  std::uint32_t uid = 0;
  std::string key;          // hash_secret() of the header; tokens are made from the key itself
  std::string fingerprint;  // hash of method, path and body in hex; a different call with the same key is refused
  int status = 0;           // HTTP status
  std::string body;         // the JSON reply, without secrets
  Time at;
};

// A token that lets its bearer use the API over TCP, as the user who made the token.
struct AccessToken {
  std::uint64_t number = 0;
  std::uint32_t uid = 0;
  std::string user{};
  std::string name{};   // label for people; may be ""
  std::string scope{};  // "read", "submit", "admin"
  std::string hash{};   // hash_secret() of the secret part
  Time created_at{};
  std::optional<Time> expires_at{};

  bool expired(Time now) const { return expires_at && *expires_at <= now; }
};

// An event of the event stream. Numbers grow by one with each event of a store.
struct LoggedEvent {
  std::uint64_t number = 0;
  std::string type;  // "lease", "device", "warning", "daemon"
  LeaseId lease;     // set if `type` is "lease"
  std::string data;  // the JSON object that is sent, without line breaks
};

// A row of a capability, such as a supervised program or a verdict of the enforcer.
struct CapabilityRow {
  std::string kind{};  // "verdict"
  std::string key{};   // unique in its kind
  std::string data{};  // JSON; "": the row is removed
  bool operator==(const CapabilityRow&) const = default;
};

// The changes of a tick. A batch is written as a whole or not at all.
struct Batch {
  std::vector<core::Lease> changed{};      // new values; a later value of the same id wins
  std::vector<core::Reason> reasons{};     // appended; the newest `Limits::reasons_per_lease` of a lease are kept
  std::optional<Remembered> remembered{};  // the first answer to (uid, key) stays, a second is ignored
  // Ended leases whose bytes were measured gone; they are history and no longer loaded. An ended lease without a
  // process settles by itself.
  std::vector<LeaseId> settled{};
  // Set once per run of the daemon, in the batch that ends the leases of an earlier boot.
  std::optional<std::string> boot_id{};
  // Set with `boot_id`: Time minus CLOCK_MONOTONIC of this run, in nanoseconds. A later run in the same boot computes
  // from it how far the wall clock moved or the machine slept.
  std::optional<std::int64_t> clock_offset_ns{};
  std::vector<core::LearnedMove> learned{};    // appended; the newest core::moves_kept of each kind are kept
  std::vector<core::LearnedRecord> records{};  // each replaces the record before it; a record without tries removes it
  // Appended; the newest `Limits::events` are kept. Shared with the readers of the event stream.
  std::vector<std::shared_ptr<const LoggedEvent>> events{};
  std::vector<AccessToken> tokens{};     // new ones
  std::vector<std::uint64_t> revoked{};  // numbers of removed tokens
  std::vector<core::Grant> grants{};     // given or removed grants
  std::vector<CapabilityRow> rows{};     // each replaces the row with its kind and key
  // Random id of the store, which qualifies event numbers; set once by the engine.
  std::optional<std::string> life{};
  Time now{};
  std::vector<std::string_view> transitions{};  // core::Plan::transitions; only for failpoints, not stored
};

// The history of a consumer, from its ended leases.
struct ConsumerRuns {
  std::vector<Duration> runs;  // run times from grant to end of normally ended leases, newest last, at most 16
  Bytes peak_used;             // the most bytes that any of its kept leases used
  Time last_used{};            // end of its last ended lease
};

struct Loaded {
  std::vector<core::Lease> leases;  // all living leases, and ended leases that have not settled; by id
  std::map<core::Consumer, ConsumerRuns> history;
  std::uint64_t last_id = 0;  // highest lease id ever stored, pruned leases included
  // Greatest Batch::now ever stored; the daemon's clock starts here or later.
  Time last_time;
  std::string boot_id;                          // the last stored boot id, "" if there is none
  std::optional<std::int64_t> clock_offset_ns;  // stored with the boot id
  std::uint64_t last_event = 0;                 // highest event number ever stored
  std::string life;                             // random id of the store; "" until it is set
  std::vector<AccessToken> tokens;              // sorted by number
  std::uint64_t last_token = 0;                 // highest number ever used
  std::vector<core::Grant> grants;              // given grants, by uid and consumer
  std::vector<CapabilityRow> rows;              // by kind and key
  std::vector<core::LearnedRecord> records;     // one for each consumer and method, unordered
  std::vector<core::LearnedMove> moves;         // the kept moves, in the order in which they were learned
};

// Limits of the stored data. Ages are measured by Batch::now.
struct Limits {
  Duration keep_ended = std::chrono::hours(30 * 24);  // ended and settled leases, with their reasons
  // Ended leases of a user; the oldest are removed first. They are removed many at a time, so up to an eighth more may
  // exist.
  std::size_t ended_per_user = 10'000;
  Duration keep_remembered = std::chrono::hours(24);
  std::size_t remembered_rows = 1'000'000;  // the oldest are removed first
  std::size_t reasons_per_lease = 200;
  std::size_t events = 20'000;
  std::size_t queued_batches = 16'384;  // see Store::backlog
};

// A position in the list of ended leases, newest end first. The list continues behind this lease.
struct EndedBefore {
  Time ended_at;
  LeaseId lease;
};

// Reads committed data. Valid only inside the function given to Store::read. An error is Unavailable and means that the
// store has failed.
class Reader {
 public:
  virtual ~Reader() = default;
  virtual Result<std::optional<core::Lease>> lease(LeaseId id) = 0;
  // Returns the newest lease with that tag, of one user or, without `uid`, of any user.
  virtual Result<std::optional<core::Lease>> by_tag(std::string_view tag, std::optional<std::uint32_t> uid) = 0;
  // Returns ended leases, newest end first, of one user or, without `uid`, of all users.
  virtual Result<std::vector<core::Lease>> ended(std::size_t limit, std::optional<std::uint32_t> uid,
                                                 std::optional<EndedBefore> before = {}) = 0;
  virtual Result<std::vector<core::Reason>> reasons(LeaseId id) = 0;  // oldest first
  virtual Result<std::optional<Remembered>> remembered(std::uint32_t uid, std::string_view key) = 0;
  // Returns the end of the last lease that was pruned. All leases that ended later are still stored. Time{}: none was
  // pruned.
  virtual Result<Time> forgotten() = 0;
  // Returns the first kept events with a number above `after`, in order.
  virtual Result<std::vector<LoggedEvent>> events(std::uint64_t after, std::size_t limit) = 0;
};

// Callbacks on the writer thread. They should only post to the loop, and may not call the store.
struct Events {
  std::function<void(std::uint64_t sequence)> committed;  // all batches up to this number are durable
  // The store has failed. Batches after the last `committed` may or may not be there after the next open. The store
  // accepts no more batches, and the engine reconciles and calls open again.
  std::function<void(Error error)> failed;
};

struct Backlog {
  std::size_t batches = 0;  // batches queued or being written
  std::size_t limit = 0;
  bool full() const { return batches >= limit; }
};

// The free space of the store's file system.
struct DiskRoom {
  Bytes left;
  std::string directory;
};

// The store. All methods are called on the engine's loop thread.
class Store {
 public:
  virtual ~Store() = default;

  // Opens, checks, migrates and loads the store. Blocks. Also called after `failed`. An error leaves the store closed;
  // its detail names the file and the fault, and its hint says what to do. An unreadable store is an error and never an
  // empty store.
  virtual Result<Loaded> open(Events events) = 0;

  // Commits the queued batches, then closes the store. A failed or unopened store is just closed.
  virtual void close() = 0;

  // Queues a batch and returns its number, which grows by one with each batch. Never blocks and never refuses, because
  // the decision is already made. After a failure the batch is dropped, and its number is never reported as committed.
  virtual std::uint64_t intend(Batch batch) = 0;

  // Returns how many batches are queued. While the backlog is full, the engine refuses new requests.
  virtual Backlog backlog() const = 0;

  // Runs `work` once on the writer thread, after all earlier batches are committed. If the store is closed or has
  // failed, `work` gets a reader that answers every question with the error. Without a writer thread this happens
  // inside this call. `work` must not call the store.
  virtual void read(std::function<void(Reader&)> work) = 0;

  // Whether an answer to (uid, key) may be stored or queued. False is certain; after true, the caller must read. Never
  // blocks.
  virtual bool maybe_remembered(std::uint32_t uid, std::string_view key) const = 0;

  // Returns the free disk space; unset if the store is not on disk or the space is unknown. Asks the file system each
  // time, which takes microseconds.
  virtual std::optional<DiskRoom> disk_room() const { return {}; }
};

}  // namespace sublet::store
