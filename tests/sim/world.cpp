// SPDX-License-Identifier: Apache-2.0
#include "world.h"

#include "driver.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::sim {

using namespace std::chrono_literals;

World::World(const Config& config, Agenda& agenda, Verdict& verdict)
    : config_(config),
      agenda_(agenda),
      verdict_(verdict),
      fate_(config.seed ^ 0x5bd1e995),
      driver_(std::make_unique<Driver>(*this, agenda, config)),
      ram_(config, agenda) {
  if (config.swap) swap_out();
  for (const Bytes total : config.cards) cards_.push_back({total, {}, false});
}

World::~World() = default;

std::optional<std::size_t> World::card_of(const std::string& uuid) const {
  for (std::size_t card = 0; card < cards_.size(); ++card) {
    if (uuid.size() == 5 && uuid[4] == static_cast<char>('0' + card)) return card;
  }
  return std::nullopt;
}

// ------------------------------------------------------------------------------------------------ programs

Process& World::add_process(LeaseId lease, std::size_t group) {
  const ProcessRef ref{++last_pid_, static_cast<std::uint64_t>(last_pid_) * 10};
  const std::vector<Bytes> none(cards_.size());
  Process& process = processes_.emplace(ref, Process{ref, lease, none, none, none}).first->second;
  process.group = group;
  process.born = awake();
  return process;
}

Program& World::start_program(LeaseId lease, std::uint32_t uid, std::vector<std::size_t> cards, Bytes within) {
  const ProcessRef keeper{++last_pid_, static_cast<std::uint64_t>(last_pid_) * 10};
  Program& program = programs_[lease];
  program = Program{.lease = lease,
                    .main = add_process(lease, ram_.place(uid, fate_)).ref,
                    .keeper = keeper,
                    .cards = std::move(cards),
                    .within = within,
                    .workers = fate_.chance(5) ? 24 : 0,
                    .exit_status = {},
                    .uid = uid};
  return program;
}

Program* World::program_of(LeaseId lease) {
  const auto found = programs_.find(lease);
  return found == programs_.end() ? nullptr : &found->second;
}

// Below the others, most often in their group.
void World::fork(Program& program) {
  const auto main = processes_.find(program.main);
  const bool same = main != processes_.end() && !fate_.chance(10);
  add_process(program.lease, same ? main->second.group : ram_.place(program.uid, fate_));
}

void World::start_workers(Program& program, std::size_t card) {
  constexpr Bytes each = 32 * MiB;
  for (; program.workers > 0; --program.workers) {
    const Bytes left = std::min(program.within - held_by(program.lease, card), room(card));
    const auto main = processes_.find(program.main);
    add_process(program.lease, main == processes_.end() ? 0 : main->second.group).held[card] =
        std::clamp(left, Bytes{}, each);
  }
}

void World::free_all(Process& process) {
  for (std::size_t card = 0; card < cards_.size(); ++card) {
    Bytes& held = process.held[card];
    if (held > Bytes{} && fate_.chance(config_.ghosts)) {
      cards_[card].ghosts += held;
      const Bytes late = held;
      agenda_.in(fate_.time(50ms, 5s),
                 [this, card, late] { cards_[card].ghosts = std::max(cards_[card].ghosts - late, Bytes{}); });
    }
    held = {};
  }
}

void World::end_process(ProcessRef process) {
  const auto found = processes_.find(process);
  if (found == processes_.end()) return;
  free_all(found->second);
  const LeaseId lease = found->second.lease;
  processes_.erase(found);
  Program* program = lease ? program_of(lease) : nullptr;
  if (program == nullptr || !program->lives) return;
  program->lives = std::any_of(processes_.begin(), processes_.end(),
                               [lease](const auto& entry) { return entry.second.lease == lease; });
  if (!program->lives) program->ended_at = awake();
  if (!program->lives && ended_) ended_(lease);
}

void World::end_program(Program& program, std::optional<int> status, bool by_signal) {
  if (!program.lives) return;
  if (!program.exit_status) program.exit_status = status;
  program.by_signal = by_signal;
  std::vector<ProcessRef> all;
  for (const auto& [ref, process] : processes_) {
    if (process.lease == program.lease) all.push_back(ref);
  }
  for (const ProcessRef ref : all) end_process(ref);
}

