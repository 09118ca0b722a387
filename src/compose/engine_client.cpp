// SPDX-License-Identifier: Apache-2.0
#include "compose/engine_client.h"

#include "base/number.h"
#include "base/text.h"

#include <fmt/format.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include <array>

namespace sublet::compose {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::local::stream_protocol;
using nlohmann::json;
using Stream = beast::basic_stream<stream_protocol>;

constexpr auto quiet = asio::as_tuple(asio::use_awaitable);
constexpr std::uint64_t most_answer = std::uint64_t{64} << 20;
constexpr unsigned http_1_1 = 11;

std::chrono::steady_clock::duration to_steady(Duration d) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(d);
}

Error failure(const std::string& socket, const boost::system::error_code& error, Duration timeout) {
  if (error == beast::error::timeout) {
    return unavailable(
        fmt::format("the container engine at {} did not answer for {}", socket, format_duration(timeout)),
        "check that the engine works: docker info");
  }
  const char* hint = error == asio::error::access_denied ? "the user of sublet-stacks must be in the engine's group"
                                                         : "start the container engine, or set stacks.engine";
  if (error == asio::error::operation_aborted) return unavailable("the reading was ended");
  if (error == http::error::partial_message || error == http::error::end_of_stream || error == asio::error::eof) {
    return unavailable(fmt::format("the container engine at {} closed the connection", socket));
  }
  return unavailable(fmt::format("the container engine at {} cannot be reached: {}", socket, error.message()), hint);
}

// The engine's own words: {"message": "…"}.
Error refusal(unsigned status, const std::string& body) {
  const json answer = json::parse(body, nullptr, false);
  const bool told = answer.is_object() && answer.contains("message") && answer["message"].is_string();
  const std::string text = told ? answer["message"].get<std::string>() : body.substr(0, 200);
  std::string detail = fmt::format("the container engine says {}: {}", status, visible(text));
  return status == 404 ? not_found(std::move(detail)) : unavailable(std::move(detail));
}

asio::awaitable<boost::system::error_code> send(Stream& stream, const std::string& socket, const std::string& target) {
  if (const auto [error] = co_await stream.async_connect(stream_protocol::endpoint(socket), quiet); error) {
    co_return error;
  }
  http::request<http::empty_body> request(http::verb::get, target, http_1_1);
  request.set(http::field::host, "engine");
  request.set(http::field::user_agent, "sublet-stacks/" SUBLET_VERSION);
  const auto [error, size] = co_await http::async_write(stream, request, quiet);
  co_return error;
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

EngineClient::EngineClient(asio::io_context& io, std::string socket, Duration timeout)
    : io_(io), socket_(std::move(socket)), timeout_(timeout) {}

asio::awaitable<Result<Document>> EngineClient::ask(std::string target) {
  Stream stream(io_);
  stream.expires_after(to_steady(timeout_));
  if (const auto error = co_await send(stream, socket_, target); error) co_return failure(socket_, error, timeout_);
  http::response_parser<http::string_body> parser;
  parser.body_limit(most_answer);
  beast::flat_buffer buffer;
  const auto [error, size] = co_await http::async_read(stream, buffer, parser, quiet);
  if (error) co_return failure(socket_, error, timeout_);
  const auto& reply = parser.get();
  if (reply.result_int() != 200) co_return refusal(reply.result_int(), reply.body());
  json document = json::parse(reply.body(), nullptr, false);
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

asio::awaitable<Status> EngineClient::stream(std::string target, Reader reader, std::function<void()>* stop) {
  const auto stream = std::make_shared<Stream>(io_);
  if (stop != nullptr)
    *stop = [weak = std::weak_ptr(stream)] {
      if (const auto open = weak.lock()) open->cancel();
    };
  stream->expires_after(to_steady(timeout_));
  if (const auto error = co_await send(*stream, socket_, versioned(target)); error) {
    co_return failure(socket_, error, timeout_);
  }
  http::response_parser<http::buffer_body> parser;
  parser.body_limit(boost::none);
  beast::flat_buffer buffer;
  if (const auto [error, size] = co_await http::async_read_header(*stream, buffer, parser, quiet); error) {
    co_return failure(socket_, error, timeout_);
  }
  stream->expires_never();
  std::array<char, 16384> piece;
  const bool accepted = parser.get().result_int() == 200;
  if (accepted && reader.begun) reader.begun();
  std::string refused;
  while (!parser.is_done()) {
    parser.get().body().data = piece.data();
    parser.get().body().size = piece.size();
    parser.get().body().more = true;
    const auto [error, size] = co_await http::async_read_some(*stream, buffer, parser, quiet);
    const std::size_t got = piece.size() - parser.get().body().size;
    if (!accepted) refused.append(piece.data(), refused.size() < piece.size() ? got : 0);
    else if (got > 0 && !co_await reader.piece({piece.data(), got})) co_return Status();
    if (error == http::error::need_buffer) continue;
    if (error == http::error::end_of_stream && parser.need_eof()) break;
    if (error) co_return failure(socket_, error, timeout_);
  }
  if (!accepted) co_return refusal(parser.get().result_int(), refused);
  co_return Status();
}

}  // namespace sublet::compose
