// SPDX-License-Identifier: Apache-2.0
#include "cli/acquire.h"

#include "base/clock.h"
#include "cli/fetch.h"

#include <fmt/format.h>

namespace sublet::cli {
namespace {

using namespace std::chrono_literals;
using client::FailureKind;
using nlohmann::json;

}  // namespace

std::variant<Acquired, int> Acquire::run(const Wanted& wanted) {
  const auto leave = [this](const keep::Signal& signal) {
    left_by_ = signal.number;
    left_by_key_ = signal.from_kernel;
    events_.cancel();
  };
  // The line is written anew soon, whatever the window's size.
  events_.watch(signals_.fd(), [this, leave] { signals_.take({.leave = leave, .hide = [this] { line_.clear(); }}); });
  auto result = get(wanted);
  events_.forget(signals_.fd());
  events_.resume();
  line_.clear();
  return result;
}

std::variant<Acquired, int> Acquire::get(const Wanted& wanted) {
  const std::int64_t began = monotonic_ns();
  const std::int64_t deadline = wanted.at_most ? began + wanted.at_most->count() : INT64_MAX;
  verb_ = wanted.verb;
  json_ = wanted.json;
  if (const auto code = ask(wanted)) return *code;
  if (wanted.keep_token && !wanted.keep_token(token_)) return leave(kFailed);
  while (!lease_.granted()) {
    std::optional<int> code;
    if (events_.cancelled()) return leave(128 + left_by_);
    if (lease_.ended()) {
      line_.clear();
      print_error(fmt::format("{} ended before it was granted: {}", lease_.id, lease_.end_reason),
                  fmt::format("see: sublet why {}", lease_.id));
      return kFailed;
    }
    if (lease_.state == "offered") code = claim();
    else code = wait(deadline);
    if (code) return *code;
  }
  // A key pressed at the very moment of the grant still means: leave.
  if (events_.cancelled()) return leave(128 + left_by_);
  return Acquired{std::move(lease_), std::move(told_), std::move(token_), Duration(monotonic_ns() - began)};
}

std::optional<int> Acquire::take(const client::Answer<client::Reply>& answer) {
  if (!answer) return answer.error().kind == FailureKind::cancelled ? leave(128 + left_by_) : refuse(answer.error());
  auto told = client::parse(*answer);
  if (!told) return refuse(told.error());
  auto lease = client::parse_lease(*told);
  if (!lease) return refuse(lease.error());
  lease_ = std::move(*lease);
  told_ = std::move(*told);
  return std::nullopt;
}

std::optional<int> Acquire::ask(const Wanted& wanted) {
  client::Request request{"POST", wanted.target, client::to_text(wanted.body), client::new_idempotency_key(), {}};
  auto answer = client_.call(request);
  // Killed over it, or since it was asked before; where there never was one, there is nothing to wait for.
  if (!answer && answer.error().passing() && answer.error().kind != FailureKind::answered && client_.met()) {
    answer = client_.insist(request, keep::patience(listener_));
  }
  if (!answer && answer.error().kind == FailureKind::answered &&
      answer.error().passing()) {  // 503: it may have been made all the same, and the same key tells
    client::Patience brief;
    brief.limit = 10s;
    answer = client_.insist(request, brief);
  }
  if (!answer && answer.error().kind == FailureKind::cancelled) {
    // It may have been made, and its owner need not be our connection: the same key tells which one it is.
    events_.resume();
    const auto made = client_.call(request, 3s);
    if (!made) return 128 + left_by_;
    answer = made;
    events_.cancel();
  }
  if (const auto code = take(answer)) return code;
  const auto& token = member(told_, "token");
  if (token.is_string()) token_ = token.get<std::string>();
  if (wanted.asked) wanted.asked(told_);
  for (const char* of_the_answer : {"token", "preemption"}) told_.erase(of_the_answer);  // and not of the lease
  if (lease_.state == "queued") note_queued();
  return std::nullopt;
}

void Acquire::note_queued() {
  line_.show(lease_);
  json fields = json::object();
  if (lease_.queue) {
    fields["place"] = lease_.queue->place;
    fields["short_bytes"] = lease_.queue->short_by.count;
    fields["eta_seconds"] = lease_.queue->eta ? json(*lease_.queue->eta / 1s) : json(nullptr);
  }
  fields["lease"] = lease_.id;
  listener_.note("queued", fields);
}

// One long-poll. On a terminal a short one, so that the estimate counts down.
std::optional<int> Acquire::wait(std::int64_t deadline_ns) {
  const Duration left(deadline_ns - monotonic_ns());
  if (left <= 0s) {
    line_.clear();
    print_error(fmt::format("gave up waiting: {}", wait_text(lease_, line_.look())),
                "leave --wait out to wait without a limit");
    listener_.note("gave_up", {{"lease", lease_.id}});
    return leave(kGaveUp);
  }
  const Duration poll = std::min<Duration>(line_.live() ? 2s : 5s, left);
  client::Request request{"GET",
                          fmt::format("/v1/leases/{}?wait={}ms&since=queued", client::encode(lease_.id), poll / 1ms),
                          {},
                          {},
                          token_};
  const auto before = lease_.queue ? lease_.queue->place : 0;
  if (const auto code = take(client_.insist(request, keep::patience(listener_), poll + 30s))) return code;
  if (lease_.state != "queued") return std::nullopt;
  if (lease_.queue && lease_.queue->place != before) note_queued();
  else line_.show(lease_);
  return std::nullopt;
}

std::optional<int> Acquire::claim() {
  client::Request request{"POST", fmt::format("/v1/leases/{}/claim", client::encode(lease_.id)), "{}", {}, token_};
  auto answer = client_.insist(request, keep::patience(listener_));
  if (!answer && answer.error().kind == FailureKind::answered && answer.error().error.code == Code::Stale) {
    // The window was over before we came: back in the queue, or ended. Its state says which.
    request = {"GET", fmt::format("/v1/leases/{}", client::encode(lease_.id)), {}, {}, token_};
    answer = client_.insist(request, keep::patience(listener_));
  }
  return take(answer);
}

// Gives back what we have.
int Acquire::leave(int code) {
  line_.clear();
  if (lease_.id.empty() || lease_.ended()) return code;
  events_.resume();
  client::Patience brief;
  brief.limit = 3s;
  const auto answer = client_.insist(
      {"POST", fmt::format("/v1/leases/{}/release", client::encode(lease_.id)), "{}", {}, token_}, brief, 5s);
  if (!answer && answer.error().kind != FailureKind::cancelled) {
    print_error(fmt::format("{} could not be released: {}", lease_.id, answer.error().error.detail),
                fmt::format("see: sublet release {}", lease_.id));
  }
  return code;
}

int Acquire::refuse(const client::Failure& failure) {
  line_.clear();
  listener_.note("refused", {{"code", to_string(failure.error.code)}, {"detail", failure.error.detail}});
  if (json_ && !failure.text.empty()) {
    fmt::print("{}\n", failure.text);
    std::fflush(stdout);  // a signal of the terminal may still end us
  }
  const Error error = in_flags(failure.error, verb_);
  print_error(error.detail, error.hint);
  return exit_code(failure);
}

}  // namespace sublet::cli
