// SPDX-License-Identifier: Apache-2.0
// `enforce` and `approve`: policies for processes without a lease, and exceptions from them.
#include "cli/fetch.h"
#include "cli/render.h"

#include <fmt/format.h>

#include <memory>

namespace sublet::cli {
namespace {

using nlohmann::json;

struct EnforceFlags {
  bool preview = false;
  std::string since;
  std::string subject;
  std::string set_subject, policy, id;
};

struct ApproveFlags {
  std::string subject;
  std::optional<Duration> until;
  std::string reason;
  bool list = false;
  std::string revoke;
};

// Sends the change, and prints the reply or the sentence.
int change(const Common& common, const client::Request& request, const std::function<std::string(const json&)>& done) {
  auto client = connect(common);
  if (!client) return fail(common, client.error());
  const auto reply = client->call(request);
  if (!reply) return fail(common, reply.error());
  const auto body = client::parse(*reply);
  if (!body) return fail(common, body.error());
  if (common.json) fmt::print("{}\n", reply->text);
  else say(common, done(*body));
  return kOk;
}

client::Request post(const char* target, const json& body) {
  return {"POST", target, client::to_text(body), client::new_idempotency_key(), {}};
}

client::Request erase(const char* target, const std::string& id) {
  return {"DELETE", target + client::encode(id), {}, {}, {}};
}

int preview(const Common& common, const EnforceFlags& flags) {
  std::string target = "/v1/enforcer/preview?since=" + client::encode(flags.since.empty() ? "7d" : flags.since);
  if (!flags.subject.empty()) target += "&subject=" + client::encode(flags.subject);
  return show(common, target, [&](const json& body, client::Client&) {
    return with_remark(common, render_enforcement_preview(body, common, look_for(common)),
                       list_at(body, "would_end").empty() ? "the policy enforce would have ended nothing" : "");
  });
}

}  // namespace

Action add_enforce(Command command, Common& common) {
  auto flags = std::make_shared<EnforceFlags>();
  command.flag("--preview", flags->preview,
               "List the processes that the policy enforce would have ended, and end none");
  command.option("--since", flags->since, "With --preview: how far to look back").type("DURATION");
  command.option("--for", flags->subject, "With --preview: only these processes").type("SUBJECT");
  const Command set = command.verb("set", "Set the policy for a user or a control group; it holds at once");
  set.option("SUBJECT", flags->set_subject, "user:NAME or cgroup:PATH").required().type("SUBJECT");
  set.option("POLICY", flags->policy, "observe, warn, adopt or enforce")
      .required()
      .type("POLICY")
      .one_of({"observe", "warn", "adopt", "enforce"});
  const Command list = command.verb("ls", "List the policies");
  const Command remove = command.verb("rm", "Remove a policy; the default holds again");
  remove.option("ID", flags->id, "Number of the policy, as `sublet enforce ls` shows it").required().type("ID");
  for (const Command& sub : {set, remove}) add_json(sub, common);
  add_table_flags(list, common);
  add_table_flags(command, common);
  for (const Command& sub : {set, list, remove}) add_common(sub, common);
  command.footer(
      "Policies for processes that hold GPU memory without a lease. observe: a record.\n"
      "warn: also a notice to the owner. adopt: the notice tells how the process gets a\n"
      "lease. enforce: SIGTERM after three sightings, SIGKILL after enforcer.grace. The\n"
      "configuration (enforcer.policy) has the default. Only an admin may change these.");
  return [&common, flags, set, list, remove] {
    if (set.parsed())
      return change(common, post("/v1/policies", {{"subject", flags->set_subject}, {"policy", flags->policy}}),
                    [](const json& rule) {
                      return fmt::format("policy {}: {} for {}", number_at(rule, "id").value_or(0),
                                         text_at(rule, "policy"), visible(text_at(rule, "subject")));
                    });
    if (remove.parsed())
      return change(common, erase("/v1/policies/", flags->id),
                    [&](const json&) { return fmt::format("policy {} is removed", visible(flags->id)); });
    if (list.parsed())
      return show(common, "/v1/enforcer",
                  [&](const json& body, client::Client&) { return render_policies(body, common, look_for(common)); });
    if (flags->preview) return preview(common, *flags);
    return usage_error("enforce needs a verb: set, ls or rm, or --preview", "for example: sublet enforce --preview");
  };
}

Action add_approve(Command command, Common& common) {
  auto flags = std::make_shared<ApproveFlags>();
  command.option("SUBJECT", flags->subject, "user:NAME, cgroup:PATH, unit:NAME or container:ID").type("SUBJECT");
  command.ttl("--until", flags->until, "Time after which the approval ends (default: never)");
  command.option("--reason", flags->reason, "Why these processes need no lease").type("TEXT");
  command.flag("--ls", flags->list, "List the approvals");
  command.option("--revoke", flags->revoke, "Number of an approval to revoke").type("ID");
  add_table_flags(command, common);
  command.footer(
      "Approved processes may hold GPU memory without a lease. A unit is one of the\n"
      "system's service manager. A program's path or name is no proof of what it is, so\n"
      "it cannot be approved. Only an admin may change approvals.");
  return [&common, flags] {
    if (flags->list)
      return show(common, "/v1/enforcer", [&](const json& body, client::Client&) {
        return with_remark(common, render_approvals(body, common, look_for(common)),
                           list_at(body, "approvals").empty() ? "nothing is approved" : "");
      });
    if (!flags->revoke.empty())
      return change(common, erase("/v1/approvals/", flags->revoke),
                    [&](const json&) { return fmt::format("approval {} is revoked", visible(flags->revoke)); });
    if (flags->subject.empty())
      return usage_error("approve needs a subject, --ls or --revoke",
                         "for example: sublet approve unit:ollama.service");
    json body{{"subject", flags->subject}};
    if (flags->until) body["ttl_seconds"] = *flags->until / std::chrono::seconds(1);
    if (!flags->reason.empty()) body["reason"] = flags->reason;
    return change(common, post("/v1/approvals", body), [](const json& rule) {
      return fmt::format("approval {}: {}", number_at(rule, "id").value_or(0), visible(text_at(rule, "subject")));
    });
  };
}

}  // namespace sublet::cli
