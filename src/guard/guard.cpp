// SPDX-License-Identifier: Apache-2.0
#include "guard/guard.h"

#include "base/directory.h"
#include "base/log.h"
#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace sublet::guard {

using nlohmann::json;

namespace {

// The new ceiling is the new size too.
bool is_sized_by_ceiling(const Program& program, const Update& changes) {
  return program.manifest.sized_by_ceiling && !changes.vram && changes.ceiling && *changes.ceiling > Bytes{};
}

}  // namespace

Guard::Guard(engine::Engine& engine, machine::Keepers& keepers, Options options)
    : engine_(engine),
      options_(std::move(options)),
      runs_(engine, keepers, options_.runs),
      rows_(engine, "program_changed",
            [this](const Key& key) {
              const auto found = programs_.find(key);
              return found != programs_.end()
                         ? to_row(found->second)
                         : store::CapabilityRow{std::string(row_kind), row_key(key.first, key.second), ""};
            }),
      ceilings_(engine, options_.ceiling_for_all, options_.soft_cpu) {}

const Program* Guard::find(std::uint32_t uid, std::string_view tag) const {
  const auto found = programs_.find({uid, std::string(tag)});
  return found == programs_.end() ? nullptr : &found->second;
}

const Program* Guard::find_user(std::string_view user, std::string_view tag) const {
  for (const auto& [key, program] : programs_)
    if (program.user == user && program.tag == tag) return &program;
  return nullptr;
}

std::string Guard::log_path(const Program& program) const { return runs_.log_path(program.uid, run_of(program).log); }

std::string Guard::warning(const Program& program) const {
  std::string text = program.progress.warning;
  const auto add = [&](const std::string& more) { text += (text.empty() || more.empty() ? "" : "; ") + more; };
  const core::Lease* lease = program.is_up() ? core::find(engine_.state(), program.progress.lease) : nullptr;
  if (lease == nullptr || lease->ended()) return text;
  if (runs_.has_lost_keeper(*lease))
    add(
        fmt::format("its keeper (pid {}) is gone, so its exit status will be unknown; "
                    "sublet restart {} starts it again with a keeper",
                    lease->owner.keeper.pid, printable(program.tag)));
  add(ceilings_.over_soft_limit(*lease));
  return text;
}

Program* Guard::mutable_program(const Program& program) { return &programs_.at({program.uid, program.tag}); }

void Guard::changed(const Program& program) { rows_.change({program.uid, program.tag}); }

// -------------------------------------------------------------------------------- requests

// The manifest replaces an earlier one of its tag.
Status Guard::check_size(const Key& key, const std::string& user, const Manifest& manifest) const {
  Bytes sum = manifest.size();
  for (const auto& [other, program] : programs_)
    if (other.first == key.first && other != key) sum += program.manifest.size();
  if (sum <= options_.most_manifests) return {};
  return Error{Code::Quota,
               fmt::format("the command lines and environments of the programs of {} would take {} of {}", user,
                           format_size(sum), format_size(options_.most_manifests)),
               "remove a program (sublet programs lists them), or pass large texts in a file",
               {{"limit_bytes", options_.most_manifests.count}}};
}

Result<const Program*> Guard::add(Program program) {
  const Key key{program.uid, program.tag};
  if (const auto old = programs_.find(key); old != programs_.end()) {
    return Error{Code::InUse,
                 fmt::format("the tag '{}' belongs to a program that is {}", printable(program.tag),
                             to_string(old->second.progress.phase)),
                 fmt::format("change it (sublet update {0}), remove it (sublet remove {0}), or choose another tag",
                             printable(program.tag))};
  }
  if (const core::Lease* holder = core::find_tag(engine_.state(), program.uid, program.tag)) {
    return Error{Code::InUse,
                 fmt::format("the tag '{}' belongs to {}, which is {}", printable(program.tag), to_string(holder->id),
                             core::to_string(holder->state)),
                 "release that lease first, or choose another tag"};
  }
  const auto own = std::ranges::count_if(programs_, [&](const auto& entry) { return entry.first.first == key.first; });
  if (static_cast<std::size_t>(own) >= options_.most_programs) {
    return Error{Code::Quota,
                 fmt::format("user {} has {} programs, which is the limit", program.user, own),
                 "remove one: sublet programs lists them",
                 {{"limit", static_cast<std::int64_t>(options_.most_programs)}}};
  }
  if (auto checked = check_size(key, program.user, program.manifest); !checked) return checked.error();
  if (const Bytes logs = disk_use(fmt::format("{}/{}", options_.runs.log_dir, program.uid));
      logs > options_.runs.log_user_max) {
    return Error{Code::Quota,
                 fmt::format("the logs of {} take {}, and guard.log_user_max is {}", program.user, format_size(logs),
                             format_size(options_.runs.log_user_max)),
                 fmt::format("remove programs with their logs (sublet programs lists them, sublet remove), or files in "
                             "{}/{}; or an admin raises guard.log_user_max",
                             options_.runs.log_dir, program.uid),
                 {{"limit_bytes", options_.runs.log_user_max.count}}};
  }
  program.created_at = engine_.now();
  // By the clock, so that a log's name is not used again after its program was removed.
  last_number_ = std::max(last_number_ + 1, static_cast<std::uint64_t>(program.created_at.ns / 1'000'000));
  program.number = last_number_;
  begin_start(program, engine_.now());
  const Program& kept = programs_.emplace(key, std::move(program)).first->second;
  changed(kept);
  return &kept;
}

