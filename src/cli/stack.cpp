// SPDX-License-Identifier: Apache-2.0
// `stack`: Docker Compose projects that are started for a lease.
#include "base/text.h"
#include "cli/fetch.h"
#include "cli/leave.h"
#include "cli/render.h"
#include "client/text_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace sublet::cli {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

constexpr const char* no_limit = "forever";
constexpr Duration stack_poll_time = std::chrono::seconds(30);  // of one request that waits for a change

struct StackFlags {
  std::string name, path;
  std::vector<std::string> names;
  // acquire
  std::optional<Duration> ttl, wait_at_most;
  bool wait = false;
  std::string owner;
  int priority = 0;
  // release
  bool down = false;
  // logs
  bool follow = false;
  std::optional<int> lines;
  std::string service;
  // set
  std::optional<Bytes> vram;
  std::optional<int> gpus;
  std::string tier, exclusive, pausable;
  bool reset = false;
};

std::string stack_target(const std::string& name, const std::string& call = {}) {
  return "/v1/stacks/" + client::encode(name) + call;
}

// --- one call ---

int change_stack(const Common& common, const client::Request& request,
                 const std::function<std::string(const json&)>& done) {
  auto client = connect(common);
  if (!client) return fail(common, client.error());
  const auto reply = client->call(request, 60s);
  if (!reply) return fail(common, reply.error());
  const auto body = client::parse(*reply);
  if (!body) return fail(common, body.error());
  if (common.json) fmt::print("{}\n", reply->text);
  else say(common, "sublet: " + done(*body));
  return kOk;
}

client::Request stack_post(const std::string& target, const json& body, const std::string& token = {}) {
  return {"POST", target, client::to_text(body), client::new_idempotency_key(), token};
}

// --- acquire ---

class Acquisition {
 public:
  // `others` was acquired before: it is kept while this one waits, and given back if this one comes to nothing. Null:
  // none was.
  Acquisition(const Common& common, const StackFlags& flags, std::string name, client::Client client,
              Acquisition* others)
      : common_(common),
        flags_(flags),
        name_(std::move(name)),
        others_(others),
        poll_(others != nullptr ? others->poll_ : stack_poll_time),
        client_(std::move(client)),
        leave_(client_) {}

  int go();
  const std::string& reply() const { return reply_; }  // JSON; valid after kOk
  void release();                                      // without an answer, it ends with its time to live
  // Starts its time to live again. Returns whether the stack is still acquired, as far as the daemon answers.
  bool keep();

 private:
  const Common& common_;
  const StackFlags& flags_;
  const std::string name_;
  Acquisition* others_;
  Duration poll_;  // of one request that waits: all stacks that were acquired are renewed after it
  client::Client client_;
  Leave leave_;
  Look look_ = look_for(common_);
  std::string token_;
  std::string told_;
  std::string reply_;

  bool is_late() const { return flags_.wait_at_most && look_for(common_).now >= look_.now + *flags_.wait_at_most; }
  json body(Duration wait, const std::string& since) const;
  void tell(const json& stack);
  void learn_token(const client::Request& request);
  bool keep_others();
  int give_up(const std::string& state);
  client::Answer<client::Reply> ask(const client::Request& request, Duration timeout);
  std::optional<int> wait_until_free(const client::Failure& busy);
  int refused(const client::Failure& failure);
};

json Acquisition::body(Duration wait, const std::string& since) const {
  json body{{"wait_seconds", wait / 1s}, {"queue", flags_.wait}};
  if (flags_.ttl) body["ttl_seconds"] = *flags_.ttl / 1s;
  if (!flags_.owner.empty()) body["owner"] = flags_.owner;
  if (flags_.priority != 0) body["priority"] = flags_.priority;
  if (!since.empty()) body["since"] = since;
  return body;
}

// Each line once.
void Acquisition::tell(const json& stack) {
  if (look_.device_names.empty() && member(stack, "queue").is_object()) {
    client::Client another(client_.endpoint());
    learn_devices(ask_also(another, "/v1/devices"), look_);
  }
  Look look = look_for(common_);
  look.device_names = look_.device_names;
  std::string line = stack_phrase(stack, look);
  if (line == std::exchange(told_, line)) return;
  say(common_, "sublet: " + line);
}

