// SPDX-License-Identifier: Apache-2.0
// The capabilities of the daemon. Each has a line in the table of capabilities.cpp.
#pragma once

#include "config/config.h"
#include "daemon/options.h"
#include "engine/engine.h"
#include "http/message.h"

#include <boost/asio/io_context.hpp>

#include <memory>
#include <string>

namespace sublet::daemon {

// The parts that capabilities are made from. They outlive the capabilities.
struct Parts {
  boost::asio::io_context& io;
  engine::Engine& engine;
  machine::Keepers& keepers;
  machine::Unleased* unleased;  // null: the processes of this machine cannot be listed
  const Config& config;
  const Places& places;
  std::string store_path;
};

class CapabilitySet {
 public:
  CapabilitySet();
  ~CapabilitySet();

  // Makes those that are enabled, and adds them to the engine in the order of the table. Call it once, before the
  // engine's start. An error names the key of the configuration.
  Status make(const Parts& parts);
  Status start();                    // after the engine's start
  void stop();                       // before the engine's stop
  http::Capabilities shown() const;  // for the API

  struct Made;

 private:
  std::unique_ptr<Made> made_;
};

}  // namespace sublet::daemon
