// SPDX-License-Identifier: Apache-2.0
#include "http/text_stream.h"

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

namespace sublet::http {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

constexpr std::string_view head =
    "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nCache-Control: no-store\r\n"
    "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n";

// A followed text is looked at this often.
constexpr auto look_every = std::chrono::milliseconds(200);

}  // namespace

asio::awaitable<void> stream_text(Stream& stream, const Admission& admission, TextStream wanted, Duration write_time) {
  using namespace asio::experimental::awaitable_operators;
  std::string out(head);
  for (;;) {
    if (admission.refusal()) co_return;
    stream.expires_after(std::chrono::duration_cast<Clock::duration>(write_time));
    const auto [error, size] = co_await asio::async_write(stream, asio::buffer(out), quiet);
    if (error) co_return;
    stream.expires_never();
    // Let other sessions run: a fast reader would never pause.
    co_await asio::post(stream.get_executor(), asio::use_awaitable);
    out = wanted.next();
    while (out.empty()) {
      if (!wanted.follow || admission.refusal() || (wanted.over && wanted.over())) co_return;
      asio::steady_timer timer(stream.get_executor(), look_every);
      const auto ended = co_await (timer.async_wait(quiet) || peer_gone(stream));
      if (ended.index() == 1) co_return;
      out = wanted.next();
    }
  }
}

}  // namespace sublet::http
