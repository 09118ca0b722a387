// SPDX-License-Identifier: Apache-2.0
#include "limit/questions.h"

#include "base/log.h"

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <utility>

namespace sublet::limit {
namespace {

namespace asio = boost::asio;

// The library sends its question with the connection, so that only others let us wait.
constexpr std::chrono::seconds most_wait{2};
constexpr std::size_t most_waiting_of_user = 32, most_waiting = 512;
constexpr int most_at_once = 16;  // connections in one turn of the loop
constexpr std::chrono::milliseconds next_try{100};

std::optional<std::uint32_t> uid_of(int connection) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
  return peer.uid;
}

}  // namespace

class Questions::Impl : public std::enable_shared_from_this<Questions::Impl> {
 public:
  Impl(asio::io_context& io, const proc::ProcRoot& root, std::function<void(Asked)> asked)
      : io_(io), root_(root), asked_(std::move(asked)), listener_(io), retry_(io) {}

  Status start(const std::string& path) {
    auto listener = credit::listen(path);
    if (!listener) return listener.error();
    listener_.assign(listener->release());
    wait();
    return {};
  }

  void stop() {
    stopped_ = true;
    boost::system::error_code ignored;
    listener_.close(ignored);
    retry_.cancel();
  }

 private:
  // A connection whose question has not come yet.
  struct Waiting {
    Waiting(asio::io_context& io, int file, std::uint32_t whose) : socket(io, file), timer(io), uid(whose) {}
    asio::posix::stream_descriptor socket;
    asio::steady_timer timer;
    std::uint32_t uid;
    // Its handler may have released the socket: both may happen in one round of the loop.
    void cancel() {
      boost::system::error_code ignored;
      socket.cancel(ignored);
    }
  };

  void wait() {
    listener_.async_wait(asio::posix::stream_descriptor::wait_read,
                         [self = shared_from_this()](const boost::system::error_code& error) {
                           if (!error && !self->stopped_) self->accept_all();
                         });
  }

  // A flood of connections does not keep the loop from other work.
  void accept_all() {
    for (int taken = 0; taken < most_at_once; ++taken) {
      auto connection = credit::accept(listener_.native_handle());
      if (connection && !*connection) return wait();
      if (connection) {
        welcome(std::move(*connection));
        continue;
      }
      log::warn("cannot accept a question of the interposer: {}", connection.error().detail);
      retry_.expires_after(next_try);
      retry_.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
        if (!error && !self->stopped_) self->wait();
      });
      return;
    }
    asio::post(io_, [self = shared_from_this()] {
      if (!self->stopped_) self->accept_all();
    });
  }

  void welcome(Fd connection) {
    if (take(connection)) return;
    const auto uid = uid_of(connection.get());
    if (!uid) return;
    if (const auto known = waiting_of_.find(*uid);
        known != waiting_of_.end() && known->second.size() >= most_waiting_of_user)
      send_away(known->second.front());
    if (waiting_ >= most_waiting) return;
    const auto waiting = std::make_shared<Waiting>(io_, connection.release(), *uid);
    ++waiting_;
    waiting_of_[*uid].push_back(waiting);
    waiting->timer.expires_after(most_wait);
    waiting->timer.async_wait([waiting](const boost::system::error_code& error) {
      if (!error) waiting->cancel();
    });
    waiting->socket.async_wait(asio::posix::stream_descriptor::wait_read,
                               [self = shared_from_this(), waiting](const boost::system::error_code& error) {
                                 waiting->timer.cancel();
                                 self->leave(waiting);
                                 Fd file(waiting->socket.release());
                                 if (!error && !self->stopped_) (void)self->take(file);
                               });
  }

  // It leaves at once: its handler runs later, and others may come before.
  void send_away(std::shared_ptr<Waiting> waiting) {
    leave(waiting);
    waiting->cancel();
  }

  void leave(const std::shared_ptr<Waiting>& waiting) {
    const auto of_user = waiting_of_.find(waiting->uid);
    if (of_user == waiting_of_.end()) return;
    const auto place = std::ranges::find(of_user->second, waiting);
    if (place == of_user->second.end()) return;
    of_user->second.erase(place);
    --waiting_;
    if (of_user->second.empty()) waiting_of_.erase(of_user);
  }

  // False: the question has not come yet.
  bool take(Fd& connection) {
    auto question = credit::receive(root_, connection.get());
    if (!question && question.error().code == Code::Unavailable) return false;
    if (question) asked_({std::move(*question), std::move(connection)});
    else log::debug("a question of the interposer is not answered: {}", question.error().detail);
    connection.reset();
    return true;
  }

  asio::io_context& io_;
  const proc::ProcRoot& root_;
  const std::function<void(Asked)> asked_;
  asio::posix::stream_descriptor listener_;
  asio::steady_timer retry_;
  std::size_t waiting_ = 0;
  std::map<std::uint32_t, std::deque<std::shared_ptr<Waiting>>> waiting_of_;  // by uid, the oldest first
  bool stopped_ = false;
};

Questions::Questions(asio::io_context& io, const proc::ProcRoot& root, std::function<void(Asked)> asked)
    : impl_(std::make_shared<Impl>(io, root, std::move(asked))) {}

Questions::~Questions() { impl_->stop(); }

Status Questions::start(const std::string& path) { return impl_->start(path); }

void Questions::stop() { impl_->stop(); }

}  // namespace sublet::limit