// The answer to the first call was not awaited, and the daemon may have acquired the stack: the same call with the same
// key gets the same answer. Until that answer is stored, the stack seems to belong to somebody else.
void Acquisition::learn_token(const client::Request& request) {
  client::Client another(client_.endpoint());
  for (const Time end = look_for(common_).now + 5s; token_.empty() && look_for(common_).now < end;) {
    const auto reply = another.call(request, 5s);
    if (!reply && reply.error().error.code != Code::InUse) return;
    const auto stack = reply ? client::parse(*reply) : client::Answer<json>(reply.error());
    if (stack) token_ = text_at(*stack, "token");
    else (void)another.pause(50ms);
  }
}

void Acquisition::release() {
  if (others_ != nullptr) others_->release();
  if (token_.empty()) return;
  client::Client another(client_.endpoint());
  (void)another.call(stack_post(stack_target(name_, "/release"), json::object(), token_), 5s);
}

bool Acquisition::keep() {
  client::Client another(client_.endpoint());
  const auto reply = another.call(stack_post(stack_target(name_, "/renew"), json::object(), token_), 10s);
  const bool is_mine = reply || reply.error().passing();
  return is_mine && (others_ == nullptr || others_->keep());
}

// Returns false, and gives back what is left, once an earlier stack is lost.
bool Acquisition::keep_others() {
  if (others_ == nullptr || others_->keep()) return true;
  release();
  print_error(fmt::format("another stack was lost while {} was waited for; all are given back", visible(name_)),
              "repeat the command; sublet stack status tells why it was lost");
  return false;
}

int Acquisition::give_up(const std::string& state) {
  release();
  print_error(fmt::format("stack {} is {} after {}, the time of --wait", visible(name_), state,
                          format_duration(*flags_.wait_at_most)),
              "wait longer; sublet queue lists the leases that wait");
  return kGaveUp;
}

int Acquisition::refused(const client::Failure& failure) {
  if (failure.kind == client::FailureKind::cancelled && leave_.asked()) {
    release();
    leave_.now(common_.quiet, fmt::format("stack {} is not acquired", name_));
  }
  if (others_ != nullptr) others_->release();
  const bool no_room = failure.http_status == 409 && failure.error.code != Code::InUse && token_.empty();
  if (!no_room || flags_.wait || common_.json) return fail(common_, failure);
  print_error(failure.error.detail, "wait for its memory: sublet stack acquire --wait");
  return exit_code(failure);
}

// Repeats the call, with its key, while the daemon is away or restarts.
client::Answer<client::Reply> Acquisition::ask(const client::Request& request, Duration timeout) {
  for (bool told = false;;) {
    auto reply = client_.call(request, timeout);
    if (reply || !client_.met()) return reply;
    const auto kind = reply.error().kind;
    if (kind != client::FailureKind::no_daemon && kind != client::FailureKind::lost) return reply;
    if (!std::exchange(told, true)) say(common_, "sublet: the daemon does not answer; waiting until it is back");
    (void)client_.pause(500ms);  // a signal ends the next call
  }
}

// Somebody else has the stack, or it goes down. Returns the exit code, or nothing once it may be free.
std::optional<int> Acquisition::wait_until_free(const client::Failure& busy) {
  const auto now = client_.get(stack_target(name_));
  if (!now) return refused(now.error());
  const auto stack = client::parse(*now);
  if (!stack) return refused(stack.error());
  const std::string state = text_at(*stack, "state");
  const bool is_news = std::exchange(told_, busy.error.detail) != busy.error.detail;
  const bool is_down = state == "down" || state == "failed";
  const bool goes_down = state == "stopping" && text_at(*stack, "warning").empty();
  if (!flags_.wait && !goes_down && !(is_down && is_news)) return refused(busy);
  if (is_news && (flags_.wait || goes_down)) say(common_, "sublet: " + visible(busy.error.detail));
  if (is_down && !is_news) (void)client_.pause(500ms);  // others run containers of its project
  if (is_late()) return give_up(state);
  if (is_down || state == "released") return std::nullopt;
  const std::string query = fmt::format("?wait={}s&since={}", poll_ / 1s, client::encode(state));
  const auto later = client_.call({"GET", stack_target(name_, query), {}, {}, {}}, stack_poll_time + 30s);
  if (!later && !later.error().passing()) return refused(later.error());
  return std::nullopt;
}

