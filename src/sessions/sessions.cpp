// SPDX-License-Identifier: Apache-2.0
// The requests of users, and the stored rows.
#include "sessions/sessions.h"

#include "base/device_name.h"
#include "base/log.h"
#include "base/text.h"
#include "sessions/rules.h"
#include "state/reconfigured.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace sublet::sessions {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

constexpr std::string_view waits_to_resume = "its program waits for its memory";

Error ended_error(const Session& session) {
  const Progress& progress = session.progress;
  const std::string id = session.id();
  if (progress.state == State::ending)
    return {code_of(progress.end), fmt::format("{} is ending ({}): {}", id, to_string(progress.end), session.why()),
            "wait until it has ended, then resume it: sublet session resume " + id};
  if (progress.state == State::parked)
    return {code_of(progress.end), fmt::format("{} has ended ({}) and is parked", id, to_string(progress.end)),
            "bring it back: sublet session resume " + id};
  return {code_of(progress.end), fmt::format("{} has ended ({}): {}", id, to_string(progress.end), session.why()),
          session.has_command() ? fmt::format("start it again: sublet session resume {}", id)
                                : fmt::format("sublet session resume {} gives it a new lease", id)};
}

}  // namespace

Sessions::Sessions(engine::Engine& engine, machine::Keepers& keepers, Options options)
    : engine_(engine),
      options_(std::move(options)),
      runs_(engine, keepers, options_.runs),
      rows_(engine, "session_changed",
            [this](std::uint64_t number) {
              const Session* session = find(number);
              return session != nullptr ? to_row(*session)
                                        : store::CapabilityRow{std::string(row_kind), fmt::format("{}", number), ""};
            }),
      reclaimable_(engine, core::PauseCauseKind::max_continuous) {
  if (!options_.activity) options_.activity = [&engine](LeaseId lease) { return engine.observer().activity(lease); };
}

// -------------------------------------------------------------------------------- reading

const Session* Sessions::find(std::uint64_t number) const {
  const auto found = entries_.find(number);
  return found == entries_.end() ? nullptr : &found->second.session;
}

const Session* Sessions::find(LeaseId lease) const {
  const auto found = by_lease_.find(lease);
  return found == by_lease_.end() ? nullptr : find(found->second);
}

const Session* Sessions::find_tag(std::uint32_t uid, std::string_view tag) const {
  const Session* found = nullptr;
  for (const auto& [number, entry] : entries_) {
    const Session& session = entry.session;
    const bool better = found == nullptr || found->is_closed() || !session.is_closed();
    if (session.uid == uid && session.tag() == tag && better) found = &session;
  }
  return found;
}

std::vector<const Session*> Sessions::all() const {
  std::vector<const Session*> found;
  for (const auto& [number, entry] : entries_) found.push_back(&entry.session);
  return found;
}

std::string Sessions::log_path(const Session& session) const {
  return runs_.log_path(session.uid, run_of(session).log);
}

std::string Sessions::warning(const Session& session) const { return entries_.at(session.number).warning; }

const core::Lease* Sessions::lease_of(const Session& session) const {
  return session.progress.lease ? engine_.find(session.progress.lease) : nullptr;
}

// The grant and a return count as activity of the lease, but a session is not renewed for them.
Activity Sessions::activity(const Session& session) const {
  const Progress& progress = session.progress;
  Activity seen = options_.activity(progress.lease);
  if (seen.state != Activity::State::idle) seen.last = engine_.now();
  else if (seen.last <= progress.renewed_at + margin_of(session.request.ttl)) seen.last = Time{};
  seen.last = std::max(seen.last, progress.last_activity);
  return seen;
}

