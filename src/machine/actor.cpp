// SPDX-License-Identifier: Apache-2.0
#include "machine/actor.h"

#include "base/clock.h"
#include "base/log.h"
#include "proc/spawn.h"

#include <fmt/format.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <csignal>
#include <cstring>

namespace sublet::machine {
namespace {

namespace asio = boost::asio;
constexpr auto quiet = asio::as_tuple(asio::use_awaitable);
constexpr Duration first_pause = std::chrono::milliseconds(100);
constexpr Duration longest_pause = std::chrono::seconds(10);

std::chrono::steady_clock::duration to_steady(Duration d) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(d);
}

actor::Reply lost(actor::Verb verb, bool sent) {
  actor::Reply reply;
  reply.verb = verb;
  reply.code = actor::Code::lost;
  reply.error = sent ? ECONNRESET : 0;
  return reply;
}

// As sendmsg(2): -1 and errno on failure.
ssize_t send_order(int socket, const actor::Order& order, const std::vector<Fd>& descriptors) {
  iovec part{const_cast<actor::Order*>(&order), sizeof order};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int))> control{};
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size() * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size() * sizeof(int));
    for (std::size_t i = 0; i < descriptors.size(); ++i) {
      const int fd = descriptors[i].get();
      std::memcpy(CMSG_DATA(header) + i * sizeof(int), &fd, sizeof fd);
    }
  }
  return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

// As recv(2), with the attached descriptor. A reply carries at most one.
ssize_t receive_reply(int socket, actor::Reply& reply, Fd& attachment) {
  iovec part{&reply, sizeof reply};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  const cmsghdr* header = got < 0 ? nullptr : CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) return got;
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  attachment = Fd(fd);
  return got;
}

// Only root or our own user may act as the actor: a false actor could report programs as ended.
std::string check_peer(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return from_errno("SO_PEERCRED", errno).detail;
  if (peer.uid == 0 || peer.uid == ::geteuid()) return {};
  return fmt::format("the listener runs as uid {}, not as root", peer.uid);
}

}  // namespace

struct ActorClient::Link {
  explicit Link(asio::io_context& io) : socket(io) {}
  asio::posix::stream_descriptor socket;
  pid_t pid = 0;  // pid of the actor if it is our child; 0: it is not
  bool writing = false;
};

ActorClient::ActorClient(asio::io_context& io, ActorOptions options)
    : io_(io), options_(std::move(options)), deadline_(io) {}

ActorClient::~ActorClient() {
  stop();
  reap();
}

void ActorClient::start(std::function<void()> came) {
  came_ = std::move(came);
  asio::co_spawn(io_, run(), [](const std::exception_ptr& failure) {
    if (failure) std::rethrow_exception(failure);
  });
}

std::string ActorClient::hint() const {
  return options_.socket.empty() ? "the daemon retries; its log shows the cause"
                                 : "the daemon retries, and the socket starts the actor; check: systemctl status "
                                   "sublet-actor.socket sublet-actor.service";
}

void ActorClient::stop() {
  stopped_ = true;
  if (link_) drop();
}

asio::awaitable<void> ActorClient::run() {
  Duration pause = first_pause;
  while (!stopped_) {
    const std::int64_t since = monotonic_ns();
    const std::string problem = co_await serve();
    if (stopped_) co_return;
    if (monotonic_ns() - since > longest_pause.count()) pause = first_pause;
    if (link_) drop();
    if (problem != problem_) log::warn("the actor does not work: {}", problem);
    problem_ = problem;
    asio::steady_timer timer(io_, to_steady(pause));
    co_await timer.async_wait(quiet);
    pause = std::min(pause * 2, longest_pause);
  }
}

asio::awaitable<std::string> ActorClient::serve() {
  using namespace asio::experimental::awaitable_operators;
  std::string problem = options_.socket.empty() ? spawn() : connect();
  if (!problem.empty()) co_return problem;
  refusal_.clear();
  enqueue({.verb = actor::Verb::hello}, {}, [this](const actor::Reply& reply, const Fd&) { introduce(reply); });
  while (!stopped_) {
    if (!refusal_.empty()) co_return refusal_;
    const Duration left =
        pending_.empty() ? Duration(std::chrono::hours(1)) : Duration(pending_.front().deadline_ns - monotonic_ns());
    deadline_.expires_after(to_steady(left));
    auto got = co_await (link_->socket.async_wait(asio::posix::stream_descriptor::wait_read, quiet) ||
                         deadline_.async_wait(quiet));
    if (stopped_) break;
    if (got.index() == 0) {
      if (problem = take_replies(); !problem.empty()) co_return problem;
    } else if (!pending_.empty() && pending_.front().deadline_ns <= monotonic_ns()) {
      co_return fmt::format("it did not answer for {}", format_duration(options_.timeout));
    }
  }
  co_return "stopped";
}

