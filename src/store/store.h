// SPDX-License-Identifier: Apache-2.0
// What outlives the daemon: leases, the reasons of what was decided about them, and the answers given to calls with an
// Idempotency-Key. The engine's loop thread hands over what one tick changed; a writer thread makes it durable, many
// ticks in one transaction; the engine answers and acts only when it has been told that the tick is committed.
#pragma once

#include "base/error.h"
#include "base/ids.h"
#include "base/units.h"
#include "core/cost.h"
#include "core/facts.h"
#include "core/lease.h"
#include "core/reason.h"

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

// The answer that a call with an Idempotency-Key got, so that the same call gets the same answer again.
struct Remembered {
  std::uint32_t uid = 0;
  std::string key;          // hash_secret() of the header: tokens are made from the key itself
  std::string fingerprint;  // hash of method, path and body in hex: the same key with another call is refused
  int status = 0;           // HTTP status
  std::string body;         // the JSON reply, without the secrets that it gave out
  Time at;
};

// What lets a caller in over TCP, in the name of who made it.
struct AccessToken {
  std::uint64_t number = 0;
  std::uint32_t uid = 0;
  std::string user{};
  std::string name{};   // for people; may be ""
  std::string scope{};  // "read", "submit", "admin"
  std::string hash{};   // hash_secret() of its secret part
  Time created_at{};
  std::optional<Time> expires_at{};

  bool expired(Time now) const { return expires_at && *expires_at <= now; }
};

// Something that happened, as readers of the event stream are told it. Numbers grow by one with each event of a store.
struct LoggedEvent {
  std::uint64_t number = 0;
  std::string type;  // "lease", "device", "warning", "daemon"
  LeaseId lease;     // of type lease
  std::string data;  // the JSON object that is sent, without line breaks
};

// What one tick changed. Written whole or not at all.
struct Batch {
  std::vector<core::Lease> changed{};      // each as it stands now; a later one of the same id wins
  std::vector<core::Reason> reasons{};     // appended; the newest `Limits::reasons_per_lease` of a lease are kept
  std::optional<Remembered> remembered{};  // the first answer to (uid, key) stays, a second is ignored
  // Ended leases whose bytes were measured gone: from now on they are history and no longer loaded. An ended lease that
  // never had a process settles by itself.
  std::vector<LeaseId> settled{};
  // Set once per run of the daemon, in the batch that holds its decisions about what a reboot has ended.
  std::optional<std::string> boot_id{};
  // With it: how far the time line of this run lies from CLOCK_MONOTONIC, so that a later run within the same boot can
  // tell by how much the wall clock was moved, or the machine slept, in between.
  std::optional<std::int64_t> clock_offset_ns{};
  std::vector<core::LearnedMove> learned{};    // appended; the newest core::moves_kept of each kind are kept
  std::vector<core::LearnedRecord> records{};  // each takes the place of the one before it; without tries: it is gone
  // The newest `Limits::events` are kept. Shared with the readers that they are told to.
  std::vector<std::shared_ptr<const LoggedEvent>> events{};
  std::vector<AccessToken> tokens{};     // new ones
  std::vector<std::uint64_t> revoked{};  // tokens that are gone
  std::vector<core::Grant> grants{};     // given or taken back
  std::optional<std::string> life{};     // set once in the life of a store: what its event numbers belong to
  Time now{};
  std::vector<std::string_view> transitions{};  // core::Plan::transitions: not stored, for failpoints only
};

// How a consumer behaved before, from its ended leases.
struct ConsumerRuns {
  std::vector<Duration> runs;  // of those that came to their own good end: from grant to end, newest last, at most 16
  Bytes peak_used;             // most that any of its kept leases ever used
  Time last_used{};            // when the last of them ended
};

struct Loaded {
  std::vector<core::Lease> leases;  // all that have not ended, and the ended ones not yet settled; by id
  std::map<core::Consumer, ConsumerRuns> history;
  std::uint64_t last_id = 0;                    // highest lease id ever stored, pruned ones included
  Time last_time;                               // latest Batch::now ever stored: the time line goes on from here
  std::string boot_id;                          // last one stored, "" if none ever was
  std::optional<std::int64_t> clock_offset_ns;  // stored with it
  std::uint64_t last_event = 0;                 // highest event number ever stored
  std::string life;                             // "" until it was set
  std::vector<AccessToken> tokens;              // by number
  std::uint64_t last_token = 0;                 // highest number ever given
  std::vector<core::Grant> grants;              // by uid and consumer, those that are given
  std::vector<core::LearnedRecord> records;     // one of each consumer and method, in no order
  std::vector<core::LearnedMove> moves;         // those that are kept, in the order in which they were learned
};

