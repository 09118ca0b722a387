// SPDX-License-Identifier: Apache-2.0
#include "cli/web_proxy.h"

#include "cli/run_flags.h"
#include "cli/web_request.h"
#include "client/http.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <mutex>
#include <system_error>
#include <thread>

namespace sublet::cli {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr int most_connections = 128;
constexpr int breath = 200;  // ms before the next try to accept a connection
constexpr std::size_t most_head = 16 * 1024, most_body = 64 * 1024;
constexpr auto request_time = std::chrono::seconds(10);  // for a whole request
constexpr auto drain_time = std::chrono::seconds(1);
constexpr std::size_t most_drained = std::size_t{4} << 20;
constexpr auto write_time = std::chrono::seconds(30);  // for a browser that reads nothing

bool send_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) bytes.remove_prefix(static_cast<std::size_t>(sent));
    else if (sent < 0 && errno != EINTR) return false;
  }
  return true;
}

// Reads once, and waits until the deadline for it. False at the end, at the deadline or after an error.
bool read_more(int socket, std::string& into, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd ready{socket, POLLIN, 0};
    if (left <= 0) return false;
    const int count = ::poll(&ready, 1, static_cast<int>(left));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    char buffer[4096];
    const ssize_t size = ::recv(socket, buffer, sizeof buffer, 0);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return false;
    into.append(buffer, static_cast<std::size_t>(size));
    return true;
  }
}

// Takes what the browser is still sending, for a while: closing with bytes unread would reset the connection, and the
// browser would see that instead of the answer.
void drain(int socket) {
  ::shutdown(socket, SHUT_WR);
  const auto deadline = Clock::now() + drain_time;
  std::string bytes;
  for (std::size_t total = 0; total < most_drained && read_more(socket, bytes, deadline); bytes.clear())
    total += bytes.size();
}

std::string answer_of(std::string_view status, const json& body, std::string_view more = {}) {
  const std::string text = body.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n{}Connection: "
      "close\r\nContent-Length: {}\r\n\r\n{}",
      status, body.contains("code") ? "application/problem+json" : "application/json", more, text.size(), text);
}

// `by` tells the page that this proxy refused the call, and not the daemon.
std::string refusal(std::string_view status, const Error& error) {
  return answer_of(status, {{"status", std::stoi(std::string(status.substr(0, 3)))},
                            {"code", to_string(error.code)},
                            {"detail", error.detail},
                            {"hint", error.hint},
                            {"by", "sublet web"}});
}

// A field of a JSON object; "" if it is absent.
std::string text_in(const std::string& body, const char* field) {
  const json given = json::parse(body, nullptr, false);
  const auto found = given.is_object() ? given.find(field) : given.end();
  return found != given.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// A program that is started in the page has the surroundings of this process, as `sublet run --detach` has. They stay
// here: numbers of 64 bits and variables are not for a browser.
Result<json> program_of(const std::string& body) {
  static std::mutex one_at_a_time;  // the umask belongs to all threads
  const std::lock_guard lock(one_at_a_time);
  return fields_of_line(text_in(body, "line"));
}

std::string describe_line(const std::string& body) {
  const auto program = program_of(body);
  if (!program) return refusal("400 Bad Request", program.error());
  json shown;
  for (const char* field : {"tag", "consumer", "remember", "directory"})
    if (program->contains(field)) shown[field] = program->at(field);
  return answer_of("200 OK", shown);
}

// The body of POST /v1/programs: the fields that the page gives, and those of the line.
Result<std::string> complete_program(const std::string& body) {
  auto program = program_of(body);
  if (!program) return program.error();
  json given = json::parse(body, nullptr, false);
  given.erase("line");
  program->update(given);
  return program->dump();
}

std::string login(const std::string& body, WebGate& gate) {
  if (const auto pass = gate.exchange(text_in(body, "secret")))
    return answer_of("200 OK", {{"key", pass->key}}, fmt::format("Set-Cookie: {}\r\n", pass->set_cookie));
  return refusal("403 Forbidden", denied("this address was opened before, and works once",
                                         "end `sublet web` by Ctrl-C, and start it again for a new address"));
}

}  // namespace

