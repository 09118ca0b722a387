// SPDX-License-Identifier: Apache-2.0
#include "client/http.h"

#include "base/text.h"

#include <fmt/format.h>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include <cstring>
#include <filesystem>

namespace sublet::client {
namespace {

namespace http = boost::beast::http;

// More than the longest answer; limits the memory that a faulty daemon can use.
constexpr std::size_t body_limit = 256u << 20;

using Parser = http::response_parser<http::string_body>;

Code code_from(std::string_view name, int status) {
  for (int i = 0; i <= static_cast<int>(Code::Unavailable); ++i) {
    if (to_string(static_cast<Code>(i)) == name) return static_cast<Code>(i);
  }
  if (status == 400) return Code::BadRequest;
  if (status == 403) return Code::Denied;
  if (status == 404) return Code::NotFound;
  return Code::Unavailable;
}

// Returns the daemon's own error from a problem document. For any other body, describes the status.
Failure problem_of(int status, std::string text) {
  Failure failure{FailureKind::answered, {Code::Unavailable, {}, {}}, status, std::move(text)};
  const auto document = nlohmann::json::parse(failure.text, nullptr, false);
  const auto field = [&](const char* name) {
    return document.is_object() && document.contains(name) && document[name].is_string()
               ? document[name].get<std::string>()
               : std::string();
  };
  failure.error = {code_from(field("code"), status), field("detail"), field("hint")};
  if (document.is_object() && document.contains("numbers") && document["numbers"].is_object())
    for (const auto& [name, number] : document["numbers"].items())
      if (number.is_number_integer()) failure.error.numbers[name] = number.get<std::int64_t>();
  if (failure.error.detail.empty()) failure.error.detail = field("title");
  if (failure.error.detail.empty()) failure.error.detail = field("status");  // a body of /healthz
  if (failure.error.detail.empty()) {
    failure.error.detail = fmt::format("the daemon answered with status {} and no message", status);
  }
  return failure;
}

// Returns how to start the daemon that should listen there.
std::string start_text(const Endpoint& endpoint) {
  if (endpoint.path == system_socket) return "start the daemon: " + start_command();
  const std::filesystem::path dir = std::filesystem::path(endpoint.path).parent_path();
  std::error_code none;
  const bool its_own = std::filesystem::exists(dir / "env", none) && std::filesystem::exists(dir / "state", none);
  return its_own ? "start the daemon: subletd --dir " + dir.string() : "start a daemon: subletd";
}

Failure not_there(const Endpoint& endpoint, int errnum) {
  const std::string detail =
      fmt::format("no daemon answers at {}: {}", endpoint.url(), std::generic_category().message(errnum));
  if (errnum == EACCES || errnum == EPERM) {
    return {FailureKind::answered,
            {Code::Denied, fmt::format("cannot open {}: {}", endpoint.url(), std::strerror(errnum)),
             "ask an admin to add you to the group that may use the socket (usually 'sublet')"},
            403,
            {}};
  }
  return {FailureKind::no_daemon,
          {Code::Unavailable, detail,
           endpoint.tcp()
               ? std::string("set api.tcp and restart the daemon, or name another daemon: --host "
                             "http://127.0.0.1:PORT, --host unix://PATH, SUBLET_HOST")
               : fmt::format("{}; or name another daemon: --host unix://PATH, SUBLET_HOST", start_text(endpoint))},
          0,
          {}};
}

// Fills in the address of `path`. A path that is too long for an address is reached through its directory, which `dir`
// keeps open.
bool make_address(const std::string& path, sockaddr_un& address, Fd& dir) {
  address.sun_family = AF_UNIX;
  std::string name = path;
  if (name.size() >= sizeof address.sun_path) {
    const auto slash = path.rfind('/');
    dir = Fd(::open(path.substr(0, slash + 1).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!dir) return false;
    name = fmt::format("/proc/self/fd/{}{}", dir.get(), path.substr(slash));
  }
  if (name.size() >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return false;
  }
  std::memcpy(address.sun_path, name.c_str(), name.size() + 1);
  return true;
}

// Checks without waiting. False: the other end has closed, or has sent bytes without a request.
bool still_usable(int fd) {
  pollfd p{fd, POLLIN, 0};
  return ::poll(&p, 1, 0) == 0;
}

Failure lost(const Endpoint& endpoint, const std::string& why) {
  return {FailureKind::lost,
          {Code::Unavailable, fmt::format("the connection to the daemon at {} was lost: {}", endpoint.url(), why), {}},
          0,
          {}};
}

int connect_unix(int fd, const Endpoint& endpoint) {
  sockaddr_un address{};
  Fd dir;
  if (!make_address(endpoint.path, address, dir)) return -1;
  return ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

int connect_tcp(int fd, const Endpoint& endpoint) {
  const int yes = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  if (endpoint.host == "::1") {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_loopback;
    address.sin6_port = htons(endpoint.port);
    return ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(endpoint.port);
  return ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

}  // namespace

boost::system::result<Fd, Failure> dial(const Endpoint& endpoint) {
  const int family = !endpoint.tcp() ? AF_UNIX : endpoint.host == "::1" ? AF_INET6 : AF_INET;
  Fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return lost(endpoint, std::strerror(errno));
  // connect() blocks only while the daemon's backlog is full. The limit protects us from a daemon that hangs.
  const timeval limit{1, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if ((endpoint.tcp() ? connect_tcp(fd.get(), endpoint) : connect_unix(fd.get(), endpoint)) == 0) return fd;
  if (errno == EAGAIN || errno == EINTR || errno == EINPROGRESS) {
    return lost(endpoint, "it accepts no connections now");
  }
  return not_there(endpoint, errno);
}

std::string to_text(const Request& request, const Endpoint& endpoint, std::string_view more) {
  std::string text =
      fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\n", request.method, request.target, endpoint.authority());
  if (more.empty()) text += "Accept: application/json\r\n";
  text += more;
  if (!endpoint.token.empty()) text += fmt::format("Authorization: Bearer {}\r\n", endpoint.token);
  if (!request.idempotency_key.empty()) text += fmt::format("Idempotency-Key: {}\r\n", request.idempotency_key);
  if (!request.lease_token.empty()) text += fmt::format("Sublet-Lease-Token: {}\r\n", request.lease_token);
  if (!request.body.empty()) text += "Content-Type: application/json\r\n";
  if (!request.body.empty() || request.method != "GET") {
    text += fmt::format("Content-Length: {}\r\n", request.body.size());
  }
  return text + "\r\n" + request.body;
}

Failure refusal(int status, std::string body) { return problem_of(status, std::move(body)); }

struct Connection::Exchange {
  std::string out;
  std::size_t sent = 0;
  Parser parser;
  std::string in;  // received bytes that are not parsed yet
};

std::string encode(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || std::strchr("-._~", c) != nullptr) out += c;
    else out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

Connection::Connection(Endpoint endpoint) : endpoint_(std::move(endpoint)) {}
Connection::~Connection() = default;
Connection::Connection(Connection&&) noexcept = default;
Connection& Connection::operator=(Connection&&) noexcept = default;

int Connection::fd() const { return exchange_ ? socket_.get() : -1; }

std::optional<pid_t> Connection::peer_pid() const {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (!socket_ || endpoint_.tcp()) return std::nullopt;
  if (::getsockopt(socket_.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return std::nullopt;
  return credentials.pid;
}

bool Connection::reused() const { return reused_; }

short Connection::events() const {
  if (!exchange_) return 0;
  return exchange_->sent < exchange_->out.size() ? POLLIN | POLLOUT : POLLIN;
}

void Connection::close() {
  exchange_.reset();
  socket_.reset();
}

Failure Connection::lose(std::string why) {
  close();
  return lost(endpoint_, why);
}

boost::system::result<void, Failure> Connection::open() {
  auto fd = dial(endpoint_);
  if (!fd) return fd.error();
  ::fcntl(fd->get(), F_SETFL, ::fcntl(fd->get(), F_GETFL) | O_NONBLOCK);
  socket_ = std::move(*fd);
  return {};
}

boost::system::result<void, Failure> Connection::start(const Request& request) {
  if (exchange_ || (socket_ && !still_usable(socket_.get()))) close();
  reused_ = static_cast<bool>(socket_);
  if (!socket_) {
    if (auto opened = open(); !opened) return opened.error();
  }
  exchange_ = std::make_unique<Exchange>();
  exchange_->out = to_text(request, endpoint_);
  exchange_->parser.body_limit(body_limit);
  exchange_->parser.eager(true);
  if (auto failure = send_some()) return *failure;
  return {};
}

std::optional<Failure> Connection::send_some() {
  Exchange& x = *exchange_;
  while (x.sent < x.out.size()) {
    const ssize_t n = ::send(socket_.get(), x.out.data() + x.sent, x.out.size() - x.sent, MSG_NOSIGNAL);
    if (n > 0) {
      x.sent += static_cast<std::size_t>(n);
    } else if (errno == EAGAIN) {
      return std::nullopt;
    } else if (errno == EPIPE || errno == ECONNRESET) {
      // A server may refuse early and close. Its answer can still be read.
      x.sent = x.out.size();
    } else if (errno != EINTR) {
      return lose(std::strerror(errno));
    }
  }
  return std::nullopt;
}

std::optional<Answer<Reply>> Connection::advance() {
  if (!exchange_) return std::nullopt;
  if (auto failure = send_some()) return Answer<Reply>(std::move(*failure));
  Exchange& x = *exchange_;
  char buffer[16384];
  for (;;) {
    const ssize_t n = ::recv(socket_.get(), buffer, sizeof buffer, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN)) return std::nullopt;
    if (n < 0) return Answer<Reply>(lose(std::strerror(errno)));
    if (n == 0) {
      boost::system::error_code ec;
      if (x.parser.got_some()) x.parser.put_eof(ec);
      if (x.parser.is_done()) return finish();
      return Answer<Reply>(lose("it closed the connection before it had answered"));
    }
    x.in.append(buffer, static_cast<std::size_t>(n));
    boost::system::error_code ec;
    const std::size_t used = x.parser.put(boost::asio::buffer(x.in), ec);
    x.in.erase(0, used);
    if (ec && ec != http::error::need_more) {
      return Answer<Reply>(lose(fmt::format("its answer is not HTTP ({})", ec.message())));
    }
    if (x.parser.is_done()) return finish();
  }
}

Answer<Reply> Connection::finish() {
  auto response = exchange_->parser.release();
  const bool keep = response.keep_alive() && exchange_->in.empty() && exchange_->sent == exchange_->out.size();
  exchange_.reset();
  if (!keep) close();
  const int status = static_cast<int>(response.result_int());
  if (status >= 200 && status < 300) return Reply{status, std::move(response.body())};
  return refusal(status, std::move(response.body()));
}

}  // namespace sublet::client
