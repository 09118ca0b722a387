// SPDX-License-Identifier: Apache-2.0
// Sees that a peer sends something, or has gone, while nothing is read from it: because it waits for an answer, or
// because nothing is asked. Belongs to the loop thread.
#pragma once

#include "http/stream.h"

#include <boost/asio/steady_timer.hpp>

#include <memory>

namespace sublet::http {

class PeerWatch : public std::enable_shared_from_this<PeerWatch> {
 public:
  explicit PeerWatch(Protocol::socket& socket);  // which must live until stop()

  // From now on `wake` is cancelled when the peer has gone.
  void start(std::shared_ptr<boost::asio::steady_timer> wake);
  bool gone() const { return gone_; }
  // Returns when there is something to read, an end or an error included. What start() began serves for this as well:
  // of thousands who are answered at a stroke, none is watched anew for that.
  boost::asio::awaitable<void> readable();
  // What is still out to be called finds nothing to do.
  void stop();

 private:
  void wait();
  void look();
  void look_behind_bytes();
  void found_gone();

  Protocol::socket* socket_;  // null after stop()
  std::shared_ptr<boost::asio::steady_timer> wake_;
  std::unique_ptr<boost::asio::steady_timer> later_;
  bool waiting_ = false;   // a look at the socket is due
  bool for_gone_ = false;  // only its end is news
  bool gone_ = false;
};

}  // namespace sublet::http
