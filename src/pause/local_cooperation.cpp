// SPDX-License-Identifier: Apache-2.0
#include "pause/local_cooperation.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "pause/answer_file.h"
#include "pause/deadline.h"
#include "pause/webhook.h"
#include "proc/host_memory.h"

#include <fmt/format.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <nlohmann/json.hpp>

#include <array>
#include <map>
#include <utility>

namespace sublet::pause {
namespace {

namespace asio = boost::asio;
using Kind = YieldOrder::Kind;
using core::CooperationWay;

// A call may take this much longer than its waiter waits, so that the waiter gives up first, with a reason.
constexpr Duration call_over = std::chrono::seconds(1);
// The last resume order for a program whose lease has ended: time for each try, number of tries, and pause between
// them.
constexpr Duration last_word = std::chrono::seconds(10);
constexpr int most_last_words = 4;
constexpr Duration next_last_word = std::chrono::seconds(2);

constexpr std::array<std::pair<YieldAnswer, std::string_view>, 3> answers{{
    {YieldAnswer::yielded, "yielded"},
    {YieldAnswer::refused, "refused"},
    {YieldAnswer::resumed, "resumed"},
}};

bool fits(Kind order, YieldAnswer answer) { return (order == Kind::resume) == (answer == YieldAnswer::resumed); }

ParkOutcome failed(core::ObstacleCode code, std::string detail) {
  ParkOutcome outcome;
  outcome.code = code;
  outcome.detail = std::move(detail);
  return outcome;
}

}  // namespace

std::string_view to_string(Kind kind) {
  switch (kind) {
    case Kind::none: return "none";
    case Kind::yield: return "yield";
    case Kind::resume: return "resume";
  }
  return "none";
}

std::string_view to_string(YieldAnswer answer) {
  for (const auto& [known, name] : answers)
    if (known == answer) return name;
  return "unknown";
}

std::optional<YieldAnswer> parse_yield_answer(std::string_view text) {
  for (const auto& [known, name] : answers)
    if (name == text) return known;
  return std::nullopt;
}

struct LocalCooperation::State : std::enable_shared_from_this<State> {
  struct Entry {
    explicit Entry(asio::io_context& io) : look(io), again(io) {}
    core::Cooperation how;
    std::uint32_t uid = 0;
    YieldOrder order;
    bool answered = true;
    bool untold = false;  // the yield order certainly did not reach the program, so it needs no resume order
    YieldAnswer answer = YieldAnswer::resumed;
    Done done;          // receives the outcome of the order
    Deadline deadline;  // deadline of `done`; each look checks the process, the answer file and the time
    bool owed = false;  // the program was told to yield, and got no resume order since
    std::optional<core::Lease> ended{};  // the lease after its end, perhaps not yet durable
    bool let_go = false;                 // the end is durable
    int last_words = 0;
    std::map<ProcessRef, Bytes> before;
    asio::steady_timer look, again;
    bool yields() const { return order.kind == Kind::yield && !answered; }
  };

  State(asio::io_context& i, machine::Programs& p, std::string a) : io(i), programs(p), answers_dir(std::move(a)) {}

  void begin(const core::Lease& lease, Kind kind, const std::string& reason, Duration at_most, Done done);
  void tell(LeaseId lease, Entry& entry);
  void call(LeaseId lease, const Entry& entry);
  void called(LeaseId lease, std::uint64_t number, const WebhookReply& reply);
  void look_later(LeaseId lease, Entry& entry);
  void look(LeaseId lease, std::uint64_t number);
  void take(LeaseId lease, Entry& entry, YieldAnswer answer, const std::string& detail);
  void finish(Entry& entry, ParkOutcome outcome);
  void later(void (State::*what)(LeaseId), LeaseId lease);
  void say_last_word(LeaseId lease);
  void end(LeaseId lease);
  void could_not(LeaseId lease, std::uint64_t number, const machine::SignalResult& what);
  ParkOutcome yielded(LeaseId lease, const Entry& entry) const;
  std::string name_of(const Entry& entry) const;
  std::string file_of(LeaseId lease, std::uint32_t uid) const { return answer_path(answers_dir, lease, uid); }
  Entry* find(LeaseId lease, std::uint64_t number);
  bool lives(ProcessRef process) const { return programs.lives(process); }
  bool may_live(const core::Lease& ended) const;
  std::vector<ProcessRef> members(LeaseId lease) const;

