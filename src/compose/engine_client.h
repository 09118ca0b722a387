// SPDX-License-Identifier: Apache-2.0
// Reads from a container engine by the Docker Engine API over a Unix socket. Changes nothing there. Belongs to the
// loop thread.
#pragma once

#include "base/error.h"
#include "base/units.h"
#include "compose/document.h"
#include "net/http.h"

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
  explicit EngineClient(std::string socket, Duration timeout = std::chrono::seconds(20));

  // Asks for the engine's version and chooses the version of the API. Returns the engine's version.
  boost::asio::awaitable<Result<std::string>> negotiate();
  // Reads a JSON document. `target`: path and query, without the version. NotFound: the engine says 404. Unavailable:
  // the engine cannot be reached, does not answer, or fails.
  boost::asio::awaitable<Result<Document>> get(std::string target);

  // Reads a stream until the engine, the reader or `stop` ends it. There is no longest silence. The reader may be
  // called after the caller lost interest.
  boost::asio::awaitable<Status> stream(std::string target, net::Reader reader, std::function<void()>* stop);

 private:
  std::string versioned(const std::string& target) const { return "/v" + version_ + target; }
  boost::asio::awaitable<Result<Document>> ask(std::string target);
  boost::asio::awaitable<net::Answer> call(std::string target, std::size_t most, net::Hooks hooks);

  std::string socket_;
  Duration timeout_;
  std::string version_{engine_api};
};

}  // namespace sublet::compose
