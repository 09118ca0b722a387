// SPDX-License-Identifier: Apache-2.0
// All capabilities above the engine, and their rows: when they are called, and their parts of answers. Belongs to the
// loop thread.
#pragma once

#include "engine/capability.h"
#include "engine/machine.h"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::engine {

class Engine;

class Capabilities {
 public:
  Capabilities(Engine& engine, const Machine& machine, boost::asio::io_context& io)
      : engine_(engine), io_(io), alarm_(machine.alarm()) {}

  // Adds a capability, or its records, which must outlive the engine's run. Call it before Engine::start().
  void add(Capability& capability) { all_.push_back(&capability); }
  void add(RowSource& source) { sources_.push_back(&source); }
  void stop();

  // --- calls of all of them, see Capability ---
  void loaded(const store::Loaded& rows, Time now);
  std::vector<core::Fact> first_facts() const;
  void happened(const core::Plan& plan, Time now);
  void measured(Time now);
  void keeper_lost(LeaseId lease);
  void call_soon();  // calls Capability::due soon, as each transaction does
  // Runs this on the loop, after the present transaction: for answers and calls that may come back to a capability.
  void later(std::function<void()> act);
  std::vector<Warning> warnings(Time now) const;
  // The field of a capability in the API's form of a lease or device, as JSON; "null": no capability has it.
  std::string lease_field(std::string_view name, const core::Lease& lease) const;
  std::string device_field(std::string_view name, const std::string& uuid) const;

  // --- their rows, see RowSource ---
  void take(Rows& rows);
  void taken(std::uint64_t sequence);
  void committed(std::uint64_t sequence);

 private:
  void run();

  Engine& engine_;
  boost::asio::io_context& io_;
  const std::unique_ptr<machine::Alarm> alarm_;
  std::vector<Capability*> all_;
  std::vector<RowSource*> sources_;
  bool is_called_ = false;  // the next call is posted
  bool stopping_ = false;
};

}  // namespace sublet::engine
