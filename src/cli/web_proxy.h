// SPDX-License-Identifier: Apache-2.0
// Serves browsers on this machine, and passes their calls to the daemon with the rights of this process. A connection
// takes one request and has a thread of its own, since the stream of events stays open.
#pragma once

#include "base/fd.h"
#include "cli/web_gate.h"
#include "client/endpoint.h"

#include <atomic>

namespace sublet::cli {

class WebProxy {
 public:
  // `listener`: a listening socket that does not block.
  WebProxy(client::Endpoint endpoint, Fd listener, std::uint16_t port)
      : endpoint_(std::move(endpoint)), listener_(std::move(listener)), gate_(port) {}

  const WebGate& gate() const { return gate_; }
  int fd() const { return listener_.get(); }
  // Call it when the listener is readable. The threads use this object until the process ends.
  void accept();

 private:
  void serve(int socket);
  void answer(int socket, std::string in, std::size_t head_size);
  void pass_on(int socket, const std::string& request);

  const client::Endpoint endpoint_;
  const Fd listener_;
  WebGate gate_;
  std::atomic<int> open_ = 0;  // connections
};

}  // namespace sublet::cli
