// SPDX-License-Identifier: Apache-2.0
// `pause` and `resume`: a program gives its VRAM up for a while and gets it back.
#include "base/clock.h"
#include "cli/fetch.h"
#include "cli/lease_verb.h"
#include "cli/leave.h"
#include "cli/output.h"
#include "cli/render.h"
#include "cli/talk.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

namespace sublet::cli {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

// Time limits of one request, which is answered at once after a change of state; progress changes all the time.
constexpr Duration one_wait = 60s, one_line = 2s, one_look = 500ms;

struct PauseFlags {
  LeaseVerb verb;
  std::string grant, revoke;  // a consumer
  bool grants = false;
  std::optional<Duration> wait;
  bool no_wait = false;
};

bool in_progress(const json& lease) {
  const std::string state = text_at(lease, "state");
  return state == "pausing" || state == "resuming" ||
         (state == "paused" && flag_at(member(lease, "pause"), "resume_requested"));
}

// The current step, in words that stay the same during the step.
std::string stage(const json& lease, const Look& look) {
  const std::string id = text_at(lease, "id");
  const std::string state = text_at(lease, "state");
  const std::string blocked = blocked_phrase(lease, look);
  if (!blocked.empty()) return fmt::format("{} waits for memory: {}", id, blocked);
  if (const std::string problem = problem_phrase(lease); !problem.empty()) return id + " " + problem;
  if (state == "pausing") return id + " is pausing: its program is ordered to free its VRAM";
  if (state == "resuming")
    return id + (flag_at(member(lease, "pause"), "begun") ? " is resuming: its program is being restored"
                                                          : " keeps running: its program was not touched");
  const auto place = number_at(member(lease, "queue"), "place");
  return fmt::format("{} waits for memory{}", id, place ? fmt::format(", at place {}", *place) : "");
}

// With how far it is; without a terminal a line for each quarter of the way.
void show_progress(const json& lease, WaitLine& line) {
  const std::string now = stage(lease, line.look());
  const std::string far = problem_phrase(lease).empty() ? progress_phrase(lease) : "";
  const auto& progress = member(member(lease, "pause"), "progress");
  const auto total = std::max<std::int64_t>(number_at(progress, "total_bytes").value_or(0), 1);
  const auto quarters = number_at(progress, "moved_bytes").value_or(0) / std::max<std::int64_t>(total / 4, 1);
  const std::string text = far.empty() ? now : fmt::format("{}: {}", now.substr(0, now.find(':')), far);
  line.show(visible(text), fmt::format("{} {} {}", now, text_at(progress, "move"), far.empty() ? 0 : quarters));
}

std::string by_whom(const json& lease) {
  return text_at(member(lease, "pause"), "method") == "cooperative" ? " by the program" : "";
}

// Prints the result once no step is in progress; `before`: none was.
int tell(const Common& common, client::Client& client, const json& lease, const std::string& wanted, bool before) {
  const std::string id = text_at(lease, "id");
  const std::string state = text_at(lease, "state");
  if (common.json) fmt::print("{}\n", lease.dump());
  const bool held_back = time_at(lease, "held_back_at").has_value();
  if (state == "queued" && held_back == (wanted == "paused")) {
    const auto place = number_at(member(lease, "queue"), "place");
    if (!common.json)
      say(common, held_back ? fmt::format("{0} is held back and keeps its place in the queue; sublet resume {0} lets "
                                          "it wait again",
                                          id)
                            : fmt::format("{} waits again{}", id, place ? fmt::format(", at place {}", *place) : ""));
    return kOk;
  }
  if (state == "offered" && wanted == "active") {  // it was held back, and there is memory for it
    if (!common.json) say(common, id + " waits again, and has an offer");
    return kOk;
  }
  if (state == wanted) {
    if (!common.json) {
      say(common, wanted == "paused"
                      ? fmt::format("{} is paused: {} are parked in host memory{}; sublet resume {} resumes it", id,
                                    size_at(lease, "parked_bytes"), by_whom(lease), id)
                      : id + (before ? " is running already" : " runs again"));
    }
    return kOk;
  }
  std::string now = state;
  if (state == "ended") now += ": " + text_at(lease, "end_reason");
  if (state == "poisoned") now += ": " + text_at(member(lease, "pause"), "reason");
  const json why = state == "active" || state == "poisoned" ? ask_also(client, lease_target({id, {}}, "/why")) : json();
  std::string hint = "sublet why " + id;
  if (state == "active") {
    const client::Undone undone = client::why_undone(why);
    now += ": " + (undone.why.empty() ? "its pause was undone" : undone.text());
    if (!undone.hint.empty()) hint = undone.hint;
  }
  if (const json& helps = list_at(why, "helps"); state == "poisoned" && !helps.empty() && helps.front().is_string())
    hint = helps.front().get<std::string>();
  print_error(fmt::format("{} is {}", id, now), hint);
  return kFailed;
}

constexpr Column grant_columns[] = {
    {"consumer", "CONSUMER", true, false, [](const json& row, const Look&) { return text_cell(row, "consumer"); }},
    {"user", "USER", true, false, [](const json& row, const Look&) { return text_cell(row, "user"); }},
};

int list_grants(const Common& common) {
  return show(common, "/v1/consumers", [&](const json& body, client::Client&) -> Result<std::string> {
    if (list_at(body, "grants").empty()) say(common, "there are no grants; add one: sublet pause --grant CONSUMER");
    return render_table("pause", grant_columns, list_at(body, "grants"), common, look_for(common));
  });
}

int change_grant(const Common& common, const PauseFlags& flags) {
  auto client = connect(common);
  if (!client) return fail(client.error());
  const bool given = !flags.grant.empty();
  const std::string& consumer = given ? flags.grant : flags.revoke;
  const std::string target = fmt::format("/v1/consumers/{}/grant", client::encode(consumer));
  const auto reply = client->call({given ? "POST" : "DELETE", target, given ? "{}" : "", {}, {}});
  if (!reply) return fail(common, reply.error());
  if (common.json) fmt::print("{}\n", reply->text);
  else
    say(common,
        given
            ? fmt::format("your programs named {} may be parked, even if sublet did not start them", visible(consumer))
            : fmt::format("your programs named {} may be parked only if sublet started them", visible(consumer)));
  return kOk;
}

// The message for a user who does not wait.
std::string goes_on(const json& lease) {
  const std::string id = text_at(lease, "id");
  const std::string state = text_at(lease, "state");
  if (state == "pausing") return fmt::format("{} continues to pause; sublet resume {} resumes it", id, id);
  if (state == "resuming") return fmt::format("{} continues to resume", id);
  return fmt::format("{} stays in the queue and resumes when memory is free: sublet why {}", id, id);
}

int act(const Common& common, const PauseFlags& flags, const std::string& call, const std::string& wanted) {
  auto client = connect(common);
  if (!client) return fail(client.error());
  const auto token = read_token(flags.verb);
  if (!token) return fail(token.error());
  const std::int64_t started = monotonic_ns();
  Look look = look_for(common);
  learn_devices(ask_also(*client, "/v1/devices"), look);
  Talk talk(common, -1, common.json, look);
  const keep::Listener listener = talk.listener();
  auto reply = client->call({"POST", lease_target(flags.verb, call), "{}", {}, *token});
  Leave leave(*client);
  json lease;
  for (bool first = true;; first = false) {
    if (leave.asked() && lease.is_object()) {
      talk.line().clear();
      leave.now(common.quiet || common.json, goes_on(lease));
    }
    if (!reply) return fail(common, reply.error());
    lease = json::parse(reply->text, nullptr, false);
    if (!lease.is_object())
      return fail(unavailable("the daemon's answer is not JSON",
                              "compare the versions of daemon and command line: sublet doctor"));
    if (!in_progress(lease)) {
      talk.line().clear();
      return tell(common, *client, lease, wanted, first);
    }
    if (flags.no_wait) {
      if (common.json) fmt::print("{}\n", lease.dump());
      else say(common, stage(lease, look));
      return kOk;
    }
    const Duration waited(monotonic_ns() - started);
    if (flags.wait && waited >= *flags.wait) {
      talk.line().clear();
      print_error(fmt::format("{}; still so after {}", stage(lease, look), format_duration(*flags.wait)),
                  "the daemon continues; to see how far it is: sublet why " + text_at(lease, "id"));
      return kGaveUp;
    }
    show_progress(lease, talk.line());
    const Duration one = common.json || common.quiet ? one_wait : talk.line().live() ? one_look : one_line;
    const Duration at_most = flags.wait ? std::clamp<Duration>(*flags.wait - waited, 100ms, one) : one;
    const std::string ask = fmt::format("?wait={}ms&since={}", at_most / 1ms, client::encode(text_at(lease, "state")));
    reply = client->insist({"GET", lease_target({text_at(lease, "id"), {}}, ask), {}, {}, *token},
                           keep::patience(listener), one_wait + 30s);
  }
}

std::shared_ptr<PauseFlags> add_flags(Command command, Common& common, bool required) {
  auto flags = std::make_shared<PauseFlags>();
  add_lease(command, common, flags->verb, required);
  const Option wait = command.duration("--wait", flags->wait, "Return after this time at the latest (exit 124)");
  command.flag("--no-wait", flags->no_wait, "Return at once, and let the daemon continue").excludes(wait);
  return flags;
}

}  // namespace