  asio::io_context& io;
  machine::Programs& programs;
  const std::string answers_dir;
  std::uint64_t last = 0;
  Events events;
  std::map<LeaseId, Entry> entries;
};

LocalCooperation::State::Entry* LocalCooperation::State::find(LeaseId lease, std::uint64_t number) {
  const auto found = entries.find(lease);
  return found == entries.end() || found->second.order.number != number ? nullptr : &found->second;
}

std::string LocalCooperation::State::name_of(const Entry& entry) const {
  if (entry.how.way == CooperationWay::webhook) return entry.how.address;
  return fmt::format("process {}", entry.how.process.pid);
}

std::vector<ProcessRef> LocalCooperation::State::members(LeaseId lease) const {
  programs.scan();
  return programs.tree(lease);
}

// Whether the program may get a resume order, and is not being ended.
bool LocalCooperation::State::may_live(const core::Lease& ended) const {
  if (ended.stop_requested) return false;
  if (ended.cooperation->process) return lives(ended.cooperation->process);
  return ended.owner.kind != core::OwnerKind::process || programs.inhabited(ended.id);
}

// --- giving orders

void LocalCooperation::State::begin(const core::Lease& lease, Kind kind, const std::string& reason, Duration at_most,
                                    Done done) {
  const auto [at, fresh] = entries.try_emplace(lease.id, io);
  Entry& entry = at->second;
  entry.uid = lease.uid;
  // A resume order goes the way of the order to yield, unless its process has ended, even if the lease has a new way.
  const bool never_told = fresh || entry.order.number == 0;
  if (lease.cooperation && (kind == Kind::yield || never_told || !lives(entry.how.process)))
    entry.how = *lease.cooperation;
  entry.deadline = Deadline(monotonic_ns(), at_most);
  entry.done = std::move(done);
  if (kind == Kind::resume && entry.order.kind == Kind::resume && !entry.answered) {  // the order was given already
    look_later(lease.id, entry);
    if (entry.how.way != CooperationWay::poll) tell(lease.id, entry);
    return;
  }
  if (kind == Kind::resume && entry.untold) {
    return asio::post(io, [weak = weak_from_this(), id = lease.id] {
      const auto self = weak.lock();
      if (!self) return;
      const auto found = self->entries.find(id);
      ParkOutcome runs;
      runs.kind = ParkOutcome::Kind::done;
      if (found != self->entries.end()) self->finish(found->second, runs);
    });
  }
  entry.untold = false;
  entry.owed = kind == Kind::yield;
  entry.order = {.kind = kind, .number = ++last, .deadline_ns = entry.deadline.until_ns(), .reason = reason};
  entry.answered = false;
  if (kind == Kind::yield) {
    entry.before.clear();
    for (const ProcessRef process : members(lease.id)) {
      if (const auto bytes = proc::resident_bytes(programs.root(), process)) entry.before.emplace(process, *bytes);
    }
  }
  look_later(lease.id, entry);
  tell(lease.id, entry);
}

void LocalCooperation::State::tell(LeaseId lease, Entry& entry) {
  const std::uint64_t number = entry.order.number;
  switch (entry.how.way) {
    case CooperationWay::poll: return events.told(lease);
    case CooperationWay::webhook: return call(lease, entry);
    case CooperationWay::signal: {
      remove_answer(file_of(lease, entry.uid));  // the file's next content answers the new order
      const bool yields = entry.order.kind == Kind::yield;
      programs.tell(lease, entry.how.process, yields ? entry.how.pause_signal : entry.how.resume_signal,
                    [weak = weak_from_this(), lease, number](const machine::SignalResult& what) {
                      const auto self = weak.lock();
                      if (self && !what.problem.empty()) self->could_not(lease, number, what);
                    });
    }
  }
}

void LocalCooperation::State::call(LeaseId lease, const Entry& entry) {
  const YieldOrder& order = entry.order;
  nlohmann::json body = {{"lease", sublet::to_string(lease)},
                         {"order", to_string(order.kind)},
                         {"number", order.number},
                         {"residue_bytes", entry.how.residue.count}};
  if (order.kind == Kind::yield) {
    body["deadline_seconds"] = static_cast<double>(order.deadline_ns - monotonic_ns()) / 1e9;
    body["reason"] = order.reason;
  }
  asio::co_spawn(
      io, call_webhook(io, entry.how.address, entry.uid, body.dump(), entry.deadline.given() + call_over),
      [weak = weak_from_this(), lease, number = order.number](const std::exception_ptr& failure, WebhookReply reply) {
        const auto self = weak.lock();
        if (!self) return;
        if (failure) reply = {.status = 0, .body = {}, .problem = "the call failed inside the daemon"};
        self->called(lease, number, reply);
      });
}

void LocalCooperation::State::called(LeaseId lease, std::uint64_t number, const WebhookReply& reply) {
  Entry* entry = find(lease, number);
  if (entry == nullptr || entry->answered) return;
  // The program answers later by a call of its own; no such call is possible after the lease's end.
  if (reply.status == 202) {
    if (entry->ended && entry->order.kind == Kind::resume) take(lease, *entry, YieldAnswer::resumed, {});
    return;
  }
  if (reply.status != 200) {
    return could_not(lease, number,
                     {.problem = reply.status == 0 ? reply.problem : fmt::format("it answered {}", reply.status),
                      .by_program = true,
                      .may_have_been = reply.told || reply.status != 0});
  }
  const auto json = nlohmann::json::parse(reply.body, nullptr, false);
  const auto text = [&json](const char* name) {
    const auto found = json.is_object() ? json.find(name) : json.end();
    return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  const auto said = parse_yield_answer(text("answer"));
  if (!said || !fits(entry->order.kind, *said)) {
    return could_not(lease, number,
                     {.problem = "its answer does not match the order", .by_program = true, .may_have_been = true});
  }
  take(lease, *entry, *said, printable(text("detail")));
}

// --- outcomes

void LocalCooperation::State::look_later(LeaseId lease, Entry& entry) {
  entry.look.expires_after(Deadline::interval);
  entry.look.async_wait([weak = weak_from_this(), lease, number = entry.order.number](const auto& error) {
    const auto self = weak.lock();
    if (self && !error) self->look(lease, number);
  });
}

void LocalCooperation::State::look(LeaseId lease, std::uint64_t number) {
  Entry* entry = find(lease, number);
  if (entry == nullptr || entry->answered) return;
  const bool yields = entry->order.kind == Kind::yield;
  const bool over = entry->deadline.over(monotonic_ns());
  entry->order.deadline_ns = entry->deadline.until_ns();
  if (entry->how.way == CooperationWay::signal) {
    const auto said = read_said(file_of(lease, entry->uid), entry->uid);
    if (said && fits(entry->order.kind, said->answer)) return take(lease, *entry, said->answer, said->detail);
  }
  if (entry->how.process && !lives(entry->how.process)) {
    if (!yields) return take(lease, *entry, YieldAnswer::resumed, "it has ended");
    entry->answered = true;
    if (entry->ended) return end(lease);
    ParkOutcome outcome =
        failed(core::ObstacleCode::gone, name_of(*entry) + ", the cooperative process of the lease, has ended");
    outcome.kind = ParkOutcome::Kind::undone;
    return finish(*entry, std::move(outcome));
  }
  if (entry->ended && yields && over) {
    entry->answered = true;
    return later(&State::say_last_word, lease);
  }
  if (entry->done && over) {
    const std::string within = format_duration(entry->deadline.given());
    // Nothing waits for the answer to a yield any more; the answer to a resume order always counts.
    if (yields) entry->answered = true;
    finish(*entry, failed(core::ObstacleCode::late, fmt::format("{0} did not answer the order to {2} within {1}",
                                                                name_of(*entry), within, yields ? "yield" : "resume")));
    entry = find(lease, number);
    if (entry == nullptr || entry->answered) return;
  }
  look_later(lease, *entry);
}

void LocalCooperation::State::could_not(LeaseId lease, std::uint64_t number, const machine::SignalResult& what) {
  Entry* entry = find(lease, number);
  if (entry == nullptr || entry->answered) return;
  if (entry->how.process && !lives(entry->how.process)) return look(lease, number);
  const bool yields = entry->order.kind == Kind::yield;
  entry->owed = !yields || what.may_have_been;
  if (entry->ended && yields) {
    entry->answered = true;
    return later(&State::say_last_word, lease);
  }
  if (!entry->done) return;
  if (yields) {
    entry->answered = true;
    entry->untold = !what.may_have_been;
  }
  // A yield is not repeated over a way that does not work. A resume order is repeated as soon as possible.
  const bool blamed = what.by_program || (yields && what.lasts);
  ParkOutcome outcome = failed(
      blamed ? core::ObstacleCode::notify_failed : core::ObstacleCode::unreachable,
      fmt::format("{} cannot get the order to {}: {}", name_of(*entry), yields ? "yield" : "resume", what.problem));
  if (!blamed && entry->untold) outcome.kind = ParkOutcome::Kind::undone;
  finish(*entry, std::move(outcome));
}

void LocalCooperation::State::take(LeaseId lease, Entry& entry, YieldAnswer answer, const std::string& detail) {
  entry.answered = true;
  entry.answer = answer;
  entry.owed = answer == YieldAnswer::yielded;
  entry.look.cancel();
  if (entry.how.way == CooperationWay::signal) remove_answer(file_of(lease, entry.uid));
  if (!entry.done && entry.ended)
    return later(answer == YieldAnswer::resumed ? &State::end : &State::say_last_word, lease);
  if (!entry.done) {
    if (answer == YieldAnswer::resumed) events.runs_late(lease);
    return;
  }
  switch (answer) {
    case YieldAnswer::yielded: return finish(entry, yielded(lease, entry));
    case YieldAnswer::refused:
      return finish(entry, failed(core::ObstacleCode::refused, fmt::format("{} refuses to yield{}{}", name_of(entry),
                                                                           detail.empty() ? "" : ": ", detail)));
    case YieldAnswer::resumed: {
      ParkOutcome runs;
      runs.kind = ParkOutcome::Kind::done;
      return finish(entry, runs);
    }
  }
}

// Measures the growth of processes that existed before. Memory that other processes freed does not count.
ParkOutcome LocalCooperation::State::yielded(LeaseId lease, const Entry& entry) const {
  ParkOutcome outcome;
  outcome.kind = ParkOutcome::Kind::done;
  Bytes grew;
  for (const ProcessRef process : members(lease)) {
    const auto bytes = proc::resident_bytes(programs.root(), process);
    if (!bytes) continue;
    const auto before = entry.before.find(process);
    outcome.parked.push_back(process);
    grew += std::max(*bytes - (before == entry.before.end() ? Bytes{} : before->second), Bytes{});
  }
  if (!outcome.parked.empty()) outcome.host_bytes = grew;  // else the growth is not known
  return outcome;
}

void LocalCooperation::State::finish(Entry& entry, ParkOutcome outcome) {
  outcome.took = Duration(monotonic_ns() - entry.deadline.began_ns());
  if (const Done done = std::exchange(entry.done, nullptr)) done(std::move(outcome));  // may forget the entry
}

// --- the last resume order

// The caller still uses its entry.
void LocalCooperation::State::later(void (State::*what)(LeaseId), LeaseId lease) {
  asio::post(io, [weak = weak_from_this(), what, lease] {
    if (const auto self = weak.lock()) ((*self).*what)(lease);
  });
}

void LocalCooperation::State::end(LeaseId lease) {
  const auto found = entries.find(lease);
  if (found == entries.end() || !found->second.ended) return;
  remove_answer(file_of(lease, found->second.ended->uid));
  entries.erase(found);
}

// A program that still yields gets no resume order yet: it would ignore the order, and stay paused for ever.
void LocalCooperation::State::say_last_word(LeaseId lease) {
  const auto found = entries.find(lease);
  if (found == entries.end() || !found->second.let_go || found->second.yields()) return;
  Entry& entry = found->second;
  if (entry.done) return;  // an order is being given
  const core::Lease& ended = *entry.ended;
  if (!entry.owed || !may_live(ended)) return end(lease);
  ++entry.last_words;
  begin(ended, Kind::resume, {}, last_word, [this, lease](const ParkOutcome& outcome) {
    const bool runs = outcome.kind == ParkOutcome::Kind::done;
    log::info({.lease = lease}, "it has ended while its program had a yield order: {}",
              runs ? "the program resumes" : outcome.detail);
    Entry& told = entries.at(lease);
    if (runs || told.last_words == most_last_words) return later(&State::end, lease);
    told.owed = true;
    told.again.expires_after(next_last_word);
    told.again.async_wait([weak = weak_from_this(), lease](const auto& error) {
      const auto self = weak.lock();
      if (self && !error) self->say_last_word(lease);
    });
  });
}

// --- the public interface

LocalCooperation::LocalCooperation(asio::io_context& io, machine::Programs& programs, std::string answers_dir)
    : state_(std::make_shared<State>(io, programs, std::move(answers_dir))) {}

LocalCooperation::~LocalCooperation() { state_->entries.clear(); }

void LocalCooperation::open(Events events) { state_->events = std::move(events); }

void LocalCooperation::number_from(std::uint64_t number) { state_->last = std::max(state_->last, number); }

void LocalCooperation::yield(const core::Lease& lease, const std::string& reason, Duration at_most, Done done) {
  state_->begin(lease, Kind::yield, reason, at_most, std::move(done));
}

void LocalCooperation::resume(const core::Lease& lease, Duration at_most, Done done) {
  state_->begin(lease, Kind::resume, {}, at_most, std::move(done));
}

YieldOrder LocalCooperation::order(LeaseId lease) const {
  const auto found = state_->entries.find(lease);
  if (found == state_->entries.end()) return {};
  YieldOrder order = found->second.order;
  if (found->second.answered) order.kind = Kind::none;
  return order;
}

Status LocalCooperation::answer(LeaseId lease, std::uint64_t number, YieldAnswer answer, const std::string& detail) {
  State::Entry* entry = state_->find(lease, number);
  const bool repeated = entry != nullptr && entry->answered && entry->answer == answer;
  if (repeated && fits(entry->order.kind, answer)) return {};
  if (entry == nullptr || entry->answered) {
    const YieldOrder now = order(lease);
    return Error{
        Code::Stale,
        fmt::format(
            "order {} of {} is not open{}", number, sublet::to_string(lease),
            now.kind == Kind::none ? "" : fmt::format("; the open order is {}: {}", now.number, to_string(now.kind))),
        "get the open order: GET /v1/leases/{id}/cooperate"};
  }
  if (!fits(entry->order.kind, answer)) {
    return bad_request(
        fmt::format("'{}' does not answer the order to {}", to_string(answer), to_string(entry->order.kind)),
        entry->order.kind == Kind::yield ? "answer yielded or refused" : "resumed");
  }
  state_->take(lease, *entry, answer, detail);
  return {};
}

std::string LocalCooperation::answer_file(const core::Lease& lease) const {
  return state_->file_of(lease.id, lease.uid);
}

void LocalCooperation::adopt(const core::Lease& lease) {
  const bool told = lease.parking && lease.parking->told && lease.cooperation;
  const auto known = state_->entries.find(lease.id);
  if (known != state_->entries.end()) {  // its end, if it had one, was lost with the store
    State::Entry& entry = known->second;
    if (std::exchange(entry.ended, std::nullopt)) entry.answered = true;
  } else if (told) {
    state_->entries.try_emplace(lease.id, state_->io).first->second.owed = true;
  }
}

void LocalCooperation::forget(const core::Lease& lease) {
  const auto found = state_->entries.find(lease.id);
  if (found == state_->entries.end()) return;
  State::Entry& entry = found->second;
  entry.ended = lease;
  // A program that polls learns from its next call that the lease has ended.
  const bool by_us = lease.cooperation && lease.cooperation->way != CooperationWay::poll;
  const bool is_told = entry.order.kind == Kind::resume && !entry.answered;
  entry.owed |= is_told;
  if (!entry.owed || !by_us || !state_->may_live(lease)) return state_->end(lease.id);
  entry.done = nullptr;
  if (is_told) return;   // the answer counts, and the order is repeated all the same
  if (entry.yields()) {  // still waits for the answer to the yield
    return log::info({.lease = lease.id}, "it has ended while its program yields: the program is resumed after that");
  }
  entry.answered = true;
  entry.look.cancel();
}

void LocalCooperation::let_go(LeaseId lease) {
  const auto found = state_->entries.find(lease);
  if (found == state_->entries.end() || !found->second.ended) return;
  found->second.let_go = true;
  state_->say_last_word(lease);
}

}  // namespace sublet::pause