// What is kept, and for how long, measured by Batch::now.
struct Limits {
  Duration keep_ended = std::chrono::hours(30 * 24);  // ended and settled leases, with their reasons
  // Of one user; the oldest go first. They go many at a time, so that an eighth more may be there.
  std::size_t ended_per_user = 10'000;
  Duration keep_remembered = std::chrono::hours(24);
  std::size_t remembered_rows = 1'000'000;  // the oldest go first
  std::size_t reasons_per_lease = 200;
  std::size_t events = 20'000;
  std::size_t queued_batches = 16'384;  // see Store::backlog
};

// A place among the ended leases, the newest end first: behind this one.
struct EndedBefore {
  Time ended_at;
  LeaseId lease;
};

// Reads of what is committed. Only valid inside the function given to Store::read. An error is Unavailable and means
// that the store has failed.
class Reader {
 public:
  virtual ~Reader() = default;
  virtual Result<std::optional<core::Lease>> lease(LeaseId id) = 0;
  // The newest lease of that tag, of one user or of anybody.
  virtual Result<std::optional<core::Lease>> by_tag(std::string_view tag, std::optional<std::uint32_t> uid) = 0;
  // Ended leases, newest end first, of one user or of everybody.
  virtual Result<std::vector<core::Lease>> ended(std::size_t limit, std::optional<std::uint32_t> uid,
                                                 std::optional<EndedBefore> before = {}) = 0;
  virtual Result<std::vector<core::Reason>> reasons(LeaseId id) = 0;  // oldest first
  virtual Result<std::optional<Remembered>> remembered(std::uint32_t uid, std::string_view key) = 0;
  // When the latest of those leases ended that are no longer kept; what ended after it is all there. Time{}: none.
  virtual Result<Time> forgotten() = 0;
  // The first kept events with a number above `after`, in order.
  virtual Result<std::vector<LoggedEvent>> events(std::uint64_t after, std::size_t limit) = 0;
};

// Told on the writer thread; each should do no more than post the news to the loop. Neither may call the store.
struct Events {
  std::function<void(std::uint64_t sequence)> committed;  // all batches up to this one are durable
  // Nothing after the last `committed` was acknowledged, and its fate is unknown: it may be there after the next open.
  // The store accepts nothing more; the engine goes into reconcile and calls open again.
  std::function<void(Error error)> failed;
};

struct Backlog {
  std::size_t batches = 0;  // queued or being written
  std::size_t limit = 0;
  bool full() const { return batches >= limit; }
};

// What the file system of the store has left.
struct DiskRoom {
  Bytes left;
  std::string directory;
};

// All methods belong to the engine's loop thread.
class Store {
 public:
  virtual ~Store() = default;

  // Opens, checks, migrates and loads; blocks. Also the way back after `failed`. An error leaves the store closed; the
  // detail names the file and what is wrong with it, the hint what to do. The store's own reading of what is there is
  // the only one: an unreadable store is an error and never an empty one.
  virtual Result<Loaded> open(Events events) = 0;

  // Commits what is queued, then lets go of the store. A failed or unopened store just lets go.
  virtual void close() = 0;

  // Queues a batch and returns its number, which grows by one with each; never blocks and never refuses, because the
  // decision has been taken already. After a failure it is dropped, and its number is never reported as committed.
  virtual std::uint64_t intend(Batch batch) = 0;

  // How much is queued. While it is full the engine refuses new requests instead of deciding them.
  virtual Backlog backlog() const = 0;

  // Runs `work` on the writer thread, after everything intended before is committed. Exactly once: with a store that
  // is closed or has failed it gets a reader that answers every question with the error (inside this call if there is
  // no writer thread). `work` must not call the store.
  virtual void read(std::function<void(Reader&)> work) = 0;

  // Whether an answer to (uid, key) may be stored or queued; false is certain, true asks for a read. Never blocks.
  virtual bool maybe_remembered(std::uint32_t uid, std::string_view key) const = 0;

  // Unset: it is on no disk, or nobody can tell. Asks the file system each time, which takes microseconds.
  virtual std::optional<DiskRoom> disk_room() const { return {}; }
};

}  // namespace sublet::store