// Kills a program by a foreign signal: the whole of it, or one of its processes.
void World::kill_some_program(Random& random) {
  std::vector<ProcessRef> all;
  for (const auto& [ref, process] : processes_) {
    if (process.lease) all.push_back(ref);
  }
  if (all.empty()) return;
  const ProcessRef one = random.pick(all);
  const LeaseId lease = processes_.at(one).lease;
  Program* program = program_of(lease);
  if (program == nullptr || random.chance(30)) return end_process(one);
  end_program(*program, 137, true);
}

void World::end_all() {
  std::vector<ProcessRef> all;
  for (const auto& [ref, process] : processes_) all.push_back(ref);
  for (const ProcessRef ref : all) end_process(ref);
  for (Card& card : cards_) card.ghosts = {};
}

bool World::inhabited(LeaseId lease) const {
  return std::ranges::any_of(processes_, [lease](const auto& entry) { return entry.second.lease == lease; });
}

Bytes World::held_by(LeaseId lease, std::size_t card) const {
  Bytes held;
  for (const auto& [ref, process] : processes_) {
    if (process.lease == lease) held += process.held[card];
  }
  return held;
}

Bytes World::kept_by(LeaseId lease, std::size_t card, Kept kept) const {
  Bytes sum;
  for (const auto& [ref, process] : processes_)
    if (process.lease == lease) sum += (process.*kept)[card];
  return sum;
}

Bytes World::parked_by(LeaseId lease, std::size_t card) const { return kept_by(lease, card, &Process::parked); }

Bytes World::put_away_by(LeaseId lease) const {
  Bytes sum;
  for (std::size_t card = 0; card < cards_.size(); ++card) sum += kept_by(lease, card, &Process::put_away);
  return sum;
}

bool World::quiet(LeaseId lease) const {
  return std::any_of(processes_.begin(), processes_.end(), [lease](const auto& entry) {
    return entry.second.lease == lease && (entry.second.state != gpu::ParkState::running || entry.second.rests);
  });
}

bool World::rests(LeaseId lease) const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [lease](const auto& entry) { return entry.second.lease == lease && entry.second.rests; });
}

bool World::waits_for_the_driver(LeaseId lease) const {
  return std::any_of(processes_.begin(), processes_.end(), [lease](const auto& entry) {
    return entry.second.lease == lease && entry.second.state != gpu::ParkState::running;
  });
}

void World::go_on_without(LeaseId lease) {
  for (auto& [ref, process] : processes_) {
    if (process.lease != lease) continue;
    process.rests = false;
    std::fill(process.put_away.begin(), process.put_away.end(), Bytes{});
  }
}

std::string World::why_full(std::size_t card) const {
  std::string text =
      fmt::format("card {} of {}, ghosts {}:", card, format_size(cards_[card].total), format_size(cards_[card].ghosts));
  for (const auto& [ref, process] : processes_) {
    if (process.held[card] > Bytes{}) {
      text +=
          fmt::format(" pid {} of {} holds {};", ref.pid, to_string(process.lease), format_size(process.held[card]));
    }
  }
  return text;
}

void World::let_work(Program& program, Random& random, bool over_use, std::optional<Bytes> entitled) {
  if (!program.lives || quiet(program.lease)) return;
  std::vector<Process*> its;
  for (auto& [ref, process] : processes_) {
    if (process.lease == program.lease && !process.unlisted) its.push_back(&process);
  }
  if (its.empty()) return;
  const std::size_t card = random.pick(program.cards);
  if (program.workers > 0 && random.chance(30)) return start_workers(program, card);
  if (its.size() < 3 && random.chance(10)) return fork(program);
  Process& process = *random.pick(its);
  if (random.chance(25)) {
    process.held[card] = Bytes{random.between(0, process.held[card].count)};
    return;
  }
  const Bytes held = held_by(program.lease, card);
  Bytes most = program.within - held;
  if (over_use) most += random.between(1, 4) * GiB;
  if (most <= Bytes{}) return;
  const Bytes more = random.chance(40) ? most : Bytes{random.between(1, most.count)};
  if (more <= room(card)) {
    process.held[card] += more;
    return;
  }
  // With ghosts about the driver itself keeps what it owes.
  verdict_.expect(!config_.honest || !entitled || held + more > *entitled || cards_[card].ghosts > Bytes{},
                  "out-of-memory", [&] {
                    return fmt::format("{} may use {} and holds {}, takes {} more, and there is no room: {}",
                                       to_string(program.lease), format_size(*entitled), format_size(held),
                                       format_size(more), why_full(card));
                  });
}

