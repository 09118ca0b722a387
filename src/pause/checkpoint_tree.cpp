// SPDX-License-Identifier: Apache-2.0
#include "pause/checkpoint_tree.h"

#include "base/mutants.h"
#include "pause/run_parallel.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <limits>
#include <ranges>

namespace sublet::pause {
namespace {

namespace asio = boost::asio;
using gpu::CheckpointCall;
using gpu::CheckpointRefusal;
using gpu::ParkState;
using Kind = ParkOutcome::Kind;
using Code = core::ObstacleCode;
constexpr auto quiet = asio::as_tuple(asio::use_awaitable);

constexpr std::size_t most_at_once = 16;  // parallel calls of an order; each has its own process
// Rounds of listing new processes while the others are locked.
constexpr int most_rounds = 3;
constexpr int most_tries = 3;                                  // tries of a step back whose helper ended
constexpr Duration answers_within = std::chrono::seconds(10);  // timeout of a question about the state

std::chrono::milliseconds to_lock_timeout(Duration d) {
  using std::chrono::milliseconds;
  return std::clamp(std::chrono::duration_cast<milliseconds>(d), milliseconds(1), milliseconds(3'600'000));
}

// A refusal of a helper is an obstacle of the same word.
Code obstacle_of(CheckpointRefusal refusal) {
  return core::parse_obstacle(to_string(refusal)).value_or(Code::internal);
}

}  // namespace

// --- a single process

asio::awaitable<CheckpointHelper::Answer> CheckpointTree::ask(Member& member, CheckpointCall call, Ballast ballast) {
  gpu::CheckpointCommand command{.call = call, .ballast = std::move(ballast)};
  Duration patience = give_up_;
  command.vouched = program_.vouched;
  command.devices = program_.devices;
  if (call == CheckpointCall::lock) {
    command.timeout = to_lock_timeout(options_.lock_timeout);
    patience += command.timeout;
  }
  return member.helper->ask(std::move(command), patience);
}

// For calls that change nothing and need not wait. If the helper ends during the call, a new helper may succeed.
asio::awaitable<CheckpointHelper::Answer> CheckpointTree::ask_twice(Member& member, CheckpointCall call) {
  const gpu::CheckpointCommand command{.call = call, .vouched = program_.vouched, .devices = program_.devices};
  const bool first = call == CheckpointCall::preflight && members_.empty();  // no process is locked meanwhile
  const Duration patience = first ? give_up_ : std::min(give_up_, answers_within);
  Answer answer = co_await member.helper->ask(command, patience);
  if (answer.kind == Answer::Kind::lost && !answer.denied) answer = co_await member.helper->ask(command, patience);
  co_return answer;
}

CheckpointTree::Trouble CheckpointTree::no_answer(const Member& member, const Answer& answer) {
  if (answer.kind == Answer::Kind::lost) return {answer.denied ? Code::no_right : Code::helper, answer.problem};
  return {Code::stuck, fmt::format("the driver did not return from the {} of process {}",
                                   to_string(member.helper->last_call()), member.process.pid)};
}

// Checks whether the process shares memory (NCCL, CUDA IPC) with a locked process. The driver blocks all calls for such
// a process until the locked one is unlocked, and then carries them out. A lock would come late, and would block the
// first process. So the driver is asked for the state first, which changes nothing. No order parks processes that share
// memory.
asio::awaitable<CheckpointTree::Trouble> CheckpointTree::check_shared_memory(Member& member) {
  const Answer answer = co_await ask_twice(member, CheckpointCall::state);
  if (answer.kind == Answer::Kind::stuck) co_return tied(member);
  co_return answer.kind == Answer::Kind::replied ? Trouble{} : no_answer(member, answer);
}

CheckpointTree::Trouble CheckpointTree::tied(const Member& member) const {
  return {Code::shared_memory,
          fmt::format("the driver did not answer for process {} while process {} was locked, so the "
                      "two may share memory (NCCL, CUDA IPC)",
                      member.process.pid, members_.front().process.pid)};
}

asio::awaitable<CheckpointTree::Trouble> CheckpointTree::preflight(Member& member) {
  const Answer answer = co_await ask_twice(member, CheckpointCall::preflight);
  const auto refusal = answer.reply.refusal;
  // A process that may not be traced was not changed by this order. A wrong state is left from an earlier order. A
  // process whose helper hangs must return first.
  member.doubted = answer.kind == Answer::Kind::stuck || refusal == CheckpointRefusal::wrong_state;
  if (answer.kind == Answer::Kind::stuck && !members_.empty()) co_return tied(member);
  if (answer.kind != Answer::Kind::replied) co_return no_answer(member, answer);
  member.state = answer.reply.state;
  member.gone = refusal == CheckpointRefusal::gone || refusal == CheckpointRefusal::no_cuda;
  // At once, because a tree may have more processes than the limit of helpers.
  if (member.gone) helpers_.drop(member.process);
  if (member.gone || refusal == CheckpointRefusal::none) co_return Trouble{};
  co_return Trouble{obstacle_of(refusal), answer.reply.detail};
}

asio::awaitable<CheckpointTree::Trouble> CheckpointTree::look(Member& member) {
  const Answer answer = co_await ask_twice(member, CheckpointCall::state);
  if (answer.kind != Answer::Kind::replied) co_return no_answer(member, answer);
  const gpu::CheckpointReply& reply = answer.reply;
  const auto code = static_cast<gpu::CudaCode>(reply.code);
  if (reply.ok()) {
    member.state = reply.state;
    co_return Trouble{};
  }
  const bool no_cuda = reply.refusal == CheckpointRefusal::driver &&
                       (code == gpu::CudaCode::not_initialized || code == gpu::CudaCode::invalid_value);
  member.gone = reply.refusal == CheckpointRefusal::gone || no_cuda;
  if (member.gone) helpers_.drop(member.process);
  // The helper cannot ask for the state while the process is stopped, but the process was left running.
  const bool runs = reply.refusal == CheckpointRefusal::stopped && member.state == ParkState::running;
  if (member.gone || runs) co_return Trouble{};
  co_return Trouble{obstacle_of(reply.refusal), reply.detail};
}

// Makes a step. Only the resulting state counts, whoever caused it. A process that is gone is no failure.
asio::awaitable<CheckpointTree::Trouble> CheckpointTree::move(Member& member, CheckpointCall call, ParkState wanted,
                                                              Ballast ballast) {
  const ParkState before = std::exchange(member.state, ParkState::unknown);
  const Answer answer = co_await ask(member, call, std::move(ballast));
  if (answer.kind == Answer::Kind::stuck) co_return no_answer(member, answer);
  if (answer.kind == Answer::Kind::lost) {
    // The driver may have carried out the call although the helper ended.
    if (Trouble trouble = co_await look(member)) co_return trouble;
    if (member.gone || member.state == wanted) co_return Trouble{};
    co_return Trouble{Code::helper, fmt::format("{}, during {}", answer.problem, to_string(call))};
  }
  const gpu::CheckpointReply& reply = answer.reply;
  const bool no_call = reply.code == 0 && reply.name.empty();
  member.state = reply.state == ParkState::unknown && no_call ? before : reply.state;
  member.gone = reply.refusal == CheckpointRefusal::gone;
  if (member.gone || member.state == wanted) co_return Trouble{};
  const Trouble trouble{obstacle_of(reply.refusal), reply.detail};
  // The driver also fails a call whose process is just ending.
  if (reply.final || member.state == ParkState::unknown) {
    if (Trouble worse = co_await look(member)) co_return worse;
    if (member.gone || member.state == wanted) co_return Trouble{};
  }
  co_return trouble;
}

// Makes a step back. Repeats it if a helper ended, because no process may stay parked for that reason.
asio::awaitable<CheckpointTree::Trouble> CheckpointTree::move_back(Member& member, CheckpointCall call,
                                                                   ParkState wanted, Ballast ballast) {
  const ParkState from = member.state;
  Trouble trouble;
  for (int tries = 0; tries < most_tries; ++tries) {
    trouble = co_await move(member, call, wanted, ballast);
    if (trouble.code != Code::helper || !member.is(from)) break;
  }
  co_return trouble;
}

// Returns the host memory of the process. Unset: not known.
std::optional<Bytes> CheckpointTree::resident(const Member& member) const {
  const Bytes bytes = options_.resident(member.process);
  return bytes > Bytes{} ? std::optional(bytes) : std::nullopt;
}

// Locks the process. The host memory is read after the state is known, even if another helper reported the state.
asio::awaitable<CheckpointTree::Trouble> CheckpointTree::lock(Member& member) {
  Trouble trouble = co_await move(member, CheckpointCall::lock, ParkState::locked);
  if (member.is(ParkState::locked)) member.before = resident(member);
  co_return trouble;
}

asio::awaitable<CheckpointTree::Trouble> CheckpointTree::checkpoint(Member& member) {
  Trouble trouble = co_await move(member, CheckpointCall::checkpoint, ParkState::checkpointed);
  if (member.is(ParkState::checkpointed)) {
    member.after = resident(member);
    member.helper->rest();  // the process stays checkpointed without a helper
  }
  co_return trouble;
}

asio::awaitable<CheckpointTree::Trouble> CheckpointTree::restore(Member& member) {
  return move_back(member, CheckpointCall::restore, ParkState::locked);
}

// --- all processes

CheckpointTree::Members CheckpointTree::members_of(std::vector<ProcessRef> tree) {
  std::ranges::sort(tree, {}, [](const ProcessRef& p) { return std::pair(p.start_ticks, p.pid); });
  Members members;
  for (const ProcessRef& process : tree) members.push_back({.process = process, .helper = helpers_.get(process)});
  return members;
}

std::vector<CheckpointTree::Member*> CheckpointTree::all(ParkState state) {
  std::vector<Member*> found;
  for (Member& member : members_) {
    if (member.is(state)) found.push_back(&member);
  }
  return found;
}

// Makes a step for all members in parallel and waits for all of them, also after a failure. Returns the failure of the
// first member in order. On the way to parked, a stuck call ends the step, so that at most one stuck call is waited
// for. On the way back, all other members are resumed in any case.
asio::awaitable<CheckpointTree::Trouble> CheckpointTree::at_once(std::vector<Member*> members, Step step) {
  const bool there = step == &CheckpointTree::preflight || step == &CheckpointTree::checkpoint;
  bool stuck = false;
  std::vector<Trouble> troubles(members.size());
  co_await run_parallel(io_, members.size(), most_at_once, [&](std::size_t i) -> asio::awaitable<void> {
    if (stuck && there) co_return;
    troubles[i] = co_await (this->*step)(*members[i]);
    stuck |= troubles[i].code == Code::stuck;
  });
  for (Trouble& trouble : troubles) {
    if (trouble) co_return std::move(trouble);
  }
  co_return Trouble{};
}

// Adds processes that are new, use CUDA and can be parked. If one cannot be parked, only processes that may not be
// running stay members, because the others were not changed.
asio::awaitable<CheckpointTree::Trouble> CheckpointTree::join(std::vector<ProcessRef> tree, bool& joined) {
  std::erase_if(tree, [&](const ProcessRef& process) {
    return aside_.contains(process) || std::ranges::find(members_, process, &Member::process) != members_.end();
  });
  Members fresh = members_of(std::move(tree));
  std::vector<Member*> asked;
  for (Member& member : fresh) asked.push_back(&member);
  Trouble trouble = co_await at_once(std::move(asked), &CheckpointTree::preflight);
  joined = false;
  const bool first = members_.empty();
  for (Member& member : fresh) {
    if (member.gone) {
      aside_.insert(member.process);
    } else if (!trouble) {
      members_.push_back(std::move(member));
      joined = true;
    } else if (first && member.doubted) {
      members_.push_back(std::move(member));
    } else {
      member.helper->rest();
    }
  }
  co_return trouble;
}

// Asks the engine about all members: whether they may be locked, or why they may not be parked. Unset: no answer in
// time, because a disk or a device may take minutes.
template <typename Said>
asio::awaitable<std::optional<Said>> CheckpointTree::asked(
    const std::function<void(std::vector<ProcessRef>, std::function<void(Said)>)>& whom) {
  struct Asked {
    explicit Asked(asio::io_context& io) : wake(io) { wake.expires_at(asio::steady_timer::time_point::max()); }
    asio::steady_timer wake;
    std::optional<Said> answer;
    bool late = false;
  };
  const auto question = std::make_shared<Asked>(io_);
  std::vector<ProcessRef> all;
  for (const Member& member : members_) {
    if (!member.gone) all.push_back(member.process);
  }
  whom(std::move(all), [question](Said said) {
    question->answer = std::move(said);
    question->wake.cancel();
  });
  const std::unique_ptr<machine::Alarm> deadline =
      options_.alarm ? options_.alarm() : std::make_unique<machine::LoopAlarm>(io_);
  deadline->set(options_.said_within, [question] {
    question->late = true;
    question->wake.cancel();
  });
  while (!question->answer && !question->late) co_await question->wake.async_wait(quiet);
  deadline->cancel();
  co_return question->answer;
}

CheckpointTree::Trouble CheckpointTree::measure_timeout(std::string_view what) const {
  return {Code::measure_timeout, fmt::format("{} within {}", what, format_duration(options_.said_within))};
}

asio::awaitable<CheckpointTree::Trouble> CheckpointTree::lock_all(const Parker::List& list,
                                                                  const Parker::Touch& touch) {
  std::size_t next = 0;
  for (int round = 0; round < most_rounds; ++round) {
    const std::optional<bool> may = co_await asked<bool>(touch);
    if (!may) co_return measure_timeout("the list of processes to lock was not stored");
    if (!*may) co_return Trouble{Code::withdrawn, "the order was withdrawn"};
    for (; next < members_.size(); ++next) {
      if (next > 0) {
        if (Trouble tied = co_await check_shared_memory(members_[next])) co_return tied;
      }
      if (Trouble trouble = co_await lock(members_[next])) co_return trouble;
    }
    bool joined = false;
    if (Trouble trouble = co_await join(list(), joined)) co_return trouble;
    if (!joined) co_return Trouble{};
  }
  co_return Trouble{Code::tree_changing, fmt::format("process {} and others started while the program was being locked",
                                                     members_.back().process.pid)};
}

// Checks whether the ballast fits, and frees it again before any restore. A single process takes ballast inside its
// restore. Several processes are restored in parallel, and none would find memory that another helper holds. An
// unleased process may take memory in between; then a restore fails for good (0019).
asio::awaitable<CheckpointTree::Trouble> CheckpointTree::try_room(Member& member, Ballast ballast) {
  Answer answer = co_await ask(member, CheckpointCall::hold, std::move(ballast));
  if (answer.kind == Answer::Kind::replied && answer.reply.ok()) {
    answer = co_await ask(member, CheckpointCall::hold);
  }
  if (answer.kind != Answer::Kind::replied) co_return no_answer(member, answer);
  if (answer.reply.ok()) co_return Trouble{};
  co_return Trouble{obstacle_of(answer.reply.refusal), answer.reply.detail};
}

// Returns the ballast for the restore of `parked`. Bytes known for other processes are not needed: a half parked lease
// still holds them, a late process holds its own, and a process that is gone gets nothing back. The unknown bytes of
// parked processes are at most the rest. If some bytes are still on the device, or all could never be free there, the
// unknown bytes are at most their host memory. A driver that left bytes on several devices is not detected.
CheckpointTree::Ballast CheckpointTree::ballast_for(const std::vector<Member*>& parked,
                                                    const std::vector<Room>& room) const {
  const bool all = parked.size() == static_cast<std::size_t>(std::ranges::count(members_, false, &Member::gone));
  constexpr Bytes unknown{std::numeric_limits<std::int64_t>::max()};
  const Bytes host = room.empty() ? unknown : on_host(parked).value_or(unknown);
  Ballast ballast;
  for (const Room& needed : room) {
    Bytes bytes, rest = needed.all;
    std::size_t known = 0;
    for (const auto& [process, its] : needed.of) {
      if (std::ranges::find(parked, process, &Member::process) == parked.end()) rest -= its;
      else bytes += its, ++known;
    }
    if (all || known < parked.size()) bytes = std::max(bytes, rest);
    if (needed.holds || bytes > needed.most.value_or(unknown)) bytes = std::min(bytes, host);
    ballast.push_back({needed.uuid, std::min(bytes, needed.all), needed.margin});
  }
  if (mutant(Mutant::room_is_not_made_sure_of)) ballast.clear();
  std::erase_if(ballast, [](const gpu::BallastWish& wish) { return wish.bytes <= Bytes{}; });
  return ballast;
}

// Returns the host memory of the members, parked bytes included. Unset: not known.
std::optional<Bytes> CheckpointTree::on_host(const std::vector<Member*>& parked) const {
  Bytes sum;
  for (const Member* member : parked) {
    const auto its = resident(*member);
    if (!its) return std::nullopt;
    sum += *its;
  }
  return sum;
}

asio::awaitable<CheckpointTree::Trouble> CheckpointTree::restore_all(const std::vector<Room>& room) {
  std::vector<Member*> parked = all(ParkState::checkpointed);
  std::erase_if(parked, [](const Member* member) { return member->helper->failed_for_good(); });
  if (parked.empty()) co_return Trouble{};
  Ballast ballast = ballast_for(parked, room);
  if (parked.size() == 1) {
    co_return co_await move_back(*parked[0], CheckpointCall::restore, ParkState::locked, std::move(ballast));
  }
  if (!ballast.empty()) {
    if (Trouble trouble = co_await try_room(*parked[0], std::move(ballast))) co_return trouble;
  }
  co_return co_await at_once(std::move(parked), &CheckpointTree::restore);
}

// Unlocks children before their parents. A failure does not stop the others.
asio::awaitable<CheckpointTree::Trouble> CheckpointTree::unlock_all() {
  Trouble first;
  for (Member* member : std::views::reverse(all(ParkState::locked))) {
    Trouble trouble = co_await move_back(*member, CheckpointCall::unlock, ParkState::running);
    if (!first) first = std::move(trouble);
  }
  co_return first;
}

// --- the orders

asio::awaitable<ParkOutcome> CheckpointTree::park(Parker::Program program, Duration give_up, Parker::List list,
                                                  Parker::Touch touch, Parker::Weigh weigh) {
  program_ = program;
  give_up_ = give_up;
  members_.clear();
  aside_.clear();
  std::vector<ProcessRef> tree = list();
  helpers_.keep_only(tree);
  bool joined = false;
  if (Trouble trouble = co_await join(std::move(tree), joined)) co_return outcome(Kind::undone, std::move(trouble));
  if (!joined) co_return outcome(Kind::undone, {Code::no_cuda, "no process of the program uses CUDA"});
  if (Trouble trouble = co_await lock_all(list, touch)) co_return co_await undo(std::move(trouble));
  const std::optional<std::string> why_not = co_await asked<std::string>(weigh);
  if (!why_not)
    co_return co_await undo(measure_timeout("the memory of the locked processes was not measured and stored"));
  if (!why_not->empty()) {
    Trouble outgrown{Code::host_memory, *why_not};
    co_return co_await undo(std::move(outgrown));
  }
  std::vector<Member*> locked = all(ParkState::locked);
  if (Trouble trouble = co_await at_once(std::move(locked), &CheckpointTree::checkpoint)) {
    co_return co_await undo(std::move(trouble));
  }
  co_return outcome(Kind::done);
}

asio::awaitable<ParkOutcome> CheckpointTree::unpark(std::vector<ProcessRef> tree, std::vector<Room> room,
                                                    Duration give_up) {
  give_up_ = give_up;
  if (members_.empty()) members_ = members_of(std::move(tree));
  std::vector<Member*> asked;
  for (Member& member : members_) {
    if (!member.gone && member.state != ParkState::running) asked.push_back(&member);
  }
  Trouble trouble = co_await at_once(std::move(asked), &CheckpointTree::look);
  ParkOutcome back = co_await bring_back(std::move(trouble), room);
  if (back.kind == Kind::done) let_go();
  co_return back;
}

// `before`: an earlier failure.
asio::awaitable<ParkOutcome> CheckpointTree::bring_back(Trouble before, const std::vector<Room>& room) {
  Trouble restoring = co_await restore_all(room);
  Trouble unlocking = co_await unlock_all();
  const Trouble why = before ? std::move(before) : restoring ? std::move(restoring) : std::move(unlocking);
  const Member* lost = nullptr;
  for (const Member& member : members_) {
    if (member.lost_for_good()) lost = &member;
    else if (!member.gone && member.state != ParkState::running) {
      co_return outcome(Kind::unknown, why ? why : Trouble{Code::driver, "its state is unknown"});
    }
  }
  if (lost == nullptr) co_return outcome(Kind::done);
  co_return outcome(Kind::final, {Code::failed, fmt::format("the driver can never restore process {}{}{}",
                                                            lost->process.pid, why ? ": " : "", why.detail)});
}

// Unlocks all members. Does nothing while a call hangs: the later unpark handles all members at once. Restores no
// member, because the memory may be taken; unpark makes sure of it.
asio::awaitable<ParkOutcome> CheckpointTree::undo(Trouble trouble) {
  if (trouble.code == Code::stuck) co_return outcome(Kind::unknown, std::move(trouble));
  if (mutant(Mutant::undone_by_halves)) co_return outcome(Kind::undone, std::move(trouble));
  Trouble left = co_await at_once(all(ParkState::unknown), &CheckpointTree::look);
  if (Trouble unlocking = co_await unlock_all(); !left) left = std::move(unlocking);
  const auto stays = [](const Member& member) { return !member.gone && member.state != ParkState::running; };
  if (const auto found = std::ranges::find_if(members_, stays); found != members_.end()) {
    if (!left) left.detail = fmt::format("process {} is {}", found->process.pid, to_string(found->state));
    trouble.detail = fmt::format("{}; not undone yet: {}", trouble.detail, left.detail);
    co_return outcome(Kind::unknown, std::move(trouble));
  }
  let_go();
  co_return outcome(Kind::undone, std::move(trouble));
}

// All members run or are gone. The next order finds the members again.
void CheckpointTree::let_go() {
  for (const Member& member : members_) {
    if (member.gone) helpers_.drop(member.process);
    else member.helper->rest();
  }
  members_.clear();
}

ParkOutcome CheckpointTree::outcome(Kind kind, Trouble trouble) const {
  ParkOutcome outcome{.kind = kind, .code = trouble.code, .detail = std::move(trouble.detail)};
  Bytes grew;
  bool measured = true;
  for (const Member& member : members_) {
    if (!member.is(ParkState::checkpointed)) continue;
    outcome.parked.push_back(member.process);
    if (member.before && member.after) grew += std::max(*member.after - *member.before, Bytes{});
    else measured = false;
  }
  if (measured && !outcome.parked.empty()) outcome.host_bytes = grew;
  return outcome;
}

}  // namespace sublet::pause
