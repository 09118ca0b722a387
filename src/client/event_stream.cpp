// SPDX-License-Identifier: Apache-2.0
#include "client/event_stream.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>

namespace sublet::client {
namespace {

constexpr Duration answer_within = std::chrono::seconds(30);
constexpr std::size_t buffer_limit = 16u << 20;  // more than any event; limits the memory that a faulty daemon can use

}  // namespace

bool EventStream::read_more(Duration silence) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(silence).count();
  for (;;) {
    pollfd wait{socket_.get(), POLLIN, 0};
    const int ready = ::poll(&wait, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0 || buffer_.size() > buffer_limit) return false;
    char bytes[16384];
    const ssize_t size = ::recv(socket_.get(), bytes, sizeof bytes, 0);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return false;
    buffer_.append(bytes, static_cast<std::size_t>(size));
    return true;
  }
}

boost::system::result<void, Failure> EventStream::open(const std::string& target, const std::string& last_id) {
  auto socket = dial(endpoint_);
  if (!socket) return socket.error();
  socket_ = std::move(*socket);
  buffer_.clear();
  last_id_ = last_id;
  complete_ = false;
  std::string more = "Accept: text/event-stream\r\n";
  if (!last_id.empty()) more += fmt::format("Last-Event-ID: {}\r\n", last_id);
  const std::string text = to_text({"GET", target, {}, {}, {}}, endpoint_, more);
  const Failure lost{FailureKind::lost, {Code::Unavailable, "the daemon does not answer", {}}, 0, {}};
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t sent = ::send(socket_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent > 0) rest.remove_prefix(static_cast<std::size_t>(sent));
    // The daemon may refuse early and close; its answer can still be read.
    else if (errno == EPIPE || errno == ECONNRESET) break;
    else if (errno != EINTR) return lost;
  }
  auto end = std::string::npos;
  while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
    if (!read_more(answer_within)) return lost;
  }
  int status = 0;
  if (buffer_.size() > 12) std::from_chars(buffer_.data() + 9, buffer_.data() + 12, status);
  buffer_.erase(0, end + 4);
  if (status == 200) return {};
  ::shutdown(socket_.get(), SHUT_WR);  // so that the daemon closes after its refusal
  while (read_more(answer_within)) {
  }
  return refusal(status, std::move(buffer_));
}

std::optional<StreamedEvent> EventStream::next(Duration silence) {
  for (;;) {
    const auto end = buffer_.find("\n\n");
    if (end == std::string::npos) {
      if (!read_more(silence)) return std::nullopt;
      continue;
    }
    const std::string block = buffer_.substr(0, end + 1);
    buffer_.erase(0, end + 2);
    if (auto event = take(block)) return event;
  }
}

std::optional<StreamedEvent> EventStream::take(std::string_view block) {
  StreamedEvent event;
  while (!block.empty()) {
    const auto line = block.substr(0, block.find('\n'));
    block.remove_prefix(line.size() + 1);
    if (line == ": end") complete_ = true;
    const auto colon = line.find(": ");
    if (colon == std::string_view::npos || colon == 0) continue;  // a comment line
    const auto value = line.substr(colon + 2);
    if (line.starts_with("id:")) last_id_ = value;
    else if (line.starts_with("event:")) event.type = value;
    else if (line.starts_with("data:")) event.data = value;
  }
  if (event.data.empty()) return std::nullopt;
  return event;
}

}  // namespace sublet::client
