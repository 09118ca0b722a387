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

// Of a socket that is said to be readable: its peer has closed it, or sends more than it was asked for, or nothing is
// there to be read after all.
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

PeerWatch::PeerWatch(Protocol::socket& socket, std::shared_ptr<asio::steady_timer> wake)
    : socket_(&socket), wake_(std::move(wake)) {}

std::shared_ptr<PeerWatch> PeerWatch::start(Protocol::socket& socket, std::shared_ptr<asio::steady_timer> wake) {
  auto watch = std::make_shared<PeerWatch>(socket, std::move(wake));
  wait(watch);
  return watch;
}

void PeerWatch::wait(const std::shared_ptr<PeerWatch>& self) {
  self->socket_->async_wait(asio::socket_base::wait_read, [self](const boost::system::error_code& error) {
    if (self->socket_ == nullptr) return;
    switch (error ? Readable::ended : look_at(self->socket_->native_handle())) {
      case Readable::ended: return self->found_gone();
      case Readable::sends_more: return wait_behind_bytes(self);
      case Readable::nothing: return wait(self);
    }
  });
}

// Its next request lies unread, so that the socket stays readable; its end is not told then, but can be asked for.
void PeerWatch::wait_behind_bytes(const std::shared_ptr<PeerWatch>& self) {
  if (has_closed(self->socket_->native_handle())) return self->found_gone();
  if (!self->later_) self->later_ = std::make_unique<asio::steady_timer>(self->socket_->get_executor());
  self->later_->expires_after(look_interval);
  self->later_->async_wait([self](const boost::system::error_code& error) {
    if (!error && self->socket_ != nullptr) wait_behind_bytes(self);
  });
}

void PeerWatch::found_gone() {
  gone_ = true;
  wake_->cancel();
}

void PeerWatch::stop() {
  boost::system::error_code ignored;
  socket_->cancel(ignored);
  socket_ = nullptr;
  if (later_) later_->cancel();
}

asio::awaitable<void> peer_gone(Stream& stream) {
  const auto gone = std::make_shared<asio::steady_timer>(co_await asio::this_coro::executor,
                                                         std::chrono::steady_clock::time_point::max());
  struct Watching {  // the caller may give up waiting, and thereby end this coroutine
    std::shared_ptr<PeerWatch> watch;
    ~Watching() { watch->stop(); }
  };
  const Watching peer{PeerWatch::start(stream.socket(), gone)};
  while (!peer.watch->gone()) {
    co_await gone->async_wait(quiet);
    if ((co_await asio::this_coro::cancellation_state).cancelled() != asio::cancellation_type::none) co_return;
  }
}

}  // namespace sublet::http
