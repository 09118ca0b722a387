// SPDX-License-Identifier: Apache-2.0
// Observes devices and programs: snapshots and their callers, the work of programs, programs during a pause, control
// groups that own leases. Belongs to the loop thread.
#pragma once

#include "engine/activity.h"
#include "engine/event_log.h"
#include "engine/machine.h"
#include "engine/move_progress.h"
#include "lease/rules.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace sublet::engine {

class Engine;

class Observer {
 public:
  Observer(Engine& engine, const Machine& machine, boost::asio::io_context& io);

  void start();  // starts to take snapshots
  void stop();

  // --- devices ---
  // Returns once a snapshot is decided on that was requested after the call, or at most 10 ms before it. Returns too if
  // the devices cannot be read, or a snapshot is late. One snapshot serves all callers.
  boost::asio::awaitable<void> look();
  void take_snapshot() { probe_.take_now(); }  // see Capability::measured
  // The condition of the device as of the last snapshot that named it; null: none has.
  const gpu::Facts* condition(const std::string& uuid) const;
  // The cards in MIG mode, as of the last reading. They are no devices: their slices are.
  const std::vector<gpu::GpuDevice>& divided() const { return divided_; }
  // Snapshots are frequent until this time, while a lease settles, and while programs wait or move.
  void keep_busy(Time until) { busy_until_ = until; }
  void settles(LeaseId lease) { settling_.insert(lease); }
  void settled(LeaseId lease) { settling_.erase(lease); }
  void loaded() { settling_.clear(); }  // the leases were read again
  void pace(Time now);

  // --- programs ---
  // As of the last reading and the last call of its owner. Unknown while its devices cannot be read.
  LeaseActivity activity(LeaseId lease) const;
  void touch(LeaseId lease);  // its owner made a call that counts as activity
  void resumed(const core::Resumed& lease) { activities_.resumed(lease); }
  void forgive(Duration gap) { activities_.forgive(gap); }
  // Looks at the control groups that own leases. Leases end whose group is empty or gone.
  // `at_reading`: it is called at a reading of the devices.
  void watch_groups(bool at_reading = false);
  struct Stopped {
    Time since;  // first scan that saw it
    bool by_debugger = false;
  };
  // Programs that a signal or a debugger stopped, as last seen, by lease.
  const std::map<LeaseId, Stopped>& stopped() const { return stopped_; }

  // --- during a pause ---
  // Returns the host memory that is left for the bytes of this lease; null: of any lease. Reads a few small files.
  core::HostMemory host_memory(const core::Lease* lease = nullptr) const;
  void begin_moving(LeaseId lease);
  void begin_copying(LeaseId lease);  // all processes are locked and measured
  // Returns the progress of a pause or resume; nothing if there is none. Reads a few small files.
  std::optional<MoveProgress> progress(const core::Lease& lease) const;
  // Bytes of parked programs on a swap device, as last seen, by lease.
  const std::map<LeaseId, Bytes>& swapped() const { return swapped_; }

  std::vector<Warning> device_warnings(Time now) const;
  std::vector<Warning> lease_warnings(Time now) const;

 private:
  struct Look {
    std::int64_t since_ns;  // CLOCK_MONOTONIC
    std::shared_ptr<boost::asio::steady_timer> done;
  };
  void on_snapshot(gpu::GpuSnapshot raw, std::int64_t asked_ns);
  void fail(const std::string& problem, std::int64_t asked_ns, bool is_late);
  core::Snapshot snapshot_of(const gpu::GpuSnapshot& judged, Time began);
  core::DeviceReading reading(const gpu::GpuDevice& device);
  void scan_for(const gpu::GpuSnapshot& snapshot);
  void note_reading(const std::string& problem);
  std::optional<Warning> unread_warning(Time now) const;
  void end_looks(std::int64_t asked_ns);  // of callers that a snapshot requested at that time answers
  void watch_away();
  void watch_swap(const core::Lease& lease);
  void watch_stopped();
  void watch_sizes();
  bool any_moves() const;
  std::vector<ProcessRef> charged_of(const core::Lease& lease) const;

  Engine& engine_;
  const core::State& state_;
  boost::asio::io_context& io_;
  machine::Host& host_;
  machine::Probe& probe_;
  machine::Actor& actor_;
  machine::Programs& programs_;
  const std::unique_ptr<machine::Alarm> first_reading_alarm_;
  Activities activities_;
  bool stopping_ = false;
  bool has_read_ = false;             // a reading of the cards was usable
  std::string unread_;                // why the newest reading was not usable; "": it was
  std::list<Look> looks_;             // callers of look(), oldest first
  std::set<ProcessRef> scanned_for_;  // the processes of the snapshot of the last scan
  Time scanned_at_;
  std::int64_t looked_ns_ = 0;  // CLOCK_MONOTONIC when the last usable snapshot was requested
  Time busy_until_;
  std::unordered_set<LeaseId> settling_;
  std::set<LeaseId> empty_groups_;            // leases whose group a reading found empty, and not certainly
  std::map<LeaseId, Time> copying_since_;     // start of copying in the current move by the driver
  std::map<LeaseId, Bytes> resident_before_;  // host memory of the program at the start of the current move
  std::map<LeaseId, Bytes> swapped_;
  std::map<LeaseId, Stopped> stopped_;
  // Lease and device with more bytes in use than leased, as of the last snapshot.
  std::set<std::pair<LeaseId, std::string>> over_;
  std::map<std::string, gpu::Facts> conditions_;  // by uuid
  std::vector<gpu::GpuDevice> divided_;
};

}  // namespace sublet::engine