// Ends the lease of a program that is up. A keeper that has not asked for its lease yet is refused from now on.
Status Guard::end_lease(Program& mine, bool force, std::uint32_t asked_by) {
  if (mine.progress.ending) return {};  // its program is being ended already
  const core::Lease* lease = core::find(engine_.state(), mine.progress.lease);
  const bool live = lease != nullptr && !lease->ended() && mine.progress.phase != Phase::starting;
  if (!live) {
    end_start(mine, {core::EndReason::cancelled, {}, true, "it was ended before it had a lease"}, engine_.now());
    ++mine.progress.start;
    return {};
  }
  const auto done =
      engine_.decide(core::Release{.lease = lease->id, .force = force, .stop = true, .asked_by = asked_by});
  return done ? Status() : Status(done.error());
}

// A request that was refused leaves the program as it was.
Status Guard::end_for(Program& mine, Wish wish, bool force, std::uint32_t asked_by) {
  const Progress before = mine.progress;
  mine.progress.wish = wish;
  const Status ended = end_lease(mine, force, asked_by);
  if (!ended) mine.progress = before;
  changed(mine);
  return ended;
}

Status Guard::stop(const Program& program, bool force, std::uint32_t asked_by) {
  Program& mine = *mutable_program(program);
  const bool removed = mine.progress.wish == Wish::remove;  // a stop does not keep it
  if (mine.is_up()) return end_for(mine, removed ? Wish::remove : Wish::stop, force, asked_by);
  if (mine.progress.phase == Phase::backoff) {
    mine.progress.phase = Phase::stopped;
    mine.progress.since = engine_.now();
    mine.progress.why = "stopped while its next start waited";
    mine.progress.next_start = Time::never();
    (void)engine_.decide(core::Keep{mine.progress.lease, Time{}});
  }
  changed(mine);
  return {};
}

// A program that is being removed does not start again.
Status Guard::check_stays(const Program& program) {
  if (program.progress.wish != Wish::remove) return {};
  return Error{Code::InUse, fmt::format("'{}' is being removed", printable(program.tag)),
               "wait for its end, and add it again: sublet run --detach"};
}

Status Guard::restart(const Program& program, std::uint32_t asked_by) {
  if (Status stays = check_stays(program); !stays) return stays;
  Program& mine = *mutable_program(program);
  mine.progress.recent.clear();
  if (mine.is_up()) return end_for(mine, Wish::restart, false, asked_by);
  begin_start(mine, engine_.now());
  changed(mine);
  return {};
}

Status Guard::start(const Program& program) {
  if (Status stays = check_stays(program); !stays) return stays;
  Program& mine = *mutable_program(program);
  if (mine.is_up()) {
    if (mine.progress.wish == Wish::stop) mine.progress.wish = Wish::restart;
  } else {
    mine.progress.recent.clear();
    begin_start(mine, engine_.now());
  }
  changed(mine);
  return {};
}

Status Guard::replace(const Program& program, Manifest manifest, std::uint32_t asked_by) {
  Program& mine = *mutable_program(program);
  if (auto checked = check_size({mine.uid, mine.tag}, mine.user, manifest); !checked) return checked;
  Manifest before = std::exchange(mine.manifest, std::move(manifest));
  changed(mine);  // so that the order to end it is stored with the manifest that follows
  const Status restarted = restart(mine, asked_by);
  if (restarted) mine.progress.restarts = 0;
  else mine.manifest = std::move(before);
  return restarted;
}

Status Guard::remove(const Program& program, bool keep_running, std::uint32_t asked_by) {
  Program& mine = *mutable_program(program);
  const Key key{mine.uid, mine.tag};
  if (keep_running && mine.progress.phase == Phase::running) {
    (void)engine_.decide(core::Amend{.lease = mine.progress.lease, .ceiling = Bytes{}, .soft_limit = Bytes{}});
    erase(key);
    return {};
  }
  if (mine.is_up()) {
    if (auto ended = end_for(mine, Wish::remove, false, asked_by); !ended) return ended;
    if (mine.is_up()) return {};  // it is removed when it has ended
  }
  if (mine.progress.phase == Phase::backoff) (void)engine_.decide(core::Keep{mine.progress.lease, Time{}});
  erase(key);
  return {};
}

