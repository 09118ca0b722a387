// SPDX-License-Identifier: Apache-2.0
// `cooperate`: a program says how it yields by itself. Called from inside of it, by a shell script or by hand.
#include "cli/fetch.h"
#include "cli/lease_verb.h"
#include "cli/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

namespace sublet::cli {
namespace {

using nlohmann::json;

struct CooperateFlags {
  LeaseVerb verb;
  bool signal = false;
  std::string pause_signal, resume_signal;
  std::string webhook;
  std::optional<int> pid;
  std::optional<Bytes> residue;
  bool withdraw = false;
};

json body_of(const CooperateFlags& flags) {
  json body = {{"residue_bytes", flags.residue.value_or(Bytes{}).count}};
  if (!flags.webhook.empty()) {
    body["way"] = "webhook";
    body["url"] = flags.webhook;
    return body;
  }
  body["way"] = "signal";
  // The script that calls this, not this.
  body["pid"] = flags.pid.value_or(static_cast<int>(::getppid()));
  if (!flags.pause_signal.empty()) body["pause_signal"] = flags.pause_signal;
  if (!flags.resume_signal.empty()) body["resume_signal"] = flags.resume_signal;
  return body;
}

void tell(const Common& common, const CooperateFlags& flags, const json& now) {
  const std::string lease = text_at(now, "lease");
  const json& registered = member(now, "registered");
  if (flags.withdraw) return say(common, fmt::format("the program of {} is no longer cooperative", lease));
  if (!flags.signal) {
    return say(common, fmt::format("the program of {} is cooperative: the daemon calls {}", lease,
                                   visible(text_at(registered, "url"))));
  }
  say(common, fmt::format("the program of {} is cooperative: process {} gets SIG{} to yield and SIG{} to resume", lease,
                          number_at(registered, "pid").value_or(0), text_at(registered, "pause_signal"),
                          text_at(registered, "resume_signal")));
  fmt::print("{}\n", text_at(registered, "answer_file"));
}

int cooperate(const Common& common, CooperateFlags flags) {
  const char* outer = std::getenv("SUBLET_LEASE");
  if (flags.verb.lease.empty() && outer != nullptr) flags.verb.lease = outer;
  if (flags.verb.lease.empty())
    return usage_error("cooperate needs LEASE", "name the lease, or call this from a program under `sublet run`");
  if (!flags.signal && flags.webhook.empty() && !flags.withdraw)
    return usage_error("cooperate needs a way to reach the program", "give --signal, --webhook URL or --withdraw");
  auto client = connect(common);
  if (!client) return fail(client.error());
  const auto token = read_token(flags.verb);
  if (!token) return fail(token.error());
  const std::string target = lease_target(flags.verb, "/cooperate");
  const auto reply = flags.withdraw ? client->call({"DELETE", target, {}, {}, *token})
                                    : client->call({"POST", target, client::to_text(body_of(flags)), {}, *token});
  if (!reply) return fail(common, reply.error());
  if (common.json) {
    fmt::print("{}\n", reply->text);
    return kOk;
  }
  const json now = json::parse(reply->text, nullptr, false);
  if (!now.is_object())
    return fail(unavailable("the daemon's answer is not JSON",
                            "compare the versions of daemon and command line: sublet doctor"));
  tell(common, flags, now);
  return kOk;
}

}  // namespace

Action add_cooperate(Command command, Common& common) {
  auto flags = std::make_shared<CooperateFlags>();
  command.option("LEASE", flags->verb.lease, "Id or tag of the lease (default: SUBLET_LEASE, which `sublet run` sets)")
      .type("LEASE")
      .offers(Offer::Of::leases);
  command
      .option("--token-file", flags->verb.token_file, "File with the lease's token (default: SUBLET_LEASE_TOKEN_FILE)")
      .type("FILE")
      .offers(Offer::Of::files);
  const Option signal = command.flag("--signal", flags->signal,
                                     "The program gets signals and answers in the file that this command prints");
  const std::vector<std::string> signals{"USR1", "USR2", "HUP", "SIGUSR1", "SIGUSR2", "SIGHUP"};
  command.option("--pause-signal", flags->pause_signal, "Signal for a yield order: USR1, USR2 or HUP (USR1)")
      .type("NAME")
      .one_of(signals);
  command.option("--resume-signal", flags->resume_signal, "Signal for a resume order: USR1, USR2 or HUP (USR2)")
      .type("NAME")
      .one_of(signals);
  command.option("--pid", flags->pid, "Process of the program that gets the signals (the caller of this command)")
      .type("PID");
  const Option webhook = command
                             .option("--webhook", flags->webhook,
                                     "The daemon calls this: http://127.0.0.1:PORT/PATH or unix:/SOCKET:/PATH")
                             .type("URL");
  webhook.excludes(signal);
  command.size("--residue", flags->residue, "VRAM that the program keeps on each device while it is paused (0)");
  const Option withdraw = command.flag("--withdraw", flags->withdraw, "The program is no longer cooperative");
  withdraw.excludes(signal);
  withdraw.excludes(webhook);
  add_json(command, common);
  command.footer(
      "A cooperative program frees its VRAM itself when it gets a yield order. If it\n"
      "does not, the driver parks it, unless --pausable forbids that. With --signal,\n"
      "install both signal handlers before you call this. After a yield order, the\n"
      "program writes `yielded` or `refused: WHY` into the file; after a resume order,\n"
      "`resumed`. Each answer ends with a line feed. C programs use libsublet.\n"
      "docs/cooperative.md has an example of each way.");
  return [&common, flags] { return cooperate(common, *flags); };
}

}  // namespace sublet::cli
