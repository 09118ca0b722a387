// SPDX-License-Identifier: Apache-2.0
#include "users.h"

#include <fmt/format.h>

#include <memory>

namespace sublet::sim {

using namespace std::chrono_literals;

namespace {

constexpr std::uint32_t ana = 1000;

Bytes some_bytes(Random& random) { return random.between(1, 16) * 512 * MiB; }

core::Tier some_tier(Random& random) { return static_cast<core::Tier>(random.below(3)); }

}  // namespace

void Users::act(Random& random) {
  if (house_ == nullptr) return;
  switch (random.below(3)) {
    case 0: return use_program(random);
    case 1: return use_session(random);
    default: return use_stack(random);
  }
}

// ------------------------------------------------------------------------------------------------ programs

void Users::use_program(Random& random) {
  const std::string tag = fmt::format("p{}", random.below(4));
  const guard::Program* program = house_->guard().find(ana, tag);
  if (program == nullptr) return add_program(tag, random);
  change_program(*program, random);
}

void Users::add_program(const std::string& tag, Random& random) {
  guard::Program program;
  program.uid = ana;
  program.user = "ana";
  program.tag = tag;
  program.manifest.arguments = {"train"};
  program.manifest.directory = "/";
  program.manifest.restart = static_cast<guard::Restart>(random.below(3));
  program.manifest.request = {{"vram_bytes", some_bytes(random).count}};
  const auto number = std::make_shared<std::uint64_t>(0);
  house_->change(
      "program_added",
      [&] {
        const auto added = house_->guard().add(std::move(program));
        if (added) *number = (*added)->number;
        return added ? Status() : Status(added.error());
      },
      [this, tag, number](bool durable) {
        const guard::Program* now = house_->guard().find(ana, tag);
        const bool removed = now == nullptr || now->progress.wish == guard::Wish::remove || now->number != *number;
        if (durable && !removed) kept_[tag] = *number;
      });
}

void Users::change_program(const guard::Program& program, Random& random) {
  guard::Guard& guard = house_->guard();
  switch (random.below(6)) {
    case 0: {
      const bool force = random.chance(20);
      if (force && program.progress.lease) world_.note_forced(program.progress.lease);
      return house_->change("program_changed", [&] { return guard.stop(program, force, ana); });
    }
    case 1: return house_->change("program_changed", [&] { return guard.start(program); });
    case 2: return house_->change("program_changed", [&] { return guard.restart(program, ana); });
    case 3: {
      guard::Update update;
      if (random.chance(50)) update.vram = some_bytes(random);
      if (random.chance(30)) update.tier = some_tier(random);
      return house_->change("program_changed", [&] { return guard.update(program, update); });
    }
    case 4: {
      guard::Manifest manifest = program.manifest;
      manifest.request["vram_bytes"] = some_bytes(random).count;
      return house_->change("program_changed", [&] { return guard.replace(program, std::move(manifest), ana); });
    }
    default:
      kept_.erase(program.tag);
      return house_->change("program_removed", [&] { return guard.remove(program, random.chance(20), ana); });
  }
}

// ------------------------------------------------------------------------------------------------ sessions

void Users::use_session(Random& random) {
  const auto all = house_->sessions().all();
  if (all.empty() || random.chance(10)) return open_session(random);
  change_session(*all[all.size() - 1 - random.below(std::min<std::size_t>(all.size(), 6))], random);
}

void Users::open_session(Random& random) {
  sessions::Sessions& sessions = house_->sessions();
  const auto number = sessions.next_number(ana, "ana");
  if (!number) return;
  sessions::Session session;
  session.number = *number;
  session.uid = ana;
  session.user = "ana";
  session.request.lease = {{"vram_bytes", some_bytes(random).count}};
  session.request.ttl = random.time(20s, 5min);
  session.request.command.arguments = {"notebook"};
  session.request.command.directory = "/";
  house_->change(
      "session_changed", [&] { return sessions.add(std::move(session)), Status(); },
      [this, number = *number](bool durable) {
        if (durable) sessions_.insert(number);
      });
}

void Users::change_session(const sessions::Session& session, Random& random) {
  sessions::Sessions& sessions = house_->sessions();
  const auto change = [&](const std::function<Status()>& what) { house_->change("session_changed", what); };
  switch (random.below(5)) {
    case 0:
    case 1: return change([&] { return sessions.touch(session); });
    case 2: return change([&] { return sessions.resume(session); });
    default: {
      const sessions::Close how{
          .park = random.chance(50), .force = random.chance(30), .by = random.chance(80) ? ana : 0};
      return change([&] { return sessions.close(session, how); });
    }
  }
}

// ------------------------------------------------------------------------------------------------ stacks

void Users::use_stack(Random& random) {
  stacks::Stacks& stacks = house_->stacks();
  if (stacks.entries().empty()) return;
  auto at = std::next(stacks.entries().begin(), static_cast<std::ptrdiff_t>(random.below(stacks.entries().size())));
  const std::string name = at->first;
  const stacks::Entry& entry = at->second;
  const auto change = [&](const std::function<Status()>& what) { house_->change("stack_changed", what); };
  if (!entry.stack.acquired() && random.chance(60)) return acquire(name, random);
  switch (random.below(5)) {
    case 0: return change([&] { return stacks.renew(name, random.time(10s, 5min)); });
    case 1: return change([&] { return stacks.restart(name); });
    case 2: return change([&] { return stacks.set(name, {.vram = some_bytes(random), .tier = some_tier(random)}); });
    case 3: return change([&] { return stacks.claim(name); });
    default: {
      const auto after = static_cast<stacks::After>(random.below(3));
      return change([&] { return stacks.release(name, after, random.chance(20)); });
    }
  }
}

void Users::acquire(const std::string& name, Random& random) {
  stacks::Stacks& stacks = house_->stacks();
  engine::Engine& engine = house_->engine();
  if (!engine.may_decide()) return;
  const stacks::Wish wish{.uid = ana, .user = "ana", .tenant = "ana", .token_hash = fmt::format("{}", ++last_token_)};
  if (stacks.find(name)->stack.phase == stacks::Phase::released)
    return house_->change("stack_changed", [&] { return stacks.take_over(name, wish); });
  auto submit = stacks.request(name, wish);
  if (!submit) return;
  submit->may_queue = random.chance(80);
  const engine::Engine::Transaction transaction(engine);
  (void)engine.request(*submit, {}, [&](const core::Lease& lease) {
    stacks.submitted(name, wish, lease);
    return engine::Answered();
  });
}

// ------------------------------------------------------------------------------------------------ what was told

void Users::check() const {
  if (house_ == nullptr || !house_->engine().store_problem().empty()) return;
  for (const auto& [tag, number] : kept_) {
    const guard::Program* program = house_->guard().find(ana, tag);
    verdict_.expect(program != nullptr && program->number == number, "program-lost",
                    [&] { return fmt::format("{} was told as added, and is gone", tag); });
  }
  for (const std::uint64_t number : sessions_)
    verdict_.expect(house_->sessions().find(number) != nullptr || house_->sessions().all().size() >= 100,
                    "session-lost", [&] { return fmt::format("session-{} was told as opened, and is gone", number); });
}

void Users::wind_down() {
  if (house_ == nullptr) return;
  kept_.clear();
  guard::Guard& guard = house_->guard();
  sessions::Sessions& sessions = house_->sessions();
  stacks::Stacks& stacks = house_->stacks();
  std::vector<std::string> tags;
  for (const auto& [key, program] : guard.programs())
    if (program.progress.wish != guard::Wish::remove) tags.push_back(key.second);
  for (const std::string& tag : tags)
    house_->change("program_removed", [&] { return guard.remove(*guard.find(ana, tag), false, ana); });
  for (const sessions::Session* session : sessions.all())
    if (!session->is_closed())
      house_->change("session_changed",
                     [&] { return sessions.close(*session, {.park = false, .force = true, .by = ana}); });
  for (const auto& [name, entry] : stacks.entries()) {
    if (!entry.stack.acquired() && entry.stack.phase != stacks::Phase::released) continue;
    house_->change("stack_changed", [&stacks, &name] { return stacks.release(name, stacks::After::down); });
  }
}

bool Users::is_done() const { return house_ != nullptr && left().empty(); }

std::string Users::left() const {
  std::string text;
  for (const auto& [key, program] : house_->guard().programs())
    text += fmt::format("{} is {}; ", key.second, guard::to_string(program.progress.phase));
  for (const sessions::Session* session : house_->sessions().all())
    if (!session->is_closed())
      text +=
          fmt::format("{} is {}: {}; ", session->id(), sessions::to_string(session->progress.state), session->why());
  for (const auto& [name, entry] : house_->stacks().entries())
    if (entry.stack.is_up() || entry.stack.use.lease)
      text += fmt::format("{} is {}: {}; ", name, stacks::to_string(entry.stack.phase), entry.trouble);
  return text;
}

}  // namespace sublet::sim
