// SPDX-License-Identifier: Apache-2.0
#include "net/http.h"

#include "net/exchange.h"

#include <boost/asio/this_coro.hpp>

#include <algorithm>
#include <memory>

namespace sublet::net {

namespace asio = boost::asio;
namespace bhttp = boost::beast::http;

bhttp::request<bhttp::string_body> message_of(const Address& address, Request request) {
  constexpr unsigned http_1_1 = 11;
  bhttp::request<bhttp::string_body> message;
  message.version(http_1_1);
  message.method_string(request.method);
  message.target(request.target);
  message.set(bhttp::field::host, address.host_header());
  message.set(bhttp::field::connection, "close");
  for (const auto& [name, value] : request.headers) message.set(name, value);
  message.body() = std::move(request.body);
  message.prepare_payload();
  return message;
}

// A date in Retry-After is left out.
void take_head(const bhttp::fields& head, unsigned status, Answer& answer) {
  constexpr std::int64_t day = 86'400;
  answer.status = static_cast<int>(status);
  const auto text = head[bhttp::field::retry_after];
  const auto seconds = parse_number<std::int64_t>({text.data(), text.size()});
  if (seconds && *seconds >= 0) answer.retry_after = std::chrono::seconds(std::min(*seconds, day));
}

bool is_early_end(const boost::system::error_code& error) {
  return error == bhttp::error::partial_message || error == bhttp::error::end_of_stream || error == asio::error::eof;
}

asio::awaitable<Answer> call(Address address, Request request, Limits limits, Hooks hooks) {
  struct Open {
    explicit Open(const asio::any_io_executor& executor) : stream(executor) {}
    Stream stream;
    bool stopped = false;
  };
  const auto executor = co_await asio::this_coro::executor;
  const auto open = std::make_shared<Open>(executor);
  if (hooks.stop != nullptr)
    *hooks.stop = [weak = std::weak_ptr(open)] {
      if (const auto still = weak.lock()) still->stopped = true, still->stream.close();
    };
  Answer answer;
  answer.error = co_await connect(open->stream, address, limits.at_most);
  if (!answer.error && hooks.admits && !hooks.admits(open->stream.socket().native_handle()))
    answer.error = make_error_code(boost::system::errc::permission_denied);
  if (!answer.error)
    answer =
        co_await exchange(open->stream, open->stream, address, std::move(request), limits, std::move(hooks.reader));
  if (open->stopped) answer.error = asio::error::operation_aborted;
  co_return answer;
}

}  // namespace sublet::net