void Guard::erase(const Key& key) {
  const auto found = programs_.find(key);
  if (found == programs_.end()) return;
  const std::uint64_t number = found->second.number;
  by_lease_.erase(found->second.progress.lease);
  orderings_.erase(key);
  programs_.erase(found);
  rows_.change(key);
  removed_logs_.insert(number);
  logs_due_ = std::min(logs_due_, engine_.now());
}

json Guard::changed_request(const Program& program, const Update& changes) const {
  json request = program.manifest.request;
  const auto set = [&](const char* field, std::optional<Bytes> bytes) {
    if (!bytes) return;
    if (*bytes > Bytes{}) request[field] = bytes->count;
    else request.erase(field);
  };
  set("vram_bytes", changes.vram);
  set("memory_bytes", changes.ceiling);
  set("soft_bytes", changes.soft_limit);
  if (is_sized_by_ceiling(program, changes)) set("vram_bytes", changes.ceiling);
  if (changes.tier) request["tier"] = core::to_string(*changes.tier);
  if (changes.priority) request["priority"] = *changes.priority;
  return request;
}

Status Guard::update(const Program& program, const Update& changes) {
  Program& mine = *mutable_program(program);
  const core::Lease* lease = core::find(engine_.state(), mine.progress.lease);
  if (lease != nullptr && !lease->ended() && mine.is_up() && mine.progress.phase != Phase::starting) {
    const core::Amend amend{lease->id, changes.tier, changes.priority, changes.ceiling, changes.soft_limit};
    if (auto done = engine_.decide(amend); !done) return done.error();
    // A size that the program exceeds, or that is not free now, is that of its next start.
    const auto size = is_sized_by_ceiling(mine, changes) ? changes.ceiling : changes.vram;
    if (size && lease->state == core::LeaseState::active) (void)engine_.decide(core::Resize{lease->id, 0, *size, true});
  }
  const Bytes size = mine.manifest.vram();
  mine.manifest.request = changed_request(mine, changes);
  mine.manifest.sized_by_ceiling = mine.manifest.sized_by_ceiling && !changes.vram;
  // A waiting lease keeps the size that it asked for. Another start asks for the new one.
  lease = core::find(engine_.state(), mine.progress.lease);
  const bool waits =
      lease != nullptr && (lease->state == core::LeaseState::queued || lease->state == core::LeaseState::offered);
  if (waits && mine.manifest.vram() != size) (void)end_for(mine, Wish::restart, false, mine.uid);
  mine.manifest.restart = changes.restart.value_or(mine.manifest.restart);
  changed(mine);
  return {};
}

Error Guard::stale(const StartName& name, const Program& now) {
  if (name.number != now.number)
    return Error{Code::Stale, fmt::format("the program '{}' of this keeper was removed", printable(name.tag)),
                 "another program has its tag"};
  return Error{Code::Stale, fmt::format("start {} of '{}' is over", name.start, printable(name.tag)),
               "there is a newer start"};
}

Status Guard::report(const Program& program, const Report& report) {
  Program& mine = *mutable_program(program);
  if (report.number != mine.number || report.start != mine.progress.start)
    return stale({mine.tag, report.number, report.start}, mine);
  if (report.warning) mine.progress.warning = *report.warning;
  if (!report.failed.empty() && mine.progress.phase == Phase::starting)
    ended(mine, {core::EndReason::failed, report.exit_status, false, report.failed}, engine_.now());
  changed(mine);
  return {};
}

void Guard::stop_after_end(LeaseId lease) {
  const auto found = by_lease_.find(lease);
  if (found == by_lease_.end()) return;
  Program& program = programs_.at(found->second);
  if (!program.progress.ending || program.progress.wish != Wish::none) return;
  program.progress.wish = Wish::stop;
  changed(program);
}

// -------------------------------------------------------------------------------- the lease of a start

Status Guard::may_submit(std::uint32_t uid, const StartName& name) const {
  const Program* program = find(uid, name.tag);
  if (program == nullptr)
    return not_found(fmt::format("there is no program '{}'", printable(name.tag)), "sublet programs lists all");
  const bool is_newest = program->number == name.number && program->progress.start == name.start;
  if (is_newest && program->progress.phase == Phase::starting) return {};
  return stale(name, *program);
}

LeaseId Guard::predecessor(std::uint32_t uid, std::string_view tag) const {
  const Program* program = find(uid, tag);
  return program == nullptr ? LeaseId{} : program->progress.lease;
}

void Guard::submitted(std::uint32_t uid, std::string_view tag, const core::Lease& lease) {
  Program* program = mutable_program(*find(uid, tag));
  program->progress.lease = lease.id;
  by_lease_[lease.id] = {uid, std::string(tag)};
  follow(*program, lease.state, engine_.now());
  changed(*program);
}

void Guard::refused(std::uint32_t uid, std::string_view tag, const Error& error) {
  Program* program = mutable_program(*find(uid, tag));
  ended(*program, {core::EndReason::failed, {}, false, error.detail}, engine_.now());
  changed(*program);
}

}  // namespace sublet::guard