int Acquisition::go() {
  std::string state;
  for (;;) {
    if (!keep_others()) return kFailed;
    const Duration wait = token_.empty() ? 0s : poll_;
    const client::Request request = stack_post(stack_target(name_, "/acquire"), body(wait, state), token_);
    const auto reply = ask(request, wait + 60s);
    if (!reply) {
      const client::Failure& failure = reply.error();
      if (failure.kind == client::FailureKind::cancelled && token_.empty()) learn_token(request);
      if (failure.error.code != Code::InUse || !token_.empty()) return refused(failure);
      if (const auto code = wait_until_free(failure)) return *code;
      continue;
    }
    const auto stack = client::parse(*reply);
    if (!stack) return refused(stack.error());
    token_ = text_at(*stack, "token");
    state = text_at(*stack, "state");
    const bool done = reply->status == 200;
    if (!done || !common_.json) tell(*stack);
    if (done) {
      reply_ = reply->text;
      poll_ = std::clamp<Duration>(std::chrono::seconds(number_at(*stack, "ttl_seconds").value_or(90)) / 3, 1s, poll_);
      return keep_others() ? kOk : kFailed;
    }
    if (is_late()) return give_up(state);
  }
}

// Several stacks in the order of their names, so that two such commands never wait for each other. All or none.
int acquire_stack(const Common& common, const StackFlags& flags) {
  const std::set<std::string> names(flags.names.begin(), flags.names.end());
  std::vector<std::unique_ptr<Acquisition>> all;
  std::string replies;
  for (const std::string& name : names) {
    Acquisition* const others = all.empty() ? nullptr : all.back().get();
    auto client = connect(common);
    if (!client) {
      if (others != nullptr) others->release();
      return fail(common, client.error());
    }
    all.push_back(std::make_unique<Acquisition>(common, flags, name, std::move(*client), others));
    if (const int code = all.back()->go(); code != kOk) return code;
    replies += (replies.empty() ? "" : ",") + all.back()->reply();
  }
  if (common.json) fmt::print("{}\n", names.size() > 1 ? "[" + replies + "]" : replies);
  return kOk;
}

// --- logs ---

