// SPDX-License-Identifier: Apache-2.0
#include "compose/engine_client.h"

#include "base/number.h"
#include "base/text.h"

#include <fmt/format.h>
#include <boost/asio/error.hpp>
#include <boost/beast/core/error.hpp>

namespace sublet::compose {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using nlohmann::json;

constexpr std::size_t most_answer = std::size_t{64} << 20;
constexpr std::size_t most_refusal = 16384;  // of a stream

Error failure(const std::string& socket, const boost::system::error_code& error, Duration timeout) {
  if (error == beast::error::timeout) {
    return unavailable(
        fmt::format("the container engine at {} did not answer for {}", socket, format_duration(timeout)),
        "check that the engine works: docker info");
  }
  const char* hint = error == asio::error::access_denied ? "the user of sublet-stacks must be in the engine's group"
                                                         : "start the container engine, or set stacks.engine";
  if (error == asio::error::operation_aborted) return unavailable("the reading was ended");
  if (net::is_early_end(error))
    return unavailable(fmt::format("the container engine at {} closed the connection", socket));
  return unavailable(fmt::format("the container engine at {} cannot be reached: {}", socket, error.message()), hint);
}

// The engine's own words: {"message": "…"}.
Error refusal(int status, const std::string& body) {
  const json answer = json::parse(body, nullptr, false);
  const bool told = answer.is_object() && answer.contains("message") && answer["message"].is_string();
  const std::string text = told ? answer["message"].get<std::string>() : body.substr(0, 200);
  std::string detail = fmt::format("the container engine says {}: {}", status, visible(text));
  return status == 404 ? not_found(std::move(detail)) : unavailable(std::move(detail));
}

// "1.41" → {1, 41}.
std::pair<int, int> api_number(std::string_view text) {
  const auto dot = text.find('.');
  if (dot == text.npos) return {};
  return {parse_number<int>(text.substr(0, dot)).value_or(0), parse_number<int>(text.substr(dot + 1)).value_or(0)};
}

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

Result<std::string> engine_socket(const std::string& url) {
  constexpr std::string_view scheme = "unix://";
  const std::string path = url.starts_with(scheme) ? url.substr(scheme.size()) : "";
  constexpr std::size_t longest = 107;  // sun_path
  if (path.empty() || path[0] != '/' || path.size() > longest) {
    return bad_request(fmt::format("'{}' is not the address of a container engine", printable(url)),
                       "for example unix:///var/run/docker.sock");
  }
  return path;
}

std::string encode_query(std::string_view text) {
  std::string encoded;
  for (const char c : text) {
    const bool plain =
        (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.';
    if (plain) encoded += c;
    else encoded += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return encoded;
}

EngineClient::EngineClient(std::string socket, Duration timeout) : socket_(std::move(socket)), timeout_(timeout) {}

asio::awaitable<net::Answer> EngineClient::call(std::string target, std::size_t most, net::Hooks hooks) {
  net::Address address;
  address.socket = socket_;
  net::Request request{.target = std::move(target)};
  request.headers.emplace_back("User-Agent", "sublet-stacks/" SUBLET_VERSION);
  const net::Limits limits{.at_most = timeout_, .body = most};
  co_return co_await net::call(std::move(address), std::move(request), limits, std::move(hooks));
}

asio::awaitable<Result<Document>> EngineClient::ask(std::string target) {
  net::Hooks none;
  const net::Answer answer = co_await call(target, most_answer, std::move(none));
  if (answer.error) co_return failure(socket_, answer.error, timeout_);
  if (answer.is_cut)
    co_return unavailable(fmt::format("the container engine's answer to {} is longer than 64 MiB", target));
  if (answer.status != 200) co_return refusal(answer.status, answer.body);
  json document = json::parse(answer.body, nullptr, false);
  if (document.is_discarded())
    co_return unavailable(fmt::format("the container engine's answer to {} is no JSON", target));
  co_return Document{std::move(document)};
}

asio::awaitable<Result<Document>> EngineClient::get(std::string target) { return ask(versioned(target)); }

asio::awaitable<Result<std::string>> EngineClient::negotiate() {
  auto answer = co_await ask("/version");
  if (!answer) co_return answer.error();
  if (!answer->root.is_object()) co_return unavailable("the container engine does not tell its version");
  const std::string newest = text_of(answer->root, "ApiVersion"), oldest = text_of(answer->root, "MinAPIVersion");
  if (api_number(newest) < api_number(engine_api)) {
    co_return unavailable(fmt::format("the container engine has API version {}, and {} is needed",
                                      newest.empty() ? "?" : printable(newest), engine_api),
                          "update the container engine");
  }
  version_ = api_number(oldest) > api_number(engine_api) ? oldest : std::string(engine_api);
  co_return printable(text_of(answer->root, "Version"));
}

asio::awaitable<Status> EngineClient::stream(std::string target, net::Reader reader, std::function<void()>* stop) {
  net::Hooks hooks;
  hooks.stop = stop;
  hooks.reader = std::move(reader);
  const net::Answer answer = co_await call(versioned(target), most_refusal, std::move(hooks));
  if (answer.error) co_return failure(socket_, answer.error, timeout_);
  if (answer.status != 200) co_return refusal(answer.status, answer.body);
  co_return Status();
}

}  // namespace sublet::compose