Result<Bytes> Sessions::whole_devices(const Request& request) const {
  std::vector<std::string> named = device_list(request.text("device", "any"));
  if (named == std::vector<std::string>{"any"}) named.clear();
  const auto count = static_cast<std::size_t>(std::clamp<std::int64_t>(request.number("devices", 1), 1, 1024));
  std::vector<std::pair<Bytes, Bytes>> sizes;  // capacity, and what a lease can have of it
  for (const auto& [uuid, device] : engine_.state().devices.by_uuid) {
    if (!device.read_at || (!named.empty() && std::ranges::find(named, uuid) == named.end())) continue;
    if (count > 1 && core::is_slice(uuid)) continue;  // a lease of several devices has none
    const Bytes capacity = core::capacity_of(device, engine_.rules());
    sizes.emplace_back(capacity, core::usable_of(device, engine_.rules()));
  }
  if (sizes.empty())
    return unavailable("the size of a whole device is not known: the daemon has not read the GPU yet",
                       "sublet gpus shows the devices; try again in a moment");
  std::ranges::sort(sizes, std::greater());
  sizes.resize(std::min(count, sizes.size()));
  if (sizes.front().first != sizes.back().first)
    return bad_request(fmt::format("the {} largest devices differ in size ({} and {}): the larger would not be whole",
                                   sizes.size(), format_size(sizes.front().first), format_size(sizes.back().first)),
                       "take fewer devices, or name one: --gpu");
  return sizes.back().second;
}

std::string Sessions::lease_field(std::string_view name, const core::Lease& lease) const {
  const Session* session = name == "session" ? find(lease.id) : nullptr;
  return session == nullptr ? std::string() : json(session->id()).dump();
}

// -------------------------------------------------------------------------------- changes

void Sessions::changed(Entry& entry) {
  const Session& session = entry.session;
  rows_.change(session.number);
  if (entry.told == std::pair(session.progress.state, session.progress.why)) return;
  entry.told = {session.progress.state, session.progress.why};
  tell(entry);
  log::info({.lease = session.progress.lease, .program = {}}, "{}: {}{}{}", session.id(),
            to_string(session.progress.state), session.progress.why.empty() ? "" : ": ", printable(session.why()));
}

// An event for everybody.
void Sessions::tell(const Entry& entry, std::optional<std::int64_t> checkpoint_bytes) {
  const Session& session = entry.session;
  json data{{"type", "session"},           {"at", format_rfc3339(engine_.now())},
            {"session", session.id()},     {"user", session.user},
            {"tag", session.tag()},        {"state", to_string(session.progress.state)},
            {"why", session.progress.why}, {"lease", session.progress.lease ? to_string(session.progress.lease) : ""}};
  if (checkpoint_bytes) data["code"] = "checkpoint", data["checkpoint_bytes"] = *checkpoint_bytes;
  engine_.tell({"session", data.dump(-1, ' ', false, json::error_handler_t::replace)});
}

void Sessions::move(Entry& entry, State state, std::string why, Time now) {
  enter(entry.session, state, std::move(why), now);
  changed(entry);
}

void Sessions::begin_start(Entry& entry, Time now) {
  Progress& progress = entry.session.progress;
  ++progress.start;
  progress.end = End::none;
  progress.exit_status.reset();
  progress.checkpoint.running = false;
  entry.warning.clear();
  move(entry, State::starting, "", now);
}

// -------------------------------------------------------------------------------- requests

Result<std::uint64_t> Sessions::next_number(std::uint32_t uid, const std::string& user) const {
  std::size_t own = 0;
  for (const auto& [number, entry] : entries_)
    if (entry.session.uid == uid && !entry.session.is_closed()) ++own;
  if (own >= options_.most_sessions)
    return Error{Code::Quota,
                 fmt::format("user {} has {} sessions, which is the limit", user, own),
                 "close one (sublet session ls lists them), or raise limits.sessions",
                 {{"limit", static_cast<std::int64_t>(options_.most_sessions)}}};
  std::uint64_t number = entries_.empty() ? 1 : entries_.rbegin()->first + 1;
  while (core::find_tag(engine_.state(), uid, Session{.number = number}.id()) != nullptr) ++number;
  return number;
}

const Session& Sessions::add(Session session) {
  session.created_at = engine_.now();
  session.progress.since = engine_.now();
  const std::uint64_t number = session.number;
  Entry& entry = entries_[number];
  entry.session = std::move(session);
  if (entry.session.has_command()) begin_start(entry, engine_.now());
  return entry.session;
}

