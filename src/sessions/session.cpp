// SPDX-License-Identifier: Apache-2.0
#include "sessions/session.h"

#include "base/number.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace sublet::sessions {
namespace {

using nlohmann::json;

constexpr std::string_view id_prefix = "session-";

constexpr std::array states{std::pair{State::starting, "starting"}, std::pair{State::queued, "queued"},
                            std::pair{State::active, "active"},     std::pair{State::resting, "resting"},
                            std::pair{State::paused, "paused"},     std::pair{State::ending, "ending"},
                            std::pair{State::parked, "parked"},     std::pair{State::closed, "closed"}};
constexpr std::array ends{
    std::pair{End::none, ""},         std::pair{End::idle, "idle"},       std::pair{End::expired, "expired"},
    std::pair{End::closed, "closed"}, std::pair{End::revoked, "revoked"}, std::pair{End::exited, "exited"},
    std::pair{End::failed, "failed"}, std::pair{End::lost, "lost"},       std::pair{End::over_limit, "over_limit"}};
constexpr std::array steps{std::pair{Step::none, ""}, std::pair{Step::parking, "parking"},
                           std::pair{Step::resuming, "resuming"}, std::pair{Step::checkpoint, "checkpoint"},
                           std::pair{Step::releasing, "releasing"}};

template <typename Table, typename Value>
std::string_view word_of(const Table& table, Value value) {
  for (const auto& [known, word] : table)
    if (known == value) return word;
  return "";
}

template <typename Table>
auto value_of(const Table& table, std::string_view text) -> std::optional<decltype(table.front().first)> {
  for (const auto& [known, word] : table)
    if (word == text) return known;
  return std::nullopt;
}

json write(const Request& request) {
  const Command& command = request.command;
  return {{"lease", request.lease},
          {"tag", request.tag},
          {"tenant", request.tenant},
          {"exclusive", request.exclusive},
          {"ttl", request.ttl.count()},
          {"arguments", command.arguments},
          {"environment", command.environment},
          {"directory", command.directory},
          {"umask", command.umask},
          {"limits", command.limits},
          {"command", command.text},
          {"checkpoint", request.checkpoint},
          {"checkpoint_every", request.checkpoint_every.count()},
          {"checkpoint_timeout", request.checkpoint_timeout.count()}};
}

Request read_request(const json& from) {
  Request request;
  for (const auto& [field, value] : from.at("lease").items())
    if (!value.is_null()) request.lease[field] = value;
  from.at("tag").get_to(request.tag);
  from.at("tenant").get_to(request.tenant);
  from.at("exclusive").get_to(request.exclusive);
  request.ttl = Duration(from.at("ttl").get<std::int64_t>());
  from.at("arguments").get_to(request.command.arguments);
  from.at("environment").get_to(request.command.environment);
  from.at("directory").get_to(request.command.directory);
  from.at("umask").get_to(request.command.umask);
  request.command.limits = from.at("limits");
  from.at("command").get_to(request.command.text);
  from.at("checkpoint").get_to(request.checkpoint);
  request.checkpoint_every = Duration(from.at("checkpoint_every").get<std::int64_t>());
  request.checkpoint_timeout = Duration(from.at("checkpoint_timeout").get<std::int64_t>());
  return request;
}

json write(const Checkpoint& checkpoint) {
  json out{{"locator", checkpoint.locator}, {"at", checkpoint.at.ns},        {"problem", checkpoint.problem},
           {"number", checkpoint.number},   {"running", checkpoint.running}, {"started", checkpoint.started.ns}};
  if (checkpoint.bytes) out["bytes"] = *checkpoint.bytes;
  return out;
}

Checkpoint read_checkpoint(const json& from) {
  Checkpoint checkpoint;
  from.at("locator").get_to(checkpoint.locator);
  from.at("at").get_to(checkpoint.at.ns);
  if (from.contains("bytes")) checkpoint.bytes = from.at("bytes").get<std::int64_t>();
  from.at("problem").get_to(checkpoint.problem);
  from.at("number").get_to(checkpoint.number);
  from.at("running").get_to(checkpoint.running);
  from.at("started").get_to(checkpoint.started.ns);
  return checkpoint;
}

json write(const Progress& progress) {
  json out{{"state", to_string(progress.state)},
           {"since", progress.since.ns},
           {"why", progress.why},
           {"detail", progress.detail},
           {"start", progress.start},
           {"lease", progress.lease.number},
           {"renewed_at", progress.renewed_at.ns},
           {"last_activity", progress.last_activity.ns},
           {"continuous_since", progress.continuous_since.ns},
           {"preemptor", progress.preemptor.number},
           {"preempted_at", progress.preempted_at.ns},
           {"wanted", progress.wanted.count},
           {"checkpoint", write(progress.checkpoint)},
           {"end", to_string(progress.end)},
           {"step", to_string(progress.step)},
           {"park", progress.park},
           {"parking_tried", progress.parking_tried},
           {"checkpoint_tried", progress.checkpoint_tried},
           {"failures", progress.failures},
           {"ended_by", progress.ended_by},
           {"on_request", progress.on_request},
           {"saves_or_stays", progress.saves_or_stays}};
  if (progress.kept_until) out["kept_until"] = progress.kept_until->ns;
  if (progress.exit_status) out["exit_status"] = *progress.exit_status;
  return out;
}

void read_end(const json& from, Progress& progress) {
  progress.end = value_of(ends, from.at("end").get<std::string>()).value_or(End::lost);
  progress.step = value_of(steps, from.at("step").get<std::string>()).value_or(Step::releasing);
  from.at("park").get_to(progress.park);
  from.at("parking_tried").get_to(progress.parking_tried);
  from.at("checkpoint_tried").get_to(progress.checkpoint_tried);
  from.at("failures").get_to(progress.failures);
  from.at("ended_by").get_to(progress.ended_by);
  from.at("on_request").get_to(progress.on_request);
  progress.saves_or_stays = from.value("saves_or_stays", false);
}

Progress read_progress(const json& from) {
  Progress progress;
  progress.state = parse_state(from.at("state").get<std::string>()).value_or(State::closed);
  from.at("since").get_to(progress.since.ns);
  from.at("why").get_to(progress.why);
  from.at("detail").get_to(progress.detail);
  from.at("start").get_to(progress.start);
  from.at("lease").get_to(progress.lease.number);
  from.at("renewed_at").get_to(progress.renewed_at.ns);
  from.at("last_activity").get_to(progress.last_activity.ns);
  from.at("continuous_since").get_to(progress.continuous_since.ns);
  from.at("preemptor").get_to(progress.preemptor.number);
  from.at("preempted_at").get_to(progress.preempted_at.ns);
  progress.wanted = Bytes{from.value("wanted", std::int64_t{0})};
  if (from.contains("kept_until")) progress.kept_until = Time{from.at("kept_until").get<std::int64_t>()};
  progress.checkpoint = read_checkpoint(from.at("checkpoint"));
  if (from.contains("exit_status")) progress.exit_status = from.at("exit_status").get<int>();
  read_end(from, progress);
  return progress;
}

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

store::CapabilityRow to_row(const Session& session) {
  const json data{{"uid", session.uid},
                  {"user", session.user},
                  {"created_at", session.created_at.ns},
                  {"request", write(session.request)},
                  {"progress", write(session.progress)}};
  return {std::string(row_kind), std::to_string(session.number),
          data.dump(-1, ' ', false, json::error_handler_t::replace)};
}

Result<Session> from_row(const store::CapabilityRow& row) {
  try {
    const json data = json::parse(row.data);
    Session session;
    const auto number = parse_number<std::uint64_t>(row.key);
    if (!number) return unavailable("a stored session has the key '" + row.key + "', which is no number");
    session.number = *number;
    data.at("uid").get_to(session.uid);
    data.at("user").get_to(session.user);
    data.at("created_at").get_to(session.created_at.ns);
    session.request = read_request(data.at("request"));
    session.progress = read_progress(data.at("progress"));
    return session;
  } catch (const json::exception& wrong) {
    return unavailable("the stored session '" + row.key + "' cannot be read: " + wrong.what());
  }
}

}  // namespace sublet::sessions
