// SPDX-License-Identifier: Apache-2.0
// Users who add, change and remove programs, sessions and stacks, and remember what they were told.
#pragma once

#include "house.h"

#include <map>
#include <set>
#include <string>

namespace sublet::sim {

class Users {
 public:
  Users(World& world, Verdict& verdict) : world_(world), verdict_(verdict) {}
  void serve(House* house) { house_ = house; }

  void act(Random& random);
  // Checks that all that was told as durable is there.
  void check() const;
  // Removes, closes and releases everything that is left. Call it again until is_done().
  void wind_down();
  bool is_done() const;
  std::string left() const;  // for people

 private:
  void use_program(Random& random);
  void add_program(const std::string& tag, Random& random);
  void change_program(const guard::Program& program, Random& random);
  void use_session(Random& random);
  void open_session(Random& random);
  void change_session(const sessions::Session& session, Random& random);
  void use_stack(Random& random);
  void acquire(const std::string& name, Random& random);

  World& world_;
  Verdict& verdict_;
  House* house_ = nullptr;
  std::map<std::string, std::uint64_t> kept_;  // by tag: the number of a program that was told, and not removed
  std::set<std::uint64_t> sessions_;           // that were told
  std::uint64_t last_token_ = 0;
};

}  // namespace sublet::sim
