// SPDX-License-Identifier: Apache-2.0
#include "http/peer_watch.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>

namespace sublet::http {
namespace {

namespace asio = boost::asio;

// Between two looks at a peer that has sent more than it was asked for.
constexpr auto look_interval = std::chrono::seconds(1);

// The state of a readable socket: closed by the peer, more data than a request, or nothing to read.
enum class Readable { ended, sends_more, nothing };
Readable look_at(int socket) {
  char byte = 0;
  const ssize_t size = ::recv(socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (size > 0) return Readable::sends_more;
  return size < 0 && (errno == EAGAIN || errno == EINTR) ? Readable::nothing : Readable::ended;
}

bool has_closed(int socket) {
  pollfd look{socket, POLLRDHUP, 0};
  return ::poll(&look, 1, 0) > 0;
}

}  // namespace

PeerWatch::PeerWatch(Protocol::socket& socket) : socket_(&socket) {}

void PeerWatch::start(std::shared_ptr<asio::steady_timer> wake) {
  wake_ = std::move(wake);
  for_gone_ = true;
  if (!waiting_) wait();
}

asio::awaitable<void> PeerWatch::readable() {
  for_gone_ = false;
  if (!waiting_) {
    co_await socket_->async_wait(asio::socket_base::wait_read, quiet);
    co_return;
  }
  while (waiting_) {
    wake_->expires_at(std::chrono::steady_clock::time_point::max());
    co_await wake_->async_wait(quiet);
  }
}

void PeerWatch::wait() {
  waiting_ = true;
  socket_->async_wait(asio::socket_base::wait_read,
                      [self = shared_from_this()](const boost::system::error_code& error) {
                        self->waiting_ = false;
                        if (self->socket_ == nullptr) return;
                        if (!self->for_gone_) self->wake_->cancel();
                        else if (error) self->found_gone();
                        else self->look();
                      });
}

void PeerWatch::look() {
  switch (look_at(socket_->native_handle())) {
    case Readable::ended: return found_gone();
    case Readable::sends_more: return look_behind_bytes();
    case Readable::nothing: return wait();
  }
}

// Its next request lies unread, so that the socket stays readable; its end is not told then, but can be asked for.
void PeerWatch::look_behind_bytes() {
  if (has_closed(socket_->native_handle())) return found_gone();
  if (!later_) later_ = std::make_unique<asio::steady_timer>(socket_->get_executor());
  later_->expires_after(look_interval);
  later_->async_wait([self = shared_from_this()](const boost::system::error_code& error) {
    if (!error && self->socket_ != nullptr && self->for_gone_) self->look_behind_bytes();
  });
}

void PeerWatch::found_gone() {
  gone_ = true;
  wake_->cancel();
}

void PeerWatch::stop() {
  socket_ = nullptr;
  if (later_) later_->cancel();
}

asio::awaitable<void> peer_gone(Stream& stream) {
  const auto gone = std::make_shared<asio::steady_timer>(co_await asio::this_coro::executor,
                                                         std::chrono::steady_clock::time_point::max());
  struct Watching {  // the caller may give up waiting, and thereby end this coroutine
    explicit Watching(Protocol::socket& from) : socket(from), peer(std::make_shared<PeerWatch>(from)) {}
    ~Watching() {
      peer->stop();
      boost::system::error_code ignored;
      socket.cancel(ignored);
    }
    Watching(const Watching&) = delete;
    Watching& operator=(const Watching&) = delete;
    Protocol::socket& socket;
    std::shared_ptr<PeerWatch> peer;
  };
  const Watching watching(stream.socket());
  watching.peer->start(gone);
  while (!watching.peer->gone()) {
    co_await gone->async_wait(quiet);
    if ((co_await asio::this_coro::cancellation_state).cancelled() != asio::cancellation_type::none) co_return;
  }
}

}  // namespace sublet::http
