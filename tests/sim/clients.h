// SPDX-License-Identifier: Apache-2.0
// The clients. Each wants a lease, looks at what it was told or could read, and does what comes next, or now and then
// something wrong.
#pragma once

#include "daemon.h"

#include <deque>
#include <map>

namespace sublet::sim {

class Clients {
 public:
  Clients(const Config& config, World& world, Agenda& agenda, Verdict& verdict, Oracle& oracle, Disk& disk)
      : config_(config), world_(world), agenda_(agenda), verdict_(verdict), oracle_(oracle), disk_(disk) {}

  // Sets the daemon, or null when it is gone: open calls are then never answered.
  void serve(Daemon* daemon);

  void submit(Random& random);
  void act(Random& random);    // one client with a lease does something
  void work(Random& random);   // one of the programs does something
  void retry(Random& random);  // repeats an earlier call
  void blunder(Random& random);
  void lose_keeper(Random& random);

  // For the end of a run: parked leases resume, all other leases end, and so do programs that have outlived their
  // leases.
  void wind_down();

  // Starts programs that want more memory than there is: they come all at once, take all that they are given, and stay.
  void gather(Random& random);
  void keep_company();

 private:
  struct Client {
    LeaseId lease;
    std::uint64_t session = 0;                  // number of the connection that holds the lease
    bool waiting = false;                       // waits for an answer
    std::optional<Duration> speaks_after = {};  // time from the grant until it registers how it yields; unset: never
  };
  struct Call {
    std::string key;
    core::Fact fact;
    std::optional<std::string> body;  // the answer, once durable
  };
  struct Guest {
    LeaseId lease;
    std::optional<Bytes> keeps;  // cooperative: its residue
    bool settled = false;        // has all the memory that it will ever take
  };
  LeaseId invite(core::Lease lease);
  void settle(Guest& guest, Client& client, const core::Lease& lease);
  void send(Client* client, core::Fact fact, bool keyed);
  void answered(LeaseId client, const std::string& key, const Daemon::Answer& answer);
  void check_answer(const Call& call, const Daemon::Answer& answer);
  void act_active(Client& client, const core::Lease& lease, Random& random);
  bool silent(Client& client, const core::Lease& lease, Random& random);
  void preempt(Client& client, Random& random);
  void attach(Client& client, const core::Lease& lease, Random& random);
  void cooperate(Client& client, const core::Lease& lease, const Program& program, Random& random);
  void resize(Client& client, const core::Lease& lease, Random& random);
  void declare(const core::Lease& lease);
  void leave(Client& client, const core::Lease& lease, Random& random);
  void hold(Client& client, bool hold);
  core::Fact some_fact(LeaseId lease, std::uint64_t generation, Random& random) const;
  Bytes some_bytes(Random& random) const;
  const core::Lease* seen(LeaseId lease) const { return disk_.store().find(lease); }
  core::HostMemory host(LeaseId lease) const;

  const Config& config_;
  World& world_;
  Agenda& agenda_;
  Verdict& verdict_;
  Oracle& oracle_;
  Disk& disk_;
  Daemon* daemon_ = nullptr;
  std::map<LeaseId, Client> clients_;
  std::deque<Call> calls_;  // the newest calls with a key
  std::vector<Guest> guests_;
  std::uint64_t last_session_ = 0;
  std::uint64_t last_key_ = 0;
};

}  // namespace sublet::sim
