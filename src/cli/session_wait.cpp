// SPDX-License-Identifier: Apache-2.0
#include "cli/session_wait.h"

#include "base/clock.h"
#include "cli/fetch.h"
#include "cli/leave.h"
#include "cli/render.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace sublet::cli {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

constexpr Duration session_poll_time = 30s;  // of one request that waits for a change

bool is_on_its_way(const std::string& state, Goal goal) {
  if (goal == Goal::end) return state == "ending";
  return state == "starting" || state == "queued";
}

}  // namespace

std::string session_target(const std::string& id, const std::string& call) {
  return "/v1/sessions/" + client::encode(id) + call;
}

// Each line once.
void SessionWait::tell(const json& session) {
  Look look = look_for(common_);
  std::string line = session_phrase(session, look);
  if (const std::string lease = text_at(session, "lease"); text_at(session, "state") == "queued" && !lease.empty()) {
    client::Client another(client_.endpoint());
    learn_devices(ask_also(another, "/v1/devices"), look);
    const json now = ask_also(another, "/v1/leases/" + client::encode(lease));
    if (member(now, "queue").is_object()) line += ": " + queue_phrase(now, look);
  }
  if (!common_.json && line != std::exchange(told_, line)) say(common_, "sublet: " + line);
}

// An end that came through keeps the program or its work.
int SessionWait::tell_end(const json& session) {
  const std::string state = text_at(session, "state"), id = text_at(session, "id");
  const std::string problem = text_at(member(session, "checkpoint"), "problem");
  if (!common_.json) tell(session);
  const bool is_unsaved = !problem.empty() && !accepts_loss_ && text_at(session, "end_reason") == "closed";
  if (state == "parked" || (state == "closed" && !is_unsaved)) return kOk;
  if (common_.json) return kFailed;
  if (state == "closed") print_error(fmt::format("{} is closed, and its work is not saved: {}", id, problem), "");
  else if (problem.empty())
    print_error(fmt::format("{} was not closed: it is {}", id, state), "its user wants it again");
  else
    print_error(
        fmt::format("{} was not closed, and its program runs on: its checkpoint failed: {}", id, problem),
        fmt::format("mend the checkpoint command, or end the program without it: sublet session close --force {}", id));
  return kFailed;
}

int SessionWait::print(const json& session, bool waited) {
  const std::string state = text_at(session, "state"), id = text_at(session, "id");
  if (common_.json) fmt::print("{}\n", client::to_text(session));
  else fmt::print("{}: {}\n", id, state);
  if (goal_ == Goal::end && waited) return tell_end(session);
  if (state == "active" && goal_ == Goal::active && text_at(session, "command").empty() && !common_.json)
    say(common_, fmt::format("sublet: it has no program of its own; add processes: sublet attach {} --pid PID",
                             text_at(session, "tag")));
  if (state != "closed" || goal_ == Goal::end) return kOk;
  if (!common_.json) print_error(text_at(session, "why"), fmt::format("see: sublet session show {}", id));
  return static_cast<int>(number_at(session, "exit_status").value_or(kFailed));
}

int SessionWait::give_up(const std::string& id, Duration waited) {
  const auto closed = client_.post(session_target(id, "/close"), {{"park", false}});
  if (!closed) return fail(common_, closed.error());
  print_error(fmt::format("{} had no memory after {} and is closed", id, format_duration(waited)),
              "wait longer, or ask for less");
  return kGaveUp;
}

int SessionWait::go(json session, bool no_wait, std::optional<Duration> at_most) {
  if (no_wait) return print(session, false);
  const auto there = arrive(std::move(session), at_most);
  const json* arrived = std::get_if<json>(&there);
  return arrived != nullptr ? print(*arrived, true) : std::get<int>(there);
}

std::variant<json, int> SessionWait::arrive(json session, std::optional<Duration> at_most) {
  const std::int64_t began = monotonic_ns();
  const std::string id = text_at(session, "id");
  const std::string token = text_at(session, "token");
  Leave leave(client_);
  while (is_on_its_way(text_at(session, "state"), goal_)) {
    tell(session);
    const Duration left = at_most ? *at_most - Duration(monotonic_ns() - began) : session_poll_time;
    if (left <= Duration{}) return give_up(id, *at_most);
    const std::string query = fmt::format("?wait={}ms&since={}", std::max(std::min(left, session_poll_time) / 1ms, 1L),
                                          client::encode(text_at(session, "state")));
    const auto reply = client_.call({"GET", session_target(id, query), {}, {}, {}}, session_poll_time + 30s);
    if (leave.asked())
      leave.now(common_.quiet, goal_ == Goal::end
                                   ? fmt::format("the end of {} goes on", id)
                                   : fmt::format("{0} goes on waiting; to end it: sublet session close {0}", id));
    if (!reply && !reply.error().passing()) return fail(common_, reply.error());
    if (!reply) {
      (void)client_.pause(500ms);  // the daemon restarts, and the session is in its store
      continue;
    }
    auto now = client::parse(*reply);
    if (!now) return fail(common_, now.error());
    session = std::move(*now);
    if (!token.empty()) session["token"] = token;
  }
  return session;
}

}  // namespace sublet::cli
