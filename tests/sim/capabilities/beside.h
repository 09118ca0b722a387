// SPDX-License-Identifier: Apache-2.0
// The processes that capabilities start: keepers with their programs, and containers. They outlive each run of the
// daemon.
#pragma once

#include "compose/worker.h"
#include "daemon.h"
#include "house.h"
#include "machine/keepers.h"

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace sublet::sim {

// A keeper: it asks for the lease of its start, starts its program, and reports the end.
struct Keeper {
  enum class Stage { begun, waiting, running, over };
  nlohmann::json document;
  std::uint32_t uid = 0;
  std::string user;
  Stage stage = Stage::begun;
  LeaseId lease{};
  House* held_by = nullptr;  // the life whose connection holds the lease
};

class Beside {
 public:
  Beside(World& world, Agenda& agenda, Verdict& verdict, Disk& disk, std::uint64_t seed)
      : world_(world), agenda_(agenda), verdict_(verdict), disk_(disk), random_(seed) {}

  void serve(House* house) { house_ = house; }
  void reboot();  // all keepers and containers are gone
  void calm() { calm_ = true; }
  bool is_empty() const;
  std::string left() const;  // what is still there, for people

  // Each has its own life; `house` gets the answers if it is still there.
  std::unique_ptr<machine::Keepers> keepers(House& house);
  std::unique_ptr<compose::Worker> worker(House& house);

 private:
  class SimKeepers;
  class SimWorker;
  friend class SimKeepers;
  friend class SimWorker;

  void order(const machine::KeeperOrder& order);
  void next(const std::shared_ptr<Keeper>& keeper, Duration in);
  void step(const std::shared_ptr<Keeper>& keeper);
  void ask(Keeper& keeper);
  void wait(Keeper& keeper);
  void run(Keeper& keeper);
  void check_durable(const nlohmann::json& document, std::uint32_t uid);
  void check_may_start(const std::string& stack);

  World& world_;
  Agenda& agenda_;
  Verdict& verdict_;
  Disk& disk_;
  Random random_;
  House* house_ = nullptr;
  bool calm_ = false;
  std::vector<std::shared_ptr<Keeper>> keepers_;
  std::map<std::string, std::vector<compose::Container>> containers_;  // by project
};

}  // namespace sublet::sim
