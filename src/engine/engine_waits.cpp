// SPDX-License-Identifier: Apache-2.0
// The daemon itself waits for the disk of its store, and for a reading of the cards. It tells of a long wait in its log
// and by a warning.
#include "engine/engine.h"

#include "base/log.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::engine {
namespace {

constexpr Duration long_commit = std::chrono::seconds(2);
constexpr Duration long_first_reading = std::chrono::seconds(5);

}  // namespace

std::uint64_t Engine::hand_to_store(store::Batch batch) {
  if (committed_ >= intended_) store_waits_since_ = clock_.now();
  intended_ = store_.intend(std::move(batch));
  if (!std::exchange(watches_commits_, true)) watch_commits(long_commit);
  return intended_;
}

// Some batches are durable now. The others wait from here on.
void Engine::commit_came() {
  const Duration waited = clock_.now() - store_waits_since_;
  store_waits_since_ = clock_.now();
  if (!std::exchange(store_is_slow_, false)) return;
  log::info("the store has written again, after {}", format_duration(waited));
  tell_changes();
}

// Looks once in a while, since a commit takes milliseconds.
void Engine::watch_commits(Duration later) {
  commit_alarm_->set(later, [this] {
    watches_commits_ = false;
    if (committed_ >= intended_ || !store_problem_.empty()) return;
    const Duration waited = clock_.now() - store_waits_since_;
    watches_commits_ = true;
    if (waited >= long_commit && !std::exchange(store_is_slow_, true)) {
      const Warning warning = *slow_store_warning();
      log::warn("{} ({})", warning.text, warning.hint);
      tell_changes();
    }
    watch_commits(waited >= long_commit ? long_commit : long_commit - waited);
  });
}

std::optional<Warning> Engine::slow_store_warning() const {
  if (!store_is_slow_ || !store_problem_.empty()) return std::nullopt;
  const auto room = store_.disk_room();
  const std::string where = room ? " in " + room->directory : "";
  return Warning{"store-slow",
                 fmt::format("a change has waited for more than {} for the disk of the store{}: calls wait for it too",
                             format_duration(long_commit), where),
                 "running programs continue, and ceilings hold; look at the load and the health of that disk",
                 store_waits_since_};
}

void Engine::await_first_reading() {
  first_reading_alarm_->set(long_first_reading, [this] {
    const auto warning = unread_warning();
    if (!warning) return;
    log::warn("{}", warning->text);
    tell_changes();
  });
}

std::optional<Warning> Engine::unread_warning() const {
  constexpr auto hint = "'sublet doctor' checks the driver";
  const std::string& problem = probe_.problem().empty() ? state_.devices.snapshot_problem : probe_.problem();
  if (!problem.empty())
    return Warning{"gpu", "the GPUs cannot be read, no lease is granted: " + problem, hint, clock_.now()};
  if (has_read_ || clock_.now() - started_at_ < long_first_reading) return std::nullopt;
  return Warning{"gpu", "no GPU has been read since the daemon's start, no lease is granted", hint, started_at_};
}

// A driver that answers with an error does so at each reading.
void Engine::note_reading(const std::string& problem) {
  if (problem.empty()) has_read_ = true;
  const std::string before = std::exchange(unread_, problem);
  if (before == problem) return;
  if (problem.empty()) log::info("the GPUs can be read again");
  else log::warn("the GPUs cannot be read, no lease is granted: {}; retrying", problem);
}

}  // namespace sublet::engine
