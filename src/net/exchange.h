// SPDX-License-Identifier: Apache-2.0
// Request and answer over any connected stream; http.h for the plain one.
#pragma once

#include "base/number.h"
#include "net/http.h"

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>

#include <array>

namespace sublet::net {

boost::beast::http::request<boost::beast::http::string_body> message_of(const Address& address, Request request);
// Takes status and headers.
void take_head(const boost::beast::http::fields& head, unsigned status, Answer& answer);

// `lowest`: the stream under `stream`, which has the time limit.
template <typename AnyStream>
boost::asio::awaitable<Answer> exchange(AnyStream& stream, Stream& lowest, const Address& address, Request request,
                                        Limits limits, Reader reader) {
  namespace bhttp = boost::beast::http;
  Answer answer;
  answer.step = Answer::Step::send;
  const auto message = message_of(address, std::move(request));
  if (auto [error, size] = co_await bhttp::async_write(stream, message, quiet); error) {
    answer.error = error;
    co_return answer;
  }
  answer.step = Answer::Step::receive;
  boost::beast::flat_buffer buffer;
  bhttp::response_parser<bhttp::buffer_body> parser;
  parser.body_limit(boost::none);  // it is limited here
  if (auto [error, size] = co_await bhttp::async_read_header(stream, buffer, parser, quiet); error) {
    answer.error = error;
    co_return answer;
  }
  take_head(parser.get(), parser.get().result_int(), answer);
  const bool streamed = reader.piece && answer.status == 200;
  if (streamed) lowest.expires_never();
  if (streamed && reader.begun) reader.begun();
  std::array<char, 16384> piece;
  while (!parser.is_done() && (streamed || answer.body.size() < limits.body)) {
    parser.get().body().data = piece.data();
    parser.get().body().size = piece.size();
    parser.get().body().more = true;
    const auto [error, size] = co_await bhttp::async_read_some(stream, buffer, parser, quiet);
    const std::string_view got(piece.data(), piece.size() - parser.get().body().size);
    if (!streamed) answer.body += got;
    else if (!got.empty() && !co_await reader.piece(got)) co_return answer;
    if (error == bhttp::error::need_buffer) continue;
    if (error == bhttp::error::end_of_stream && parser.need_eof()) co_return answer;
    answer.error = error;
    if (error) co_return answer;
  }
  answer.is_cut = !parser.is_done() || answer.body.size() > limits.body;
  if (!streamed) answer.body.resize(std::min(answer.body.size(), limits.body));
  co_return answer;
}

}  // namespace sublet::net
