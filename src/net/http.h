// SPDX-License-Identifier: Apache-2.0
// One HTTP call over a connection of its own. Never follows a redirect. Belongs to the loop thread.
#pragma once

#include "net/connect.h"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sublet::net {

struct Request {
  std::string_view method = "GET";
  std::string target;  // path and query
  std::vector<std::pair<std::string, std::string>> headers{};
  std::string body{};
};

struct Limits {
  std::optional<Duration> at_most{};  // time for everything; for a streamed answer, until its body begins
  std::size_t body = 0;               // bytes of the answer; more are not read
};

struct Answer {
  enum class Step { connect, send, receive };
  int status = 0;  // 0: there was no answer
  std::string body{};
  bool is_cut = false;                    // the body was longer than its limit
  std::optional<Duration> retry_after{};  // the server's wish in seconds; at most a day
  boost::system::error_code error{};      // why there is no answer, or only a part of its body
  Step step = Step::connect;              // the last one that began
};

// Takes the body of an answer with status 200 in pieces, instead of Answer::body.
struct Reader {
  std::function<void()> begun{};  // the server has accepted the call
  // Bytes as they come. The next are read when it is done; false ends the call without an error.
  std::function<boost::asio::awaitable<bool>(std::string_view)> piece{};
};

struct Hooks {
  std::function<bool(int socket)> admits{};  // whether the connected server may get the request
  std::function<void()>* stop = nullptr;     // set to a function that ends the call: operation_aborted
  Reader reader{};                           // without `piece`, the answer is not streamed
};

// Without TLS. If the hook does not admit the server, the error is permission_denied in the step `connect`.
boost::asio::awaitable<Answer> call(Address address, Request request, Limits limits, Hooks hooks);

// Whether the server has closed the connection too early.
bool is_early_end(const boost::system::error_code& error);

}  // namespace sublet::net
