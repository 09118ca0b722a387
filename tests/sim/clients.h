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

  // The daemon is there, or gone (null): what was under way then is not answered by anybody.
  void serve(Daemon* daemon);

  void submit(Random& random);
  void act(Random& random);    // one of those who have a lease does something
  void work(Random& random);   // one of the programs does
  void retry(Random& random);  // a call is made again that was made before
  void blunder(Random& random);
  void lose_keeper(Random& random);

  // For the end of a run: those who have been parked come back, everybody else goes, programs that have outlived their
  // leases, too.
  void wind_down();

  // Programs that want more than there is: they come all at once, take all that they are given, and stay.
  void gather(Random& random);
  void keep_company();

 private:
  struct Client {
    LeaseId lease;
    std::uint64_t session = 0;                  // holds it
    bool waiting = false;                       // for an answer
    std::optional<Duration> speaks_after = {};  // so long after its grant it says how it yields, if it ever does
  };
  struct Call {
    std::string key;
    core::Fact fact;
    std::optional<std::string> body;  // as answered, and durable
  };
  struct Guest {
    LeaseId lease;
    std::optional<Bytes> keeps;  // it yields by itself, and keeps that
    bool settled = false;        // has all that it will ever take
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
  std::deque<Call> calls_;  // the newest ones with a key
  std::vector<Guest> guests_;
  std::uint64_t last_session_ = 0;
  std::uint64_t last_key_ = 0;
};

}  // namespace sublet::sim
