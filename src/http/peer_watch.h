// SPDX-License-Identifier: Apache-2.0
// Notices that a peer sends data or has closed, while the session reads nothing because it waits or idles. Loop thread
// only.
#pragma once

#include "http/stream.h"

#include <boost/asio/steady_timer.hpp>

#include <memory>

namespace sublet::http {

class PeerWatch : public std::enable_shared_from_this<PeerWatch> {
 public:
  explicit PeerWatch(Protocol::socket& socket);  // `socket` must live until stop()

  // From now on, `wake` is cancelled when the peer has closed.
  void start(std::shared_ptr<boost::asio::steady_timer> wake);
  bool gone() const { return gone_; }
  // Returns when there is data, an end or an error to read. Uses the wait that start() began, so that thousands of
  // sessions need no second one.
  boost::asio::awaitable<void> readable();
  // Callbacks that are still pending do nothing.
  void stop();

 private:
  void wait();
  void look();
  void look_behind_bytes();
  void found_gone();

  Protocol::socket* socket_;  // null after stop()
  std::shared_ptr<boost::asio::steady_timer> wake_;
  std::unique_ptr<boost::asio::steady_timer> later_;
  bool waiting_ = false;   // an asynchronous wait on the socket is pending
  bool for_gone_ = false;  // only a closed peer matters
  bool gone_ = false;
};

}  // namespace sublet::http
