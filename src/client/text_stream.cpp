// SPDX-License-Identifier: Apache-2.0
#include "client/text_stream.h"

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace sublet::client {
namespace {

namespace http = boost::beast::http;

constexpr Duration answer_within = std::chrono::seconds(30);

Failure no_answer() { return {FailureKind::lost, {Code::Unavailable, "the daemon does not answer", {}}, 0, {}}; }

}  // namespace

struct TextStream::Answer {
  http::response_parser<http::string_body> parser;
  std::string in;  // received bytes that are not parsed yet
};

TextStream::TextStream(Endpoint endpoint) : endpoint_(std::move(endpoint)) {}
TextStream::~TextStream() = default;

TextStream::Came TextStream::read_more(Duration timeout) {
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(timeout).count();
  std::array<char, 16384> bytes;
  for (;;) {
    pollfd wait{socket_.get(), POLLIN, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(milliseconds));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return Came::nothing;
    const ssize_t size = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (size < 0 && errno == EINTR) continue;
    boost::system::error_code failed;
    if (size == 0 && answer_->parser.got_some()) answer_->parser.put_eof(failed);
    if (size <= 0) return Came::end;
    answer_->in.append(bytes.data(), static_cast<std::size_t>(size));
    const std::size_t used = answer_->parser.put(boost::asio::buffer(answer_->in), failed);
    answer_->in.erase(0, used);
    return failed && failed != http::error::need_more ? Came::end : Came::some;
  }
}

boost::system::result<void, Failure> TextStream::open(const std::string& target) {
  auto socket = dial(endpoint_);
  if (!socket) return socket.error();
  socket_ = std::move(*socket);
  complete_ = false;
  answer_ = std::make_unique<Answer>();
  answer_->parser.body_limit(boost::none);
  answer_->parser.eager(true);
  const std::string text = to_text({"GET", target, {}, {}, {}}, endpoint_, "Accept: text/plain\r\n");
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t sent = ::send(socket_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent > 0) rest.remove_prefix(static_cast<std::size_t>(sent));
    // The daemon may refuse early and close; its answer can still be read.
    else if (errno == EPIPE || errno == ECONNRESET) break;
    else if (errno != EINTR) return no_answer();
  }
  while (!answer_->parser.is_header_done()) {
    if (read_more(answer_within) != Came::some) return no_answer();
  }
  const int status = static_cast<int>(answer_->parser.get().result_int());
  if (status == 200) return {};
  while (!answer_->parser.is_done() && read_more(answer_within) == Came::some) {
  }
  return refusal(status, std::move(answer_->parser.get().body()));
}

std::optional<std::string> TextStream::next(Duration silence) {
  std::string& body = answer_->parser.get().body();
  Came came = Came::some;
  while (body.empty() && !answer_->parser.is_done() && came == Came::some) came = read_more(silence);
  complete_ = answer_->parser.is_done();
  if (body.empty() && came != Came::nothing) return std::nullopt;
  std::string piece = std::move(body);
  body.clear();
  return piece;
}

}  // namespace sublet::client