void World::take_all(const Program& program) {
  Process& process = processes_.at(program.main);
  for (const std::size_t card : program.cards)
    process.held[card] += std::clamp(program.within - held_by(program.lease, card), Bytes{}, room(card));
}

// ------------------------------------------------------------------------------------------------ parking

std::vector<Process*> World::processes_of(LeaseId lease) {
  std::vector<Process*> found;
  for (auto& [ref, process] : processes_) {
    if (process.lease == lease) found.push_back(&process);
  }
  return found;
}

void World::lock(ProcessRef process) { processes_.at(process).state = gpu::ParkState::locked; }
void World::unlock(ProcessRef process) { processes_.at(process).state = gpu::ParkState::running; }
void World::fail(ProcessRef process) { processes_.at(process).state = gpu::ParkState::failed; }

void World::checkpoint(ProcessRef process, int percent) {
  processes_.at(process).state = gpu::ParkState::checkpointed;
  move_out(processes_.at(process), percent, &Process::parked);
}

void World::put_away(LeaseId lease, int percent) {
  for (Process* process : processes_of(lease)) {
    process->rests = true;
    move_out(*process, percent, &Process::put_away);
  }
}

void World::move_out(Process& process, int percent, Kept kept) {
  process.kept = config_.keeps_from_swap() && !ram_.may_swap(process.group, false);
  for (std::size_t card = 0; card < cards_.size(); ++card) {
    const Bytes movable = std::max(process.held[card] - residue, Bytes{});
    const Bytes moved{movable.count / 100 * percent};
    const Bytes all = percent == 100 ? movable : moved;
    process.held[card] -= all;
    (process.*kept)[card] += all;
  }
}

void World::grab_again(LeaseId lease, Random& random) {
  const Program* program = program_of(lease);
  for (auto& [ref, process] : processes_) {
    if (process.lease != lease) continue;
    const bool own = program != nullptr && !program->cards.empty() && random.chance(80);
    const std::size_t card = own ? program->cards[random.below(program->cards.size())] : random.below(cards_.size());
    process.unlisted = false;
    process.held[card] += std::clamp(random.between(1, 4) * GiB, Bytes{}, std::max(room(card), Bytes{}));
    return;
  }
}

bool World::halved(LeaseId lease) const {
  return std::any_of(processes_.begin(), processes_.end(), [&](const auto& entry) {
    const Process& process = entry.second;
    if (process.lease != lease || process.state != gpu::ParkState::checkpointed) return false;
    int cards = 0;
    for (std::size_t card = 0; card < cards_.size(); ++card)
      cards += process.parked[card] > Bytes{} && process.held[card] > residue;
    return cards > 1;
  });
}

void World::begin_restore(ProcessRef ref) {
  const auto found = processes_.find(ref);
  if (found == processes_.end() || found->second.state != gpu::ParkState::checkpointed) return;
  Process& process = found->second;
  process.arriving.clear();
  for (std::size_t card = 0; card < cards_.size(); ++card)
    if (process.parked[card] > room(card) || cards_[card].lost) return;
  process.arriving = process.parked;
}

void World::end_restore(ProcessRef ref) {
  if (const auto found = processes_.find(ref); found != processes_.end()) found->second.arriving.clear();
}

World::Restored World::restore(ProcessRef ref) {
  Process& process = processes_.at(ref);
  if (!has_room({&process}, &Process::parked)) {
    for (std::size_t card = 0; card < cards_.size(); ++card)
      if (process.parked[card] > Bytes{} && (cards_[card].lost || cards_[card].ghosts > Bytes{}))
        return Restored::not_now;
    return Restored::never;
  }
  move_in(process, &Process::parked);
  process.state = gpu::ParkState::locked;
  return Restored::done;
}

bool World::take_back(LeaseId lease) {
  const std::vector<Process*> all = processes_of(lease);
  if (!has_room(all, &Process::put_away)) return false;
  for (Process* process : all) {
    move_in(*process, &Process::put_away);
    process->rests = false;
  }
  return true;
}

