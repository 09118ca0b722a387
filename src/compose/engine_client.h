// SPDX-License-Identifier: Apache-2.0
// Reads from a container engine by the Docker Engine API over a Unix socket. Changes nothing there. Belongs to the
// loop thread.
#pragma once

#include "base/error.h"
#include "base/units.h"
#include "compose/document.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include <functional>
#include <string>
#include <string_view>

namespace sublet::compose {

// The version of the API that we speak. An engine that has given it up is asked by its oldest version.
inline constexpr std::string_view engine_api = "1.41";

// Returns the path of "unix:///PATH". BadRequest: any other URL.
Result<std::string> engine_socket(const std::string& url);

// Returns a query value, percent-encoded.
std::string encode_query(std::string_view text);

class EngineClient {
 public:
  // `socket`: path of the engine's socket. `timeout`: longest silence of the engine during a call.
  EngineClient(boost::asio::io_context& io, std::string socket, Duration timeout = std::chrono::seconds(20));

  // Asks for the engine's version and chooses the version of the API. Returns the engine's version.
  boost::asio::awaitable<Result<std::string>> negotiate();
  // Reads a JSON document. `target`: path and query, without the version. NotFound: the engine says 404. Unavailable:
  // the engine cannot be reached, does not answer, or fails.
  boost::asio::awaitable<Result<Document>> get(std::string target);

  // The reader of a stream. `begun`: the engine has accepted the call. `piece`: bytes as they come; the next are
  // read when it is done; false ends the stream. Both may be called after the caller lost interest.
  struct Reader {
    std::function<void()> begun;
    std::function<boost::asio::awaitable<bool>(std::string_view)> piece;
  };
  // Reads a stream until the engine or the reader ends it. There is no longest silence.
  boost::asio::awaitable<Status> stream(std::string target, Reader reader, std::function<void()>* stop);

 private:
  std::string versioned(const std::string& target) const { return "/v" + version_ + target; }
  boost::asio::awaitable<Result<Document>> ask(std::string target);

  boost::asio::io_context& io_;
  std::string socket_;
  Duration timeout_;
  std::string version_{engine_api};
};

}  // namespace sublet::compose
