// SPDX-License-Identifier: Apache-2.0
// The capability events: sends the daemon's events to Redis and to webhooks. Each tool is a reader with a place in the
// stored events, not a buffer: a tool that is away costs nothing, and goes on at its place. Belongs to the loop thread.
#pragma once

#include "engine/capability.h"
#include "engine/engine.h"
#include "events/tool.h"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sublet::events {

struct Options {
  std::optional<Address> redis{};
  std::vector<Webhook> webhooks{};
  Pace pace{};
};

class Outlets final : public engine::Capability {
 public:
  // Keeps references. Call Capabilities::add() with it.
  Outlets(boost::asio::io_context& io, engine::Engine& engine, Options options);
  ~Outlets() override;

  Status has(const std::string& name) const;  // NotFound: there is no tool of this name
  // Sends a test event to the tool now. `done` is called once, on the loop: "", or why the tool has not taken the
  // event. The tool must be there.
  void test(const std::string& name, std::function<void(std::string problem)> done);
  std::map<std::string, Counts> counts() const;  // by name

  // --- Capability ---
  void loaded(const store::Loaded& rows, Time now) override;
  Time due(Time) override { return Time::never(); }
  std::vector<engine::Warning> warnings(Time) const override;

 private:
  std::shared_ptr<Tool> make(const std::string& name);

  boost::asio::io_context& io_;
  engine::Engine& engine_;
  const Options options_;
  std::vector<std::shared_ptr<Tool>> tools_;
  bool started_ = false;
};

}  // namespace sublet::events