bool World::has_room(const std::vector<Process*>& processes, Kept kept) {
  for (std::size_t card = 0; card < cards_.size(); ++card) {
    Bytes needed;
    for (const Process* process : processes) needed += (process->*kept)[card];
    if (needed > Bytes{} && (needed > room(card) || cards_[card].lost)) {
      verdict_.expect(!config_.honest || cards_[card].ghosts > Bytes{}, "restore-without-memory", [&] {
        return fmt::format("{} is to get {} back: {}", to_string(processes.front()->lease), format_size(needed),
                           why_full(card));
      });
      return false;
    }
  }
  return true;
}

void World::move_in(Process& process, Kept kept) {
  process.unlisted = false;
  process.swapped = {};
  process.kept = false;
  for (std::size_t card = 0; card < cards_.size(); ++card)
    process.held[card] += std::exchange((process.*kept)[card], Bytes{});
}

bool World::took_again(LeaseId lease) const {
  return std::any_of(processes_.begin(), processes_.end(), [&](const auto& entry) {
    const Process& process = entry.second;
    return process.lease == lease && process.state == gpu::ParkState::running && !process.rests &&
           std::ranges::any_of(process.held, [](Bytes held) { return held > residue; });
  });
}

bool World::crowds_itself(LeaseId lease) const {
  std::vector<Bytes> held(cards_.size()), parked(cards_.size()), own(cards_.size());
  for (const auto& [ref, process] : processes_) {
    if (process.lease != lease) continue;
    for (std::size_t card = 0; card < cards_.size(); ++card) {
      held[card] += std::max(process.held[card] - residue, Bytes{});
      parked[card] += process.parked[card] + process.put_away[card];
      if (process.state == gpu::ParkState::checkpointed) own[card] += of_any_program;
    }
  }
  for (std::size_t card = 0; card < cards_.size(); ++card) {
    // Where some is left there, how much is parked may be known from host memory alone, which they also have for
    // themselves.
    if (held[card] > Bytes{}) parked[card] += own[card];
    if (held[card] + parked[card] > cards_[card].total - config_.driver_reserved - gpu::ballast_margin) return true;
  }
  return false;
}

// ------------------------------------------------------------------------------------------------ cards

Bytes World::room(std::size_t card) const {
  Bytes used = cards_[card].ghosts + config_.driver_reserved;
  for (const auto& [ref, process] : processes_)
    used += process.held[card] + (process.arriving.empty() ? Bytes{} : process.arriving[card]);
  return cards_[card].total - used;
}

Bytes World::total_parked() const {
  Bytes parked;
  for (const auto& [ref, process] : processes_) {
    for (const Bytes bytes : process.parked) parked += bytes;
    for (const Bytes bytes : process.put_away) parked += bytes;
  }
  return parked;
}

void World::heal() {
  for (Card& card : cards_) card.lost = false, card.ghosts = {};
  ram_.relax();
  list_all();
}

// A parked process is on no list. A process that the driver only calls parked is listed.
bool World::put_aside(const Process& process) {
  return process.state == gpu::ParkState::checkpointed &&
         std::ranges::all_of(process.held, [](Bytes bytes) { return bytes <= residue; });
}

gpu::GpuSnapshot World::read(std::int64_t began_ns) {
  gpu::GpuSnapshot snapshot;
  unseen_.clear();
  for (auto& [ref, process] : processes_)
    if (!process.unlisted) process.seen = process.held;
  snapshot.began_ns = snapshot.ended_ns = began_ns;
  snapshot.devices.reserve(cards_.size());
  for (std::size_t card = 0; card < cards_.size(); ++card) {
    if (cards_[card].lost) continue;
    gpu::GpuDevice& device = snapshot.devices.emplace_back();
    device.uuid = uuid_of(card);
    device.name = "Simulated Card";
    device.index = static_cast<int>(card);
    device.simulated = true;
    device.total = cards_[card].total;
    device.driver_reserved = config_.driver_reserved;
    device.used = cards_[card].total - config_.driver_reserved - room(card);
    for (const auto& [ref, process] : processes_) {
      if (process.held[card] <= Bytes{} || put_aside(process)) continue;
      if (process.unlisted) unseen_[{process.lease, card}] += process.held[card];
      else device.processes.push_back({.process = ref, .used = process.held[card]});
    }
  }
  return snapshot;
}

}  // namespace sublet::sim
