// SPDX-License-Identifier: Apache-2.0
#include "client/client.h"

#include "base/clock.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>

#include <cstdio>
#include <cstdlib>

namespace sublet::client {
namespace {

using namespace std::chrono_literals;

constexpr Duration silent_for = 60s;
constexpr Duration then_every = 5s;

std::int64_t deadline_after(Duration duration) {
  const std::int64_t now = monotonic_ns();
  return duration.count() > INT64_MAX - now ? INT64_MAX : now + duration.count();
}

Failure cancelled() { return {FailureKind::cancelled, {Code::Unavailable, "cancelled", {}}, 0, {}}; }

// The pause before the next attempt: short at first, because most restarts are quick, then longer.
Duration next_pause(Duration away) {
  if (away < 2s) return 50ms;
  if (away < 10s) return 250ms;
  if (away < silent_for) return 1s;
  return then_every;
}

}  // namespace

void throw_exception_from_error(const Failure& failure, const boost::source_location& where) {
  sublet::throw_exception_from_error(failure.error, where);
}

std::string new_idempotency_key() {
  unsigned char bits[16];
  std::size_t have = 0;
  while (have < sizeof bits) {
    const ssize_t n = ::getrandom(bits + have, sizeof bits - have, 0);
    if (n > 0) {
      have += static_cast<std::size_t>(n);
    } else if (errno != EINTR) {
      std::perror("getrandom");
      std::abort();  // a key that is not random could repeat another call's answer
    }
  }
  std::string key;
  for (const unsigned char byte : bits) key += fmt::format("{:02x}", byte);
  return key;
}

std::string to_text(const nlohmann::json& body) {
  return body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Client::Woken Client::wait(std::int64_t deadline_ns) {
  for (;;) {
    const std::int64_t left = deadline_ns - monotonic_ns();
    if (left <= 0) return Woken::deadline;
    // Rounded up, so that the deadline has passed when poll returns. poll ignores descriptors below 0.
    const int timeout = static_cast<int>(std::min<std::int64_t>((left + 999'999) / 1'000'000, 60'000));
    pollfd fds[2] = {{interrupt_.fd, POLLIN, 0}, {connection_.fd(), connection_.events(), 0}};
    if (::poll(fds, 2, timeout) <= 0) continue;
    if (fds[0].revents != 0 && interrupt_.ready && !interrupt_.ready()) return Woken::cancelled;
    if (fds[1].revents != 0) return Woken::socket;
  }
}

Answer<Reply> Client::attempt(const Request& request, std::int64_t deadline_ns) {
  if (auto started = connection_.start(request); !started) return started.error();
  for (;;) {
    switch (wait(deadline_ns)) {
      case Woken::cancelled: connection_.close(); return cancelled();
      case Woken::deadline:
        connection_.close();
        return Failure{FailureKind::lost,
                       {Code::Unavailable, fmt::format("the daemon at {} does not answer", endpoint_.url()), {}},
                       0,
                       {}};
      case Woken::socket:
        if (auto answer = connection_.advance()) return std::move(*answer);
    }
  }
}

Answer<Reply> Client::call(Request request, Duration timeout) {
  if (request.method != "GET" && request.idempotency_key.empty()) request.idempotency_key = new_idempotency_key();
  const std::int64_t deadline = deadline_after(timeout);
  auto answer = attempt(request, deadline);
  const bool lost = !answer && answer.error().kind == FailureKind::lost;
  met_ |= answer || lost || answer.error().kind == FailureKind::answered;
  if (!lost || !connection_.reused() || monotonic_ns() >= deadline) return answer;
  return attempt(request, deadline);
}

Answer<Reply> Client::ask(Request request) {
  return patience_ ? insist(std::move(request), *patience_) : call(std::move(request));
}

Answer<Reply> Client::insist(Request request, const Patience& patience, Duration timeout) {
  if (request.method != "GET" && request.idempotency_key.empty()) request.idempotency_key = new_idempotency_key();
  std::optional<std::int64_t> away_since;
  for (;;) {
    const std::int64_t began = monotonic_ns();
    auto answer = call(request, timeout);
    if (answer || !answer.error().passing()) return answer;
    if (!away_since) away_since = began;
    const Duration away(monotonic_ns() - *away_since);
    const bool refused = answer.error().kind == FailureKind::answered;
    if (away >= (refused ? std::min(patience.limit, patience.refused_limit) : patience.limit)) return answer;
    if (away >= silent_for && patience.say) patience.say(answer.error().error, away);
    if (!pause(std::min(next_pause(away), patience.limit - away))) return cancelled();
  }
}

bool Client::pause(Duration duration) {
  const std::int64_t deadline = deadline_after(duration);
  for (;;) {
    switch (wait(deadline)) {
      case Woken::cancelled: return false;
      case Woken::deadline: return true;
      case Woken::socket: break;  // no call is in progress, so no socket is watched
    }
  }
}

Answer<nlohmann::json> parse(const Reply& reply) {
  auto body = nlohmann::json::parse(reply.text, nullptr, false);
  // JSON converts to every type, hence in_place_value.
  if (!body.is_discarded()) return {boost::system::in_place_value, std::move(body)};
  return Failure{FailureKind::lost, {Code::Unavailable, "the daemon's answer is not JSON", {}}, 0, {}};
}

}  // namespace sublet::client