Action add_pause(Command command, Common& common) {
  const auto flags = add_flags(command, common, false);
  const Option grant = command
                           .option("--grant", flags->grant,
                                   "Allow parking of your programs with this name, even if sublet did not start them")
                           .not_empty("the consumer's name is empty")
                           .type("CONSUMER")
                           .offers(Offer::Of::consumers);
  const Option revoke = command.option("--revoke", flags->revoke, "Revoke a grant")
                            .not_empty("the consumer's name is empty")
                            .type("CONSUMER")
                            .offers(Offer::Of::consumers);
  const Option grants = command.flag("--grants", flags->grants, "List your grants");
  revoke.excludes(grant);
  grants.excludes(grant);
  grants.excludes(revoke);
  command.footer(
      "A cooperative program (sublet cooperate, libsublet) frees its VRAM itself. The\n"
      "driver parks every other program in host memory. Other leases get the VRAM once\n"
      "it is measured free. The lease stays paused until `sublet resume`. A pause that\n"
      "fails is undone.");
  return [&common, flags] {
    const bool about_grants = flags->grants || !flags->grant.empty() || !flags->revoke.empty();
    if (about_grants != flags->verb.lease.empty())
      return usage_error(about_grants ? "pause takes either LEASE or a grant, not both" : "pause needs LEASE",
                         "sublet pause LEASE, or sublet pause --grant CONSUMER");
    if (flags->grants) return list_grants(common);
    return about_grants ? change_grant(common, *flags) : act(common, *flags, "/pause", "paused");
  };
}

Action add_resume(Command command, Common& common) {
  const auto flags = add_flags(command, common, true);
  command.footer(
      "The lease waits in the queue for free memory; its waiting time counts from the\n"
      "pause. Ctrl-C leaves the lease in the queue. If the driver can never restore\n"
      "the program, the lease is poisoned: the program never runs again, and `sublet\n"
      "stop` ends it.");
  return [&common, flags] { return act(common, *flags, "/resume", "active"); };
}

}  // namespace sublet::cli
