// SPDX-License-Identifier: Apache-2.0
// The capability meter: who held, used and waited for how much. It follows the durable events and the readings, and
// keeps amounts in a file of its own: whatever happens to it, leases go on. Belongs to the loop thread.
#pragma once

#include "engine/capability.h"
#include "engine/engine.h"
#include "meter/feed.h"
#include "meter/writer.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sublet::meter {

struct Options {
  std::string path;                                  // of the database
  Duration keep_minutes = std::chrono::hours(2160);  // amounts by minute and lease
  Duration keep_hours = std::chrono::hours(17520);   // amounts by hour
  Duration patience = std::chrono::seconds(15);      // the last reading holds for at most this time
  bool has_thread = true;                            // false: the loop thread waits for the disk
};

class Meter final : public engine::Capability {
 public:
  // Keeps references. Call Capabilities::add() with it. `io` must not run after the end of its life.
  Meter(boost::asio::io_context& io, engine::Engine& engine, Options options);
  ~Meter() override;

  // Reads a report with all that has happened until now. `done` is called once, on the loop.
  struct Period {
    Ms length = 0;
    std::optional<Ms> to = {};  // unset: now
  };
  using Done = std::function<void(Result<nlohmann::json>)>;
  void report(By by, const Period& period, bool whole, Done done);
  // The processes of a lease behind the interposer have done this since the last call for the lease. It is lost while
  // the file cannot be opened.
  void add_work(LeaseId lease, const Work& work);
  // Writes what is known, and waits for it. Call it once, before the engine stops.
  void stop();

  // --- Capability ---
  void loaded(const store::Loaded& rows, Time now) override;
  void measured(Time now) override;
  Time due(Time now) override;
  std::vector<engine::Warning> warnings(Time) const override;

 private:
  struct Asked {
    By by;
    Period period;
    bool whole;
    Done done;
  };

  void open();
  void opened(Result<Writer::Opened> opened);
  void wake();
  boost::asio::awaitable<void> run();
  boost::asio::awaitable<void> asleep();
  boost::asio::awaitable<bool> step();
  void catch_up(Ms now);
  void flush();
  void write();
  void written(Writer::Put put);
  void prune(Ms now);
  void answer();
  void note(std::string problem);
  Ms flush_after(Ms now) const;
  Reading reading_now(Time now) const;
  std::vector<Living> living(Ms now) const;

  boost::asio::io_context& io_;
  engine::Engine& engine_;
  const Options options_;
  std::shared_ptr<boost::asio::steady_timer> timer_;  // of run(): cancelled when there may be something to do
  std::optional<engine::Commits::Followers::iterator> follower_{};
  std::optional<Feed> feed_{};  // unset while the file cannot be opened
  Deltas pending_{};            // to be written
  Mark mark_{};                 // after `pending_`
  std::shared_ptr<Deltas> in_flight_{};
  bool opening_ = false;
  bool woken_ = false;
  bool stopped_ = false;
  Ms written_until_ = 0;  // all amounts until then are in the file
  Ms in_flight_until_ = 0;
  Ms next_flush_ = 0, next_open_ = 0, next_prune_ = 0;
  std::vector<Asked> asked_{};  // reports that wait for the newest events
  std::size_t reading_ = 0;     // reports that are read from the file
  std::string problem_{};       // why nothing is written; "": it is
  Time problem_since_{};
  std::string set_aside_{};  // a damaged file of this run
  Time set_aside_at_{};
  Writer writer_;  // last: its thread ends first
};

}  // namespace sublet::meter