Status Sessions::touch(const Session& session) {
  Entry& entry = entry_of(session);
  const Progress& progress = session.progress;
  // An end for which nobody asked.
  const bool quiet_end = progress.end == End::idle || progress.end == End::expired;
  if (progress.state == State::ending && progress.step == Step::parking && quiet_end) return call_back(entry);
  if (session.has_ended()) return ended_error(session);
  entry.session.progress.last_activity = engine_.now();
  const core::Lease* lease = lease_of(session);
  if (lease != nullptr) engine_.observer().touch(lease->id);
  if (progress.state == State::resting) want_back(entry, "its user wants its memory", engine_.now());
  const bool idle = lease != nullptr && lease->state == core::LeaseState::paused && !lease->parking->resume_requested &&
                    lease->parking->cause.kind == core::PauseCauseKind::idle;
  if (idle && engine_.decide(core::Resume{lease->id}) && progress.state == State::paused)
    move(entry, State::queued, std::string(waits_to_resume), engine_.now());
  rows_.wake(session.number, engine_.now());
  return {};
}

Status Sessions::checkpoint(const Session& session) {
  if (session.request.checkpoint.empty())
    return bad_request(fmt::format("{} has no checkpoint command", session.id()),
                       "give one when it is opened: --checkpoint-cmd");
  if (session.has_ended()) return ended_error(session);
  if (session.progress.checkpoint.running) return {};
  const core::Lease* lease = lease_of(session);
  if (lease == nullptr || lease->state != core::LeaseState::active)
    return Error{Code::Stale,
                 fmt::format("{} is {}: its program does not run now", session.id(), to_string(session.progress.state)),
                 "wait until it is active"};
  begin_checkpoint(entry_of(session), engine_.now());
  return {};
}

Status Sessions::close(const Session& session, const Close& how) {
  Entry& entry = entry_of(session);
  Progress& progress = entry.session.progress;
  if (progress.state == State::closed) return {};
  const Time now = engine_.now();
  const bool own = how.by == session.uid;
  if (progress.state == State::parked) {
    if (how.park) return {};
    progress.on_request = true;
    progress.ended_by = how.by;
    unpark(entry);
    progress.saves_or_stays = own && !how.force;
    return {};
  }
  if (progress.state == State::ending) {
    progress.park = progress.park && how.park;
    progress.saves_or_stays = progress.saves_or_stays && !how.force;
    changed(entry);
    return {};
  }
  progress.on_request = true;
  progress.ended_by = how.by;
  end(entry, own ? End::closed : End::revoked, how.park, own ? "closed by its user" : "closed by an admin", now);
  progress.saves_or_stays = own && !how.force;
  return {};
}

Status Sessions::may_submit_again(const Session& session) const {
  if (session.progress.state != State::closed)
    return Error{Code::Stale, fmt::format("{} is {}", session.id(), to_string(session.progress.state)), ""};
  const auto room = next_number(session.uid, session.user);
  return room ? Status() : Status(room.error());
}

Status Sessions::resume(const Session& session) {
  Entry& entry = entry_of(session);
  Progress& progress = entry.session.progress;
  const Time now = engine_.now();
  if (progress.state == State::ending)
    return progress.step == Step::parking ? call_back(entry) : Status(ended_error(session));
  if (progress.state == State::closed) {
    if (Status may = may_submit_again(session); !may) return may;
    begin_start(entry, now);
    return {};
  }
  progress.last_activity = now;
  const core::Lease* lease = lease_of(session);
  if (lease == nullptr || lease->ended() || !lease->parking) return touch(session);
  const auto asked = engine_.decide(core::Resume{lease->id});
  if (!asked) return asked.error();
  if (progress.state == State::parked) progress.end = End::none;
  if (progress.state == State::parked || progress.state == State::paused)
    move(entry, State::queued, std::string(waits_to_resume), now);
  changed(entry);
  return {};
}

// Its program is being parked for an end, and its user wants it again.
Status Sessions::call_back(Entry& entry) {
  Session& session = entry.session;
  if (!engine_.decide(core::Resume{session.progress.lease})) return ended_error(session);
  const core::Lease* lease = lease_of(session);
  engine_.observer().touch(session.progress.lease);
  if (session.progress.state == State::ending && lease != nullptr) cancel_end(entry, *lease, engine_.now());
  return {};
}

