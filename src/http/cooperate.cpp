// SPDX-License-Identifier: Apache-2.0
// Programs that yield by themselves: they say how, ask for their orders, and answer them.
#include "base/clock.h"
#include "base/number.h"
#include "base/text.h"
#include "http/body.h"
#include "http/find_lease.h"
#include "http/query.h"
#include "http/routes.h"
#include "machine/user_directory.h"
#include "pause/webhook.h"

#include <fmt/format.h>

#include <array>
#include <csignal>

namespace sublet::http {
namespace {

using core::Cooperation;
using core::CooperationWay;
using core::Lease;

constexpr std::array<std::string_view, 3> ways{"poll", "webhook", "signal"};

// Those that nothing but a program's own use is made of.
constexpr std::array<std::pair<std::string_view, int>, 3> signals{
    {{"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"HUP", SIGHUP}}};

std::string name_of_signal(int number) {
  for (const auto& [name, known] : signals)
    if (known == number) return std::string(name);
  return {};
}

std::string render(const Lease& lease, const engine::Engine& engine) {
  const pause::YieldOrder order = engine.executor().cooperation().order(lease.id);
  const bool yields = order.kind == pause::YieldOrder::Kind::yield;
  json body = {{"lease", to_string(lease.id)},
               {"order", to_string(order.kind)},
               {"number", order.number},
               {"deadline_seconds",
                yields ? json(std::max(0.0, static_cast<double>(order.deadline_ns - monotonic_ns()) / 1e9)) : json()},
               {"reason", yields ? json(order.reason) : json()},
               {"registered", nullptr}};
  if (lease.cooperation) {
    const Cooperation& how = *lease.cooperation;
    const bool by_signal = how.way == CooperationWay::signal;
    const auto text = [](const std::string& value) { return value.empty() ? json() : json(value); };
    body["registered"] = {
        {"way", core::to_string(how.way)},
        {"residue_bytes", how.residue.count},
        {"pid", how.process ? json(how.process.pid) : json()},
        {"url", text(how.address)},
        {"pause_signal", text(name_of_signal(how.pause_signal))},
        {"resume_signal", text(name_of_signal(how.resume_signal))},
        {"answer_file", by_signal ? json(engine.executor().cooperation().answer_file(lease)) : json()}};
  }
  return body.dump();
}

std::optional<ProcessRef> process_of(const machine::Programs& programs, std::int64_t pid) {
  if (pid <= 0) return std::nullopt;
  const auto info = programs.root().read(static_cast<std::int32_t>(pid));
  return info ? std::optional(info->ref) : std::nullopt;
}

// Admits callers that may act for the lease, and every process of the lease.
Status may_take_part(const Request& request, const Lease& lease, engine::Engine& engine) {
  Status may = may_act(request, lease);
  if (may || request.peer.tcp) return may;
  const auto process = process_of(engine.programs(), request.peer.pid);
  if (process && engine.executor().member_of(*process, lease.id) != nullptr) return {};
  return may;
}

Status take_signal(Body& body, const char* field, int& into, int otherwise) {
  const auto word = body.text(field, 16);
  into = otherwise;
  if (!word) return {};
  const std::string_view name = std::string_view(*word).substr(word->starts_with("SIG") ? 3 : 0);
  for (const auto& [known, number] : signals) {
    if (known == name) return into = number, Status{};
  }
  return bad_request(fmt::format("{} '{}' is not a signal for yield or resume orders", field, printable(*word)),
                     "use USR1, USR2 or HUP");
}

// The process that gets the signals: a process of the lease. For the ways without signals: the caller.
Status take_process(std::optional<std::int64_t> named, const Request& request, const Lease& lease,
                    engine::Engine& engine, Cooperation& how) {
  if (Status here = may_name_processes(request.peer, named.value_or(0)); !here) return here;
  const machine::Programs& programs = engine.programs();
  if (Status same = programs.check_pid_namespace(request.peer.pid); !same) return same;
  const std::int64_t pid = named.value_or(request.peer.pid);
  const auto process = process_of(programs, pid);
  if (!process) return bad_request(fmt::format("process {} does not exist", pid), "name a running process");
  const proc::Member* member = engine.executor().member_of(*process, lease.id);
  const bool by_signal = how.way == CooperationWay::signal;
  const bool proven = member != nullptr && (!by_signal || proc::is_program(member->link));
  const bool holds_it = !by_signal && pid == request.peer.pid && has_token(request, lease);
  if (!proven && !holds_it) {
    return denied(
        fmt::format("process {} does not belong to the program of {}", pid, to_string(lease.id)),
        "only a process of the lease can register as cooperative; `sublet attach` adds a process to the lease");
  }
  if (by_signal && !lease.owner.keeper) {
    return denied(fmt::format("`sublet run` did not start {}, so nothing proves which process a signal reaches",
                              to_string(lease.id)),
                  "use the way poll or webhook instead");
  }
  how.process = *process;
  return {};
}

Result<Cooperation> read_how(Body& body, const Request& request, const Lease& lease, engine::Engine& engine) {
  Cooperation how;
  const auto way = body.text("way").value_or("poll");
  const auto known = core::parse_cooperation_way(way);
  const auto pid = body.integer("pid", 1, INT32_MAX);
  const auto url = body.text("url", 512);
  how.residue = {body.integer("residue_bytes", 0, 1LL << 62).value_or(0)};
  if (!known) {
    return bad_request(fmt::format("way '{}' is unknown{}", printable(way), did_you_mean(way, ways)),
                       fmt::format("one of {}", fmt::join(ways, ", ")));
  }
  how.way = *known;
  const bool by_signal = how.way == CooperationWay::signal;
  if (auto taken = take_signal(body, "pause_signal", how.pause_signal, by_signal ? SIGUSR1 : 0); !taken)
    return taken.error();
  if (auto taken = take_signal(body, "resume_signal", how.resume_signal, by_signal ? SIGUSR2 : 0); !taken)
    return taken.error();
  if (auto finished = body.finish(); !finished) return finished.error();
  const bool webhook = how.way == CooperationWay::webhook;
  if (!by_signal && (how.pause_signal != 0 || how.resume_signal != 0))
    return bad_request("pause_signal and resume_signal need the way signal", "leave them out");
  if (by_signal && how.pause_signal == how.resume_signal)
    return bad_request("one signal cannot be both the yield order and the resume order", "use two different signals");
  if (webhook != url.has_value())
    return bad_request(webhook ? "url is missing" : "url needs the way webhook",
                       webhook ? "for example http://127.0.0.1:8080/sublet" : "leave it out");
  if (how.residue > lease.vram)
    return bad_request(fmt::format("the residue of {} is larger than the lease's {}", format_size(how.residue),
                                   format_size(lease.vram)),
                       "give what the program keeps on each device while it is paused");
  if (!webhook) {
    if (auto taken = take_process(pid, request, lease, engine, how); !taken) return taken.error();
    if (!by_signal) return how;
    const Status made = machine::make_user_directory(engine.options().exit_dir, lease.uid);
    if (!made) return unavailable("there is no place for the answers: " + made.error().detail, made.error().hint);
    return how;
  }
  if (pid) return bad_request("the way webhook takes no pid", "leave it out");
  if (auto parsed = pause::parse_webhook(*url); !parsed) return parsed.error();
  how.address = *url;
  return how;
}

// While the registered process lives, no other process may register for the lease: both would have to yield.
Status check_only_one(const Lease& lease, const Cooperation& how, engine::Engine& engine) {
  if (!lease.cooperation || !lease.cooperation->process || lease.cooperation->process == how.process) return {};
  const ProcessRef before = lease.cooperation->process;
  const auto now = process_of(engine.programs(), before.pid);
  if (!now || *now != before) return {};
  return Error{Code::InUse,
               fmt::format("process {} is already the cooperative process of {}", before.pid, to_string(lease.id)),
               "one process yields for the whole program; that process can withdraw"};
}

Reply store(Call& call, const Lease& lease, std::optional<Cooperation> how, std::uint64_t generation) {
  engine::Engine& engine = call.engine;
  const LeaseId touched = is_owner(call.request, lease) ? lease.id : LeaseId{};
  auto answered =
      engine.request(core::Cooperate{lease.id, generation, std::move(how)}, call.remember, [&](const Lease& now) {
        return engine::Answered{200, render(now, engine)};
      });
  if (!answered) return problem(answered.error());
  if (touched) engine.observer().touch(touched);
  return as_json(std::move(answered));
}

// Finds the live lease for a caller that may take part in its pauses. The answer "the lease has ended" makes a paused
// program resume, so it is sent only once the end is durable: otherwise the program would use memory of other leases
// after a store failure.
Reply with_part(Call& call, std::function<Reply(Call&, const Lease&)> next) {
  return with_lease(
      call, call.args[0],
      [request = call.request, &engine = call.engine, remember = call.remember,
       next = std::move(next)](const Lease& lease) -> Reply {
        if (auto may = may_take_part(request, lease, engine); !may) return durable_problem(may.error());
        if (lease.ended())
          return durable_problem(
              {Code::Stale, fmt::format("{} has ended: {}", to_string(lease.id), core::to_string(lease.end_reason)),
               "its program gets no more orders"});
        Call again{request, engine, {}, remember};
        return next(again, lease);
      });
}

Reply post_cooperate(Call& call) {
  return with_part(call, [](Call& made, const Lease& lease) -> Reply {
    Body body(made.request.body);
    const auto generation = static_cast<std::uint64_t>(body.integer("generation", 1, INT64_MAX).value_or(0));
    const auto how = read_how(body, made.request, lease, made.engine);
    if (!how) return problem(how.error());
    if (auto only = check_only_one(lease, *how, made.engine); !only) return problem(only.error());
    return store(made, lease, *how, generation);
  });
}

Reply delete_cooperate(Call& call) {
  return with_part(call, [](Call& made, const Lease& lease) -> Reply { return store(made, lease, std::nullopt, 0); });
}

Reply get_cooperate(Call& call) {
  return with_part(call, [](Call& made, const Lease& lease) -> Reply {
    Duration wait{};
    if (const std::string given = query_value(made.request, "wait"); !given.empty()) {
      const auto parsed = parse_duration(given);
      if (!parsed) return problem(parsed.error());
      wait = std::min<Duration>(*parsed, std::chrono::hours(1));
    }
    std::uint64_t since = 0;
    if (const auto at = made.request.query.find("since"); at != made.request.query.end()) {
      const auto number = parse_number<std::uint64_t>(at->second);
      if (!number)
        return problem(bad_request(fmt::format("since={} is not an order's number", printable(at->second)),
                                   "give the `number` of the last answer, or leave since out"));
      since = *number;
    }
    engine::Engine& engine = made.engine;
    const auto news = [&engine, id = lease.id, since] {
      const pause::YieldOrder order = engine.executor().cooperation().order(id);
      return order.kind != pause::YieldOrder::Kind::none && order.number != since;
    };
    if (wait <= Duration::zero() || news()) return as_json(200, render(lease, engine));
    return WaitForLease{.lease = lease.id,
                        .since = lease.state,
                        .news = news,
                        .at_most = wait,
                        .answer = [&engine](const Lease& later) { return as_json(200, render(later, engine)); }};
  });
}

Reply post_cooperate_answer(Call& call) {
  return with_part(call, [](Call& made, const Lease& lease) -> Reply {
    Body body(made.request.body);
    const auto number = body.integer("number", 1, INT64_MAX);
    const auto word = body.text("answer", 16);
    const auto detail = body.text("detail", 512);
    if (auto finished = body.finish(); !finished) return problem(finished.error());
    const auto answer = word ? pause::parse_yield_answer(*word) : std::nullopt;
    if (!number || !answer) {
      return problem(bad_request("an answer needs the order's number and one of yielded, refused, resumed",
                                 R"(for example {"number": 7, "answer": "yielded"})"));
    }
    const LeaseId id = lease.id;
    const core::Lease before = lease;  // which the answer may end
    const auto taken = made.engine.executor().cooperation().answer(id, static_cast<std::uint64_t>(*number), *answer,
                                                                   printable(detail.value_or("")));
    if (!taken) return problem(taken.error());
    const Lease* now = made.engine.find(id);
    const engine::Answered answered{200, render(now == nullptr ? before : *now, made.engine)};
    made.engine.remember(made.remember, answered);
    return as_json(answered);
  });
}

constexpr Route table[] = {
    Route{Method::get, "/v1/leases/{id}/cooperate", Role::user, Scope::submit, get_cooperate, "wait,since",
          "Cooperation"},
    Route{Method::post, "/v1/leases/{id}/cooperate", Role::user, Scope::submit, post_cooperate,
          "way,residue_bytes,pid,url,pause_signal,resume_signal,generation", "Cooperation"},
    Route{Method::del, "/v1/leases/{id}/cooperate", Role::user, Scope::submit, delete_cooperate, "", "Cooperation"},
    Route{Method::post, "/v1/leases/{id}/cooperate/answer", Role::user, Scope::submit, post_cooperate_answer,
          "number,answer,detail", "Cooperation"},
};

}  // namespace

const std::span<const Route> cooperate_routes = table;

}  // namespace sublet::http