int stack_logs(const Common& common, const StackFlags& flags) {
  const auto endpoint = client::resolve_endpoint(common.host);
  if (!endpoint) return fail(endpoint.error());
  std::string query = flags.follow ? "?follow=true" : "?follow=false";
  if (flags.lines) query += fmt::format("&lines={}", *flags.lines);
  if (!flags.service.empty()) query += "&service=" + client::encode(flags.service);
  client::TextStream stream(*endpoint);
  if (auto opened = stream.open(stack_target(flags.name, "/logs" + query)); !opened)
    return fail(common, opened.error());
  while (const auto piece = stream.next(stack_poll_time)) {
    if (piece->empty() && !flags.follow) break;
    // Characters that steer a terminal are made visible; the ends of lines stay.
    std::string_view rest = *piece;
    while (!rest.empty()) {
      const auto end = std::min(rest.find('\n'), rest.size());
      fmt::print("{}{}", visible(rest.substr(0, end)), end < rest.size() ? "\n" : "");
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    if (std::fflush(stdout) != 0) return kFailed;
  }
  if (stream.complete()) return kOk;
  print_error("the daemon did not send the log to its end", "repeat the command");
  return kFailed;
}

// --- set ---

json stack_settings(const StackFlags& flags) {
  json body = json::object();
  if (flags.reset)
    for (const char* field : {"vram_bytes", "devices", "tier", "exclusive", "pausable"}) body[field] = nullptr;
  if (flags.vram) body["vram_bytes"] = flags.vram->count;
  if (flags.gpus) body["devices"] = *flags.gpus;
  if (!flags.tier.empty()) body["tier"] = flags.tier;
  if (!flags.exclusive.empty()) body["exclusive"] = flags.exclusive == "yes";
  if (!flags.pausable.empty()) body["pausable"] = flags.pausable == "yes";
  return body;
}

int set_stack(const Common& common, const StackFlags& flags) {
  const json body = stack_settings(flags);
  if (body.empty())
    return usage_error("stack set needs --vram, --gpus, --tier, --exclusive, --pausable or --reset",
                       "for example: sublet stack set chat --vram 8GiB");
  return change_stack(common, stack_post(stack_target(flags.name, "/set"), body), [&](const json& stack) {
    return fmt::format("the next start of stack {} asks for {} of the tier {} ({})", text_at(stack, "name"),
                       size_at_most(stack, "vram_bytes"), text_at(stack, "tier"), text_at(stack, "size_from"));
  });
}

// --- adopt, rm, release ---

int adopt_stack(const Common& common, const StackFlags& flags) {
  std::error_code ignored;
  const auto path = std::filesystem::absolute(flags.path, ignored).lexically_normal().string();
  json body{{"path", path}};
  if (!flags.name.empty()) body["name"] = flags.name;
  return change_stack(common, stack_post("/v1/stacks", body), [](const json& stack) {
    return fmt::format("stack {} is {}", text_at(stack, "name"), text_at(stack, "file"));
  });
}

int release_stack(const Common& common, const StackFlags& flags) {
  const json body = flags.down ? json{{"down", true}} : json::object();
  return change_stack(common, stack_post(stack_target(flags.name, "/release"), body), [](const json& stack) {
    return fmt::format("stack {} is {}", text_at(stack, "name"), text_at(stack, "state"));
  });
}

// Repeats a call until the stack can be used, or is not acquired any more.
int change_until_usable(const Common& common, const StackFlags& flags, const std::string& first, json body) {
  auto client = connect(common);
  if (!client) return fail(common, client.error());
  std::string call = first, told;
  for (;;) {
    const auto reply = client->call(stack_post(stack_target(flags.name, call), body), stack_poll_time + 60s);
    if (!reply) return fail(common, reply.error());
    const auto stack = client::parse(*reply);
    if (!stack) return fail(common, stack.error());
    const std::string state = text_at(*stack, "state"), lease = text_at(*stack, "lease_state");
    const bool waits = state == "creating" || state == "starting" || (state == "ready" && lease != "active");
    std::string line = stack_phrase(*stack, look_for(common));
    if (waits && lease != "active") line += why_inactive(common, *client, text_at(*stack, "lease"));
    if (!waits && common.json) fmt::print("{}\n", reply->text);
    else if (line != std::exchange(told, line)) say(common, "sublet: " + line);
    if (!waits) return state == "ready" || first == "/renew" ? kOk : kFailed;
    call = "/renew";
    body = json{{"wait_seconds", (lease == "pausing" ? Duration(2s) : stack_poll_time) / 1s}};
  }
}

int renew_stack(const Common& common, const StackFlags& flags) {
  json body = json::object();
  if (flags.ttl) body["ttl_seconds"] = *flags.ttl / 1s;
  return change_until_usable(common, flags, "/renew", std::move(body));
}

int restart_stack(const Common& common, const StackFlags& flags) {
  return change_until_usable(common, flags, "/restart", json::object());
}

int pull_stack(const Common& common, const StackFlags& flags) {
  constexpr auto longest_pull = 6h;
  auto client = connect(common);
  if (!client) return fail(common, client.error());
  const auto reply = client->call(stack_post(stack_target(flags.name, "/pull"), json::object()), longest_pull);
  if (!reply) return fail(common, reply.error());
  if (common.json) fmt::print("{}\n", reply->text);
  else say(common, fmt::format("sublet: the images of stack {} are pulled", visible(flags.name)));
  return kOk;
}

void declare_acquire(Command verb, StackFlags& flags) {
  verb.ttl("--ttl", flags.ttl, "Time to live, from ready and from each renewal (default: stacks.ttl)");
  verb.taken(
          "--wait",
          [&flags](const std::string& text) -> Status {
            flags.wait = true;
            if (text == no_limit) return {};
            const auto time = parse_duration(text);
            if (!time)
              return bad_request(fmt::format("'{}' is no duration", printable(text)),
                                 "write the name of the stack before --wait, or a time such as --wait=10m");
            flags.wait_at_most = *time;
            return {};
          },
          "Wait for its memory and for other users of the stack, at most DURATION")
      .maybe_value(no_limit)
      .type("DURATION");
  verb.option("--owner", flags.owner, "Label that others see").type("TEXT");
  verb.option("--priority", flags.priority, "Place in the queue; higher goes first").type("N");
}

void declare_set(Command verb, StackFlags& flags) {
  verb.size("-m,--vram", flags.vram, "Size of its lease on each device");
  verb.option("--gpus", flags.gpus, "Number of devices").type("N").between(1, 1024);
  verb.option("--tier", flags.tier, "Tier of its lease")
      .type("TIER")
      .one_of({"critical", "interactive", "standard", "batch", "spot"});
  verb.option("--exclusive", flags.exclusive, "Whether it takes whole devices").type("yes|no").one_of({"yes", "no"});
  verb.option("--pausable", flags.pausable, "Whether it may be paused for others (default: yes)")
      .type("yes|no")
      .one_of({"yes", "no"});
  verb.flag("--reset", flags.reset, "Forget the settings that are not given");
}

}  // namespace