std::string ActorClient::spawn() {
  reap();
  std::vector<std::string> words{"serve", "--fd", std::to_string(proc::helper_socket), "--name", options_.group_name};
  if (options_.system) words.emplace_back("--system");
  words.insert(words.end(), options_.parking.begin(), options_.parking.end());
  auto started = proc::spawn_helper(
      {.program = options_.helper, .arguments = std::move(words), .socket_type = SOCK_SEQPACKET, .bare = true});
  if (!started) return started.error().detail;
  link_ = std::make_unique<Link>(io_);
  link_->pid = started->pid;
  link_->socket.assign(started->socket.release());
  return {};
}

std::string ActorClient::connect() {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string& path = options_.socket;
  if (path.size() >= sizeof address.sun_path) return fmt::format("the path {} is too long for a socket", path);
  path.copy(address.sun_path, path.size());
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return from_errno("socket", errno).detail;
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return from_errno("cannot connect to " + path, errno).detail;
  }
  if (std::string wrong = check_peer(socket.get()); !wrong.empty()) return fmt::format("{}: {}", path, wrong);
  link_ = std::make_unique<Link>(io_);
  link_->socket.assign(socket.release());
  return {};
}

void ActorClient::introduce(const actor::Reply& reply) {
  if (reply.code == actor::Code::lost) return;
  if (reply.code != actor::Code::ok || reply.version != actor::protocol_version) {
    refusal_ = fmt::format("it uses protocol version {}, not {}", reply.version, actor::protocol_version);
    return;
  }
  introduction_ = reply;
  introduction_.path[sizeof introduction_.path - 1] = '\0';
  ready_ = true;
  if (!problem_.empty()) log::info("the actor works again");
  problem_.clear();
  came_();
}

// --- orders and replies

void ActorClient::fetch(actor::Order order, std::span<const int> descriptors, Fetched done) {
  if (ready_ && enqueue(order, descriptors, done)) return;
  asio::post(io_, [done = std::move(done), verb = order.verb] { done(lost(verb, false), Fd()); });
}

// False: no descriptor is free.
bool ActorClient::enqueue(actor::Order order, std::span<const int> descriptors, Fetched done) {
  Outgoing out{order, {}};
  out.order.id = ++last_id_;
  for (const int fd : descriptors) {
    Fd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
    if (!copy) return false;
    out.descriptors.push_back(std::move(copy));
  }
  outgoing_.push_back(std::move(out));
  pending_.push_back({last_id_, monotonic_ns() + options_.timeout.count(), std::move(done)});
  flush();
  if (pending_.size() == 1) deadline_.cancel();  // the timer is set again, for this order
  return true;
}

void ActorClient::flush() {
  while (!outgoing_.empty() && !link_->writing) {
    const Outgoing& out = outgoing_.front();
    if (send_order(link_->socket.native_handle(), out.order, out.descriptors) >= 0) {
      outgoing_.pop_front();
    } else if (errno == EAGAIN) {
      link_->writing = true;
      link_->socket.async_wait(asio::posix::stream_descriptor::wait_write,
                               [this](const boost::system::error_code& error) {
                                 if (error || !link_) return;
                                 link_->writing = false;
                                 flush();
                               });
    } else if (errno != EINTR) {
      ::shutdown(link_->socket.native_handle(), SHUT_RDWR);  // the reader sees the end
      return;
    }
  }
}

std::string ActorClient::take_replies() {
  while (link_) {
    actor::Reply reply;
    Fd attachment;
    const ssize_t got = receive_reply(link_->socket.native_handle(), reply, attachment);
    if (got < 0 && errno == EAGAIN) return {};
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return options_.socket.empty() ? "sublet-actor has ended" : "it closed the connection";
    if (got != static_cast<ssize_t>(sizeof reply) || pending_.empty() || reply.id != pending_.front().id) {
      return "its answer is invalid";
    }
    const Fetched done = std::move(pending_.front().done);
    pending_.pop_front();
    reply.path[sizeof reply.path - 1] = '\0';
    done(reply, std::move(attachment));
  }
  return {};
}

// --- the end of an actor

void ActorClient::drop() {
  ready_ = false;
  boost::system::error_code ignored;
  link_->socket.close(ignored);  // at which the actor exits
  if (link_->pid > 0) {
    if (!stopped_) ::kill(link_->pid, SIGKILL);  // not yet reaped, so the pid is still its own
    ended_children_.push_back(link_->pid);
  }
  link_.reset();
  const std::uint64_t unsent = outgoing_.empty() ? last_id_ + 1 : outgoing_.front().order.id;
  outgoing_.clear();
  for (Pending& pending : std::exchange(pending_, {})) {
    asio::post(io_, [done = std::move(pending.done), sent = pending.id < unsent] { done(lost({}, sent), Fd()); });
  }
  reap();
}

void ActorClient::reap() {
  std::erase_if(ended_children_, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) == pid; });
}

}  // namespace sublet::machine
