// SPDX-License-Identifier: Apache-2.0
// POSTs to one server, over TCP or TLS. Never follows a redirect. Belongs to the loop thread.
#pragma once

#include "base/units.h"
#include "events/message.h"
#include "net/http.h"

#include <boost/asio/ssl/context.hpp>

#include <memory>
#include <optional>

namespace sublet::events {

struct Posted {
  int status = 0;                         // 0: there was no answer
  std::string problem;                    // why there was none, as a part of a sentence
  std::optional<Duration> retry_after{};  // the server's wish

  bool taken() const { return status >= 200 && status < 300; }
  // A repetition may help: no answer, 408, 429 or 5xx.
  bool passing() const { return status == 0 || status == 408 || status == 429 || status >= 500; }
};

class Poster {
 public:
  explicit Poster(net::Address address) : address_(std::move(address)) {}
  // The server's certificate must be valid for its host. `at_most` is the time for everything. Must not be called while
  // a call runs.
  boost::asio::awaitable<Posted> post(Message message, Duration at_most);

 private:
  Status read_certificates();  // Unavailable: there are none
  boost::asio::awaitable<net::Answer> call_by_tls(net::Request request, net::Limits limits);

  net::Address address_;
  std::shared_ptr<boost::asio::ssl::context> tls_;  // reading the certificates takes long; null: not read yet
};

// Describes an error of a connection, without secrets. For another machine, the text names the unit's limits.
std::string problem_text(const boost::system::error_code& error, const net::Address& address);

}  // namespace sublet::events
