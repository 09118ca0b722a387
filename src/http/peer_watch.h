// SPDX-License-Identifier: Apache-2.0
// Sees that a peer has gone while it is not read from: it waits for an answer. Belongs to the loop thread.
#pragma once

#include "http/stream.h"

#include <boost/asio/steady_timer.hpp>

#include <memory>

namespace sublet::http {

class PeerWatch {
 public:
  // `wake` is cancelled when the peer has gone. `socket` must live until stop().
  static std::shared_ptr<PeerWatch> start(Protocol::socket& socket, std::shared_ptr<boost::asio::steady_timer> wake);
  PeerWatch(Protocol::socket& socket, std::shared_ptr<boost::asio::steady_timer> wake);

  bool gone() const { return gone_; }
  // The socket is somebody else's to read again. What is still out to be called finds nothing to do.
  void stop();

 private:
  static void wait(const std::shared_ptr<PeerWatch>& self);
  static void wait_behind_bytes(const std::shared_ptr<PeerWatch>& self);
  void found_gone();

  Protocol::socket* socket_;  // null after stop()
  std::shared_ptr<boost::asio::steady_timer> wake_;
  std::unique_ptr<boost::asio::steady_timer> later_;
  bool gone_ = false;
};

}  // namespace sublet::http