Action add_stack(Command command, Common& common) {
  auto flags = std::make_shared<StackFlags>();
  const Command list = command.verb("ls", "List the stacks");
  const Command get = command.verb("acquire", "Start stacks under leases, and wait until they are ready");
  const Command give = command.verb("release", "Give a stack back; it stays up until its memory is needed");
  const Command again = command.verb("renew", "Start the time to live of an acquired stack again");
  const Command restart = command.verb("restart", "Replace the containers of an acquired stack");
  const Command pull = command.verb("pull", "Pull the images of a stack");
  const Command status = command.verb("status", "Show one stack with its containers");
  const Command log = command.verb("logs", "Print the output of its containers");
  const Command take = command.verb("adopt", "Add a stack that is outside of stacks.dir");
  const Command setting = command.verb("set", "Set size and tier of the next start");
  const Command remove = command.verb("rm", "Forget an adopted stack that is down");
  get.option("NAME", flags->names, "Names of the stacks; all of them or none")
      .required()
      .type("NAME")
      .offers(Offer::Of::stacks);
  for (const Command& verb : {give, again, restart, pull, status, log, setting, remove})
    verb.option("NAME", flags->name, "Name of the stack").required().not_empty().type("NAME").offers(Offer::Of::stacks);
  declare_acquire(get, *flags);
  again.ttl("--ttl", flags->ttl, "New time to live (default: as before)");
  give.flag("--down", flags->down, "Bring it down now");
  log.flag("-f,--follow", flags->follow, "Go on with new lines");
  log.option("-n,--lines", flags->lines, "Last lines of each container (default 80)").type("N").between(0, 10'000);
  log.option("--service", flags->service, "Only this service").type("SERVICE");
  take.option("PATH", flags->path, "Directory with a Compose file, or the file")
      .required()
      .type("PATH")
      .offers(Offer::Of::files);
  take.option("--name", flags->name, "Name of the stack (default: the name of its directory)").type("NAME");
  declare_set(setting, *flags);
  for (const Command& verb : {get, give, again, restart, pull, status, take, setting, remove}) add_json(verb, common);
  add_table_flags(list, common);
  for (const Command& verb : {list, get, give, again, restart, pull, status, log, take, setting, remove})
    add_common(verb, common);
  command.footer(
      "A stack is a Docker Compose project. An acquired stack is up under a lease until\n"
      "it is released or its time to live is over. Then it stays up under a spot lease,\n"
      "and is brought down when another lease needs the memory. Only an admin may\n"
      "adopt, set, pull and remove. Stacks are off by default (stacks.enabled).");
  return [&common, flags, list, get, give, again, restart, pull, status, log, take, setting, remove] {
    if (get.parsed()) return acquire_stack(common, *flags);
    if (give.parsed()) return release_stack(common, *flags);
    if (again.parsed()) return renew_stack(common, *flags);
    if (restart.parsed()) return restart_stack(common, *flags);
    if (pull.parsed()) return pull_stack(common, *flags);
    if (log.parsed()) return stack_logs(common, *flags);
    if (take.parsed()) return adopt_stack(common, *flags);
    if (setting.parsed()) return set_stack(common, *flags);
    if (remove.parsed())
      return change_stack(
          common, {"DELETE", stack_target(flags->name), {}, client::new_idempotency_key(), {}},
          [](const json& stack) { return fmt::format("stack {} is forgotten", text_at(stack, "name")); });
    if (status.parsed())
      return show(common, stack_target(flags->name), [&](const json& stack, client::Client&) -> Result<std::string> {
        return render_stack(stack, look_for(common));
      });
    if (list.parsed())
      return show(common, "/v1/stacks", [&](const json& body, client::Client&) {
        const std::string problem = text_at(member(body, "engine"), "problem");
        return with_remark(common, render_stacks(body, common, look_for(common)),
                           !problem.empty() ? problem
                           : list_at(body, "stacks").empty()
                               ? "no stack was found: see stacks.dir and sublet stack adopt"
                               : "");
      });
    return usage_error("stack needs a verb: ls, acquire, release, renew, restart, pull, status, logs, adopt, set or rm",
                       "for example: sublet stack ls");
  };
}

}  // namespace sublet::cli
