// SPDX-License-Identifier: Apache-2.0
// The daemon's side of `sublet-stacks`: starts it or connects to it, and again with back-off after it was lost. Belongs
// to the loop thread.
#pragma once

#include "compose/worker.h"

#include <boost/asio/io_context.hpp>

#include <memory>
#include <string>

namespace sublet::compose {

struct RemoteOptions {
  std::string socket;   // of a worker that is a service (default_socket in compose/protocol.h); "": it is our child
  std::string program;  // path of sublet-stacks, for a child
  std::string engine;   // stacks.engine, for a child
  std::string compose;  // stacks.compose, for a child
  std::string runtime;  // directory for a child's files; it is made with mode 0700
};

// While the worker is away, calls end with Unavailable, and on_engine() is told that the engine is not reachable. A
// call that was sent to a worker that went away ends with Unavailable too, and may have been done. When the worker is
// back, it gets the last watch() and the last sources of describe() again. Callbacks must not destroy the worker.
std::unique_ptr<Worker> remote_worker(boost::asio::io_context& io, RemoteOptions options);

}  // namespace sublet::compose