void WebProxy::accept() {
  for (;;) {
    Fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket) {
      // Out of descriptors: connections wait in the backlog until others end.
      if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) ::poll(nullptr, 0, breath);
      return;
    }
    if (open_ >= most_connections) {
      send_all(socket.get(), refusal("503 Service Unavailable",
                                     unavailable(fmt::format("the page has {} open connections", most_connections),
                                                 "close a browser window")));
      continue;
    }
    ++open_;
    try {
      std::thread([this, fd = socket.get()] { serve(fd); }).detach();
      (void)socket.release();
    } catch (const std::system_error&) {  // no thread can be made now: the browser tries again
      --open_;
    }
  }
}

void WebProxy::serve(int socket) {
  const Fd owned(socket);
  const timeval limit{std::chrono::seconds(write_time).count(), 0};
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  const auto deadline = Clock::now() + request_time;
  std::string in;
  auto end = std::string::npos;
  while ((end = in.find("\r\n\r\n")) == std::string::npos && in.size() <= most_head &&
         read_more(socket, in, deadline)) {
  }
  if (end != std::string::npos && end <= most_head) {
    answer(socket, std::move(in), end + 4);
  } else if (in.size() > most_head) {
    send_all(socket, refusal("431 Request Header Fields Too Large",
                             bad_request(fmt::format("the request's header is larger than {} bytes", most_head),
                                         "remove cookies of other pages of this host")));
  }
  drain(socket);
  --open_;
}

void WebProxy::answer(int socket, std::string in, std::size_t head_size) {
  auto request = parse_web_request(std::string_view(in).substr(0, head_size));
  if (!request) return (void)send_all(socket, refusal("400 Bad Request", request.error()));
  if (request->body_size > most_body)
    return (void)send_all(
        socket, refusal("413 Content Too Large", bad_request(fmt::format("the body is larger than {} bytes", most_body),
                                                             "use the API of the daemon: docs/api.md")));
  const auto deadline = Clock::now() + request_time;
  in.erase(0, head_size);
  while (in.size() < request->body_size)
    if (!read_more(socket, in, deadline)) return;
  in.resize(request->body_size);
  if (const Status own = check_origin(*request); !own)
    return (void)send_all(socket, refusal("403 Forbidden", own.error()));
  if (request->path() == "/web/session" && request->method == "POST") return (void)send_all(socket, login(in, gate_));
  const bool reads = request->method == "GET" || request->method == "HEAD";
  const bool of_page = reads && (request->path() == "/" || request->path().starts_with("/page/"));
  if (!of_page && !gate_.admits(request->field("cookie"), request->field("authorization")))
    return (void)send_all(
        socket, refusal("401 Unauthorized", denied("this browser has not opened the address that `sublet web` printed",
                                                   "open that address, or start `sublet web` again for a new one")));
  if (request->path() == "/web/line" && request->method == "POST") return (void)send_all(socket, describe_line(in));
  if (request->path() == "/web/program" && request->method == "POST") {
    auto program = complete_program(in);
    if (!program) return (void)send_all(socket, refusal("400 Bad Request", program.error()));
    request->target = "/v1/programs";
    request->body_size = program->size();
    in = std::move(*program);
  }
  pass_on(socket, head_for_daemon(*request, endpoint_.authority(), endpoint_.token) + in);
}

// Sends the daemon's answer as it comes, until the daemon ends it or the browser leaves.
void WebProxy::pass_on(int socket, const std::string& request) {
  const auto daemon = client::dial(endpoint_);
  if (!daemon) return (void)send_all(socket, refusal("503 Service Unavailable", daemon.error().error));
  if (!send_all(daemon->get(), request)) {
    // The daemon may refuse early and close; its answer can still be read.
  }
  for (char buffer[16384];;) {
    pollfd ready[2] = {{daemon->get(), POLLIN, 0}, {socket, POLLIN | POLLRDHUP, 0}};
    if (::poll(ready, 2, -1) < 0 && errno != EINTR) return;
    if (ready[0].revents == 0 && ready[1].revents != 0) return;  // one request at a time: more is the end
    if (ready[0].revents == 0) continue;
    const ssize_t size = ::recv(daemon->get(), buffer, sizeof buffer, 0);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0 || !send_all(socket, {buffer, static_cast<std::size_t>(size)})) return;
  }
}

}  // namespace sublet::cli
