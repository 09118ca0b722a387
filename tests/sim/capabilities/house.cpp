// SPDX-License-Identifier: Apache-2.0
#include "house.h"

#include "beside.h"

#include <fmt/format.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

namespace sublet::sim {

using namespace std::chrono_literals;

House::House(engine::Engine& engine, boost::asio::io_context& io, Beside& beside, Verdict& verdict)
    : engine_(engine), io_(io), verdict_(verdict), keepers_(beside.keepers(*this)), worker_(beside.worker(*this)) {
  guard_ = std::make_unique<guard::Guard>(engine, *keepers_,
                                          guard::Options{.runs = {.host = "sim", .log_dir = "/nonexistent"}});
  idle_ = std::make_unique<idle::Idle>(engine, idle::Options{});
  sessions_ = std::make_unique<sessions::Sessions>(engine, *keepers_,
                                                   sessions::Options{.runs = {.host = "sim", .log_dir = "/nonexistent"},
                                                                     .ttl = 5min,
                                                                     .max_continuous = 1min,
                                                                     .keep_parked = 2min});
  stacks_ = std::make_unique<stacks::Stacks>(
      engine, *worker_,
      stacks::Options{.sources = {}, .label = {}, .command_timeout = 1min, .ready_timeout = 3min, .ttl = 5min});
  idle_->set_sessions([this](LeaseId lease, std::string why) { return sessions_->end_idle(lease, why); },
                      [this](LeaseId lease, std::string why) { return sessions_->rest_idle(lease, why); },
                      [this](LeaseId lease) { return sessions_->may_rest(lease); },
                      [this](LeaseId lease) { return sessions_->rests(lease); });
  engine.capabilities().add(*guard_);
  engine.capabilities().add(*sessions_);
  engine.capabilities().add(*stacks_);
  engine.capabilities().add(*idle_);
}

void House::change(std::string_view transition, const std::function<Status()>& change, std::function<void(bool)> told) {
  if (!engine_.may_decide()) return;
  {
    const engine::Engine::Transaction transaction(engine_);
    if (!change()) return;
    if (!engine_.store_rows(transition, {}, [] { return engine::Answered(); })) return;
  }
  if (!told) return;
  boost::asio::co_spawn(
      io_,
      [this, told = std::move(told)]() -> boost::asio::awaitable<void> {
        told(co_await engine_.commits().durable(engine_.intended()));
      },
      boost::asio::detached);
}

void House::check(Met& met) const {
  if (!engine_.store_problem().empty()) return;
  for (const auto& [key, program] : guard_->programs())
    ++met[fmt::format("program {}", guard::to_string(program.progress.phase))];
  for (const sessions::Session* session : sessions_->all())
    ++met[fmt::format("session {}", sessions::to_string(session->progress.state))];
  for (const auto& [name, entry] : stacks_->entries())
    ++met[fmt::format("stack {}", stacks::to_string(entry.stack.phase))];
  check_programs();
  check_sessions();
  check_stacks();
}

// A program that is up has a lease that is up, or knows that it has ended.
void House::check_programs() const {
  for (const auto& [key, program] : guard_->programs()) {
    if (!program.is_up() || program.progress.phase == guard::Phase::starting || program.progress.ending) continue;
    const core::Lease* lease = core::find(engine_.state(), program.progress.lease);
    verdict_.expect(lease != nullptr && !lease->ended(), "program-without-lease", [&] {
      return fmt::format("{} is {}, and {} has ended", key.second, guard::to_string(program.progress.phase),
                         to_string(program.progress.lease));
    });
    if (lease == nullptr) continue;
    const bool waits = lease->state == core::LeaseState::queued || lease->state == core::LeaseState::offered;
    verdict_.expect(waits == (program.progress.phase == guard::Phase::queued), "program-out-of-step", [&] {
      return fmt::format("{} is {}, and its lease {}", key.second, guard::to_string(program.progress.phase),
                         core::to_string(lease->state));
    });
  }
}

void House::check_sessions() const {
  for (const sessions::Session* session : sessions_->all()) {
    using State = sessions::State;
    const State state = session->progress.state;
    if (state == State::starting || state == State::ending || state == State::parked || state == State::closed)
      continue;
    const core::Lease* lease = core::find(engine_.state(), session->progress.lease);
    verdict_.expect(lease != nullptr && !lease->ended(), "session-without-lease", [&] {
      return fmt::format("{} is {}, and {} has ended", session->id(), sessions::to_string(state),
                         to_string(session->progress.lease));
    });
  }
}

// A stack that is in use has a lease that is up. No lease is of two stacks.
void House::check_stacks() const {
  std::set<LeaseId> seen;
  for (const auto& [name, entry] : stacks_->entries()) {
    const stacks::Stack& stack = entry.stack;
    if (!stack.use.lease) continue;
    verdict_.expect(seen.insert(stack.use.lease).second, "lease-of-two-stacks",
                    [&] { return to_string(stack.use.lease); });
    if (stack.phase == stacks::Phase::stopping) continue;
    const core::Lease* lease = core::find(engine_.state(), stack.use.lease);
    verdict_.expect(lease != nullptr && !lease->ended(), "stack-without-lease", [&] {
      return fmt::format("{} is {}, and {} has ended", name, stacks::to_string(stack.phase),
                         to_string(stack.use.lease));
    });
  }
}

}  // namespace sublet::sim