void Sessions::cancel_end(Entry& entry, const core::Lease& lease, Time now) {
  Progress& progress = entry.session.progress;
  progress.last_activity = now;
  const bool is_active = lease.state == core::LeaseState::active, rests = has_given_back(entry.session, lease);
  if (is_active && !rests) return became_active(entry, lease, now);
  progress.end = End::none;
  progress.on_request = false;
  entry.pause_ordered = false;
  if (is_active) return move(entry, State::resting, "", now);
  move(entry, State::queued, "its end was cancelled: its program is wanted again", now);
}

Status Sessions::report(const Session& session, const Report& report) {
  Entry& entry = entry_of(session);
  Progress& progress = entry.session.progress;
  if (report.checkpoint) {
    if (*report.checkpoint != progress.checkpoint.number || !progress.checkpoint.running)
      return Error{Code::Stale,
                   fmt::format("run {} of the checkpoint command of {} is over", *report.checkpoint, session.id()),
                   "its result is not used"};
    finish_checkpoint(entry, report, engine_.now());
    return {};
  }
  if (report.start != progress.start)
    return Error{Code::Stale, fmt::format("start {} of {} is over", report.start, session.id()),
                 "there is a newer start"};
  if (report.warning) entry.warning = *report.warning;
  if (!report.failed.empty() && progress.state == State::starting) {
    progress.exit_status = report.exit_status;
    progress.end = End::failed;
    progress.why = "its program was not started";
    progress.detail = report.failed;
    close_now(entry, engine_.now());
  }
  return {};
}

bool Sessions::end_idle(LeaseId lease, const std::string& why) {
  const auto found = by_lease_.find(lease);
  if (found == by_lease_.end()) return false;
  Entry& entry = entries_.at(found->second);
  const Time now = engine_.now();
  if (!entry.session.has_ended() && rest(entry, why, now) == Rest::no) end(entry, End::idle, true, why, now);
  return true;
}

std::optional<Duration> Sessions::checkpoint_time(LeaseId lease) const {
  const Session* session = find(lease);
  if (session == nullptr || session->has_ended() || session->request.checkpoint.empty()) return std::nullopt;
  return session->request.checkpoint_timeout;
}

void Sessions::end_drained(LeaseId lease, const std::string& why) {
  const auto found = by_lease_.find(lease);
  if (found == by_lease_.end()) return;
  end(entries_.at(found->second), End::revoked, false, why, engine_.now());
}

bool Sessions::rests(LeaseId lease) const {
  const Session* session = find(lease);
  return session != nullptr && rests(*session);
}

bool Sessions::may_rest(LeaseId lease) const {
  const Session* session = find(lease);
  return session != nullptr && may_rest(*session);
}

bool Sessions::rest_idle(LeaseId lease, const std::string& why) {
  const auto found = by_lease_.find(lease);
  return found != by_lease_.end() && rest(entries_.at(found->second), why, engine_.now()) != Rest::no;
}

// -------------------------------------------------------------------------------- the lease of a start

Status Sessions::may_submit(std::uint32_t uid, std::uint64_t number, std::uint64_t start) const {
  const Session* session = find(number);
  if (session == nullptr || session->uid != uid)
    return not_found(fmt::format("there is no session-{}", number), "sublet session ls lists all");
  if (session->progress.state == State::starting && session->progress.start == start) return {};
  return Error{Code::Stale, fmt::format("start {} of {} is over", start, session->id()), "there is a newer start"};
}

void Sessions::submitted(std::uint64_t number, const core::Lease& lease) {
  Entry& entry = entries_.at(number);
  Progress& progress = entry.session.progress;
  if (!entry.session.has_command()) ++progress.start;
  progress.lease = lease.id;
  progress.wanted = {};
  entry.session.request.tenant = lease.tenant;
  progress.end = End::none;
  progress.exit_status.reset();
  by_lease_[lease.id] = number;
  entry.pause_ordered = entry.release_ordered = entry.noticed = false;
  entry.ask_notice_at = {};
  if (lease.state == core::LeaseState::active) became_active(entry, lease, engine_.now());
  else move(entry, State::queued, "", engine_.now());
}

void Sessions::refused(std::uint64_t number, const Error& error) {
  Entry& entry = entries_.at(number);
  entry.session.progress.end = End::failed;
  entry.session.progress.why = "its lease was refused";
  entry.session.progress.detail = error.detail;
  close_now(entry, engine_.now());
}

}  // namespace sublet::sessions
