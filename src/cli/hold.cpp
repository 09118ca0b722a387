// SPDX-License-Identifier: Apache-2.0
// `sublet hold`: a lease without a program. In the foreground this command is its owner; with --pid a process is, with
// --token-file whoever has the token.
#include "base/size_bounds.h"
#include "cli/acquire.h"
#include "cli/fetch.h"
#include "cli/lease_flags.h"
#include "cli/talk.h"
#include "cli/token_file.h"

#include <fmt/format.h>

#include <memory>

#include <climits>

namespace sublet::cli {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

struct HoldFlags {
  LeaseFlags lease;
  int pid = 0;
  std::string token_file;
};

class Hold {
 public:
  Hold(const Common& common, const HoldFlags& flags, client::Client client)
      : common_(common), flags_(flags), client_(std::move(client)) {}

  int go();

 private:
  const Common& common_;
  const HoldFlags& flags_;
  client::Client client_;

  std::string consumer() const { return flags_.lease.name.empty() ? "hold" : flags_.lease.name; }
  json body(Bytes vram) const;
  void print(const Acquired& acquired);
  int stay(Talk& talk, keep::Events& events, keep::Signals& signals, const Acquired& acquired);
};

json Hold::body(Bytes vram) const {
  json body = lease_body(flags_.lease, consumer(), vram);
  if (flags_.pid != 0) body["owner"] = {{"pid", flags_.pid}};
  else if (flags_.token_file.empty()) body["owner"] = {{"connection", true}};
  if (flags_.lease.no_wait) body["queue"] = false;
  return body;
}

int Hold::go() {
  const auto reply = meet(common_, client_);
  if (!reply) return fail(common_, reply.error());
  const auto status = client::parse(*reply);
  if (!status) return fail(common_, status.error());
  Look look = look_for(common_);
  learn_devices(*status, look);
  Talk talk(common_, -1, false, look);
  TokenFile file("--token-file");
  if (!flags_.token_file.empty() && !flags_.lease.dry_run) {
    if (const auto created = file.create(flags_.token_file); !created) return fail(created.error());
  }
  const auto size = choose_size(flags_.lease, {consumer()}, *status, client_);
  if (!size) return fail(size.error());
  if (!size->why.empty()) talk.say(fmt::format("asking for {}: {}", format_size_down(size->bytes), size->why));
  if (flags_.lease.dry_run) return dry_run(common_, client_, body(size->bytes), look);
  keep::Signals signals;
  keep::Events events;
  client_.set_interrupt(events.interrupt());
  const keep::Listener listener = talk.listener();
  const Wanted wanted{common_.verb, common_.json, body(size->bytes), flags_.lease.wait, [&](const std::string& token) {
                        if (!file.exists()) return true;  // none was asked for
                        const Status written = file.write(token);
                        if (!written) print_error(written.error().detail, "name another file: --token-file FILE");
                        return static_cast<bool>(written);
                      }};
  auto acquired = Acquire(client_, events, signals, listener, talk.line()).run(wanted);
  if (const int* code = std::get_if<int>(&acquired)) return *code;  // the token's file goes with it
  file.keep();
  const auto& got = std::get<Acquired>(acquired);
  print(got);
  return flags_.pid != 0 || !flags_.token_file.empty() ? kOk : stay(talk, events, signals, got);
}

void Hold::print(const Acquired& acquired) {
  const client::Lease& lease = acquired.lease;
  if (common_.json) {
    fmt::print("{}\n", acquired.told.dump());
  } else {
    fmt::print("{}\n", lease.id);
    say(common_,
        visible(fmt::format("sublet: {} is {}: {} on {}{}", lease.id, lease.state, format_size_down(lease.vram),
                            lease.devices.size() > 1 ? "each of " : "", names_of(common_, lease.devices))));
  }
  std::fflush(stdout);  // a reader of the pipe waits for the id
}

// Owns the lease until a signal comes or the lease is ended elsewhere.
int Hold::stay(Talk& talk, keep::Events& events, keep::Signals& signals, const Acquired& acquired) {
  const keep::Listener listener = talk.listener();
  const auto go = [&](const keep::Signal&) { events.cancel(); };
  events.watch(signals.fd(), [&signals, go] { signals.take({.leave = go}); });
  client::Lease lease = acquired.lease;
  while (!events.cancelled() && !lease.ended()) {
    const auto target = fmt::format("/v1/leases/{}?wait=60s&since={}&stopping=false", client::encode(lease.id),
                                    client::encode(lease.state));
    const auto reply = client_.insist({"GET", target, {}, {}, acquired.token}, keep::patience(listener), 90s);
    if (!reply && reply.error().kind == client::FailureKind::cancelled) break;
    if (!reply) return fail(common_, reply.error());
    const auto now = client::parse_lease(reply->text);
    if (!now) return fail(common_, now.error());
    if (now->granted() && now->state != lease.state)
      if (const std::string line = keep::news(*now); !line.empty())
        now->state == "poisoned" ? talk.fail(line) : talk.say(line);
    lease = *now;
    // There is no program to end: a stop ends the lease.
    if (lease.stopping) break;
  }
  if (lease.ended()) {
    print_error(fmt::format("{} has ended ({})", lease.id, lease.end_reason), "see: sublet why " + lease.id);
    return kFailed;
  }
  events.resume();
  client::Patience brief;
  brief.limit = 5s;
  const auto reply = client_.insist(
      {"POST", fmt::format("/v1/leases/{}/release", client::encode(lease.id)), "{}", {}, acquired.token}, brief, 5s);
  if (!reply) return fail(common_, reply.error());
  talk.say(fmt::format("{} is released", lease.id));
  return kOk;
}

int hold(const Common& common, const HoldFlags& flags) {
  if (!flags.token_file.empty() && !flags.lease.ttl) {
    return usage_error(
        "--token-file needs --ttl: the lease has no owner process, so it must expire unless it is renewed",
        "for example: --ttl 10m, then: sublet renew LEASE");
  }
  auto client = connect(common);
  if (!client) return fail(client.error());
  return Hold(common, flags, std::move(*client)).go();
}

}  // namespace

Action add_hold(Command command, Common& common) {
  auto flags = std::make_shared<HoldFlags>();
  add_lease_flags(command, flags->lease);
  const Option pid = command.option("--pid", flags->pid, "Make this process the owner of the lease, and return")
                         .type("P")
                         .between(1, INT_MAX);
  command.option("--token-file", flags->token_file, "Write the lease's token to this new file, and return; needs --ttl")
      .type("FILE")
      .offers(Offer::Of::files)
      .excludes(pid);
  add_json(command, common);
  command.footer(
      "Prints the lease's id once the lease is granted. In the foreground, the command\n"
      "holds the lease until Ctrl-C releases it.");
  return [&common, flags] { return hold(common, *flags); };
}

}  // namespace sublet::cli
