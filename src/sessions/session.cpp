// SPDX-License-Identifier: Apache-2.0
#include "sessions/session.h"

#include "base/number.h"
#include "base/words.h"
#include "store/fields.h"

#include <fmt/format.h>

namespace sublet::sessions {
namespace {

constexpr std::string_view id_prefix = "session-";

constexpr Words<State, 8> states{{{State::starting, "starting"},
                                  {State::queued, "queued"},
                                  {State::active, "active"},
                                  {State::resting, "resting"},
                                  {State::paused, "paused"},
                                  {State::ending, "ending"},
                                  {State::parked, "parked"},
                                  {State::closed, "closed"}}};
constexpr Words<End, 9> ends{{{End::none, ""},
                              {End::idle, "idle"},
                              {End::expired, "expired"},
                              {End::closed, "closed"},
                              {End::revoked, "revoked"},
                              {End::exited, "exited"},
                              {End::failed, "failed"},
                              {End::lost, "lost"},
                              {End::over_limit, "over_limit"}}};
constexpr Words<Step, 5> steps{{{Step::none, ""},
                                {Step::parking, "parking"},
                                {Step::resuming, "resuming"},
                                {Step::checkpoint, "checkpoint"},
                                {Step::releasing, "releasing"}}};

std::optional<End> parse_end(std::string_view text) { return value_of(ends, text); }
std::optional<Step> parse_step(std::string_view text) { return value_of(steps, text); }

}  // namespace

std::string_view to_string(State state) { return word_of(states, state); }
std::string_view to_string(End end) { return word_of(ends, end); }
std::string_view to_string(Step step) { return word_of(steps, step); }
std::optional<State> parse_state(std::string_view text) { return value_of(states, text); }

std::string Request::text(std::string_view field, std::string_view fallback) const {
  const auto found = lease.find(field);
  return found != lease.end() && found->is_string() ? found->get<std::string>() : std::string(fallback);
}

std::int64_t Request::number(std::string_view field, std::int64_t fallback) const {
  const auto found = lease.find(field);
  return found != lease.end() && found->is_number_integer() ? found->get<std::int64_t>() : fallback;
}

std::string Session::id() const { return fmt::format("{}{}", id_prefix, number); }
std::string Session::why() const {
  return progress.why + (progress.why.empty() || progress.detail.empty() ? "" : ": ") + progress.detail;
}
std::string Session::tag() const { return request.tag.empty() ? id() : request.tag; }

std::optional<std::uint64_t> parse_id(std::string_view text) {
  if (!text.starts_with(id_prefix)) return std::nullopt;
  return parse_number<std::uint64_t>(text.substr(id_prefix.size()));
}

void fields(auto& visit, store::Like<Request> auto& request) {
  visit("lease", request.lease);
  visit("tag", request.tag);
  visit("tenant", request.tenant);
  visit("exclusive", request.exclusive);
  visit("ttl", request.ttl);
  visit("arguments", request.command.arguments);
  visit("environment", request.command.environment);
  visit("directory", request.command.directory);
  visit("umask", request.command.umask);
  visit("limits", request.command.limits);
  visit("command", request.command.text);
  visit("checkpoint", request.checkpoint);
  visit("checkpoint_every", request.checkpoint_every);
  visit("checkpoint_timeout", request.checkpoint_timeout);
}

void fields(auto& visit, store::Like<Checkpoint> auto& checkpoint) {
  visit("locator", checkpoint.locator);
  visit("at", checkpoint.at);
  visit("bytes", checkpoint.bytes);
  visit("problem", checkpoint.problem);
  visit("number", checkpoint.number);
  visit("running", checkpoint.running);
  visit("started", checkpoint.started);
}

void fields(auto& visit, store::Like<Progress> auto& progress) {
  visit.word("state", progress.state, parse_state);
  visit("since", progress.since);
  visit("why", progress.why);
  visit("detail", progress.detail);
  visit("start", progress.start);
  visit("lease", progress.lease);
  visit("renewed_at", progress.renewed_at);
  visit("last_activity", progress.last_activity);
  visit("continuous_since", progress.continuous_since);
  visit("wanted", progress.wanted);
  visit("kept_until", progress.kept_until);
  visit("checkpoint", progress.checkpoint);
  visit("exit_status", progress.exit_status);
  visit.word("end", progress.end, parse_end);
  visit.word("step", progress.step, parse_step);
  visit("park", progress.park);
  visit("parking_tried", progress.parking_tried);
  visit("checkpoint_tried", progress.checkpoint_tried);
  visit("failures", progress.failures);
  visit("ended_by", progress.ended_by);
  visit("on_request", progress.on_request);
  visit("saves_or_stays", progress.saves_or_stays);
}

void fields(auto& visit, store::Like<Session> auto& session) {
  visit("uid", session.uid);
  visit("user", session.user);
  visit("created_at", session.created_at);
  visit("request", session.request);
  visit("progress", session.progress);
}

store::CapabilityRow to_row(const Session& session) {
  return store::row_of(row_kind, std::to_string(session.number), session);
}

Result<Session> from_row(const store::CapabilityRow& row) {
  const auto number = parse_number<std::uint64_t>(row.key);
  if (!number) return unavailable("a stored session has the key '" + row.key + "', which is no number");
  Session session{.number = *number};
  if (const Status read = store::read_row(row, session); !read) return read.error();
  store::drop_nulls(session.request.lease);
  return session;
}

}  // namespace sublet::sessions
