// SPDX-License-Identifier: Apache-2.0
// `enforce` and `approve`: policies for processes without a lease, and exceptions from them.
#include "base/clock.h"
#include "cli/fetch.h"
#include "cli/render.h"

#include <fmt/format.h>

#include <memory>

namespace sublet::cli {
namespace {

using nlohmann::json;

struct EnforceFlags {
  bool preview = false;
  std::optional<Moment> since;
  std::string subject;
  std::string set_subject, policy, id;
  bool graphics = false;
};

struct ApproveFlags {
  std::string subject;
  std::optional<Moment> until;
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
  if (const std::string warning = text_at(*body, "warning"); !common.json && !warning.empty())
    say(common, fmt::format("sublet: {}; check the name", visible(warning)));
  return kOk;
}

client::Request post(const char* target, const json& body) {
  return {"POST", target, client::to_text(body), client::new_idempotency_key(), {}};
}

client::Request erase(const char* target, const std::string& id) {
  return {"DELETE", target + client::encode(id), {}, {}, {}};
}

int set_policy(const Common& common, const EnforceFlags& flags) {
  json body{{"subject", flags.set_subject}, {"policy", flags.policy}};
  if (flags.graphics) body["graphics"] = true;
  return change(common, post("/v1/policies", body), [](const json& rule) {
    return fmt::format("policy {}: {} for {}{}", number_at(rule, "id").value_or(0), text_at(rule, "policy"),
                       visible(text_at(rule, "subject")),
                       flag_at(rule, "graphics") ? ", and for processes that only draw" : "");
  });
}

int preview(const Common& common, const EnforceFlags& flags) {
  std::string target = "/v1/enforcer/preview?since=" + (flags.since ? client::encode(to_query(*flags.since)) : "7d");
  if (!flags.subject.empty()) target += "&subject=" + client::encode(flags.subject);
  return show(common, target, [&](const json& body, client::Client&) {
    return with_remark(common, render_enforcement_preview(body, common, look_for(common)),
                       list_at(body, "would_end").empty() && list_at(body, "spared").empty()
                           ? "the policy enforce would have ended nothing"
                           : "");
  });
}

}  // namespace

Action add_enforce(Command command, Common& common) {
  auto flags = std::make_shared<EnforceFlags>();
  command.flag("--preview", flags->preview,
               "List the processes that the policy enforce would end now, and would have ended; end none");
  command.moment("--since", flags->since, Tense::past, "With --preview: how far to look back, or from when on (7d)");
  command.option("--for", flags->subject, "With --preview: only these processes").type("SUBJECT");
  const Command set = command.verb("set", "Set the policy for a user or a control group; it holds at once");
  set.option("SUBJECT", flags->set_subject, "user:NAME or cgroup:PATH").required().type("SUBJECT");
  set.option("POLICY", flags->policy, "observe, warn, adopt or enforce")
      .required()
      .type("POLICY")
      .one_of({"observe", "warn", "adopt", "enforce"});
  set.flag("--graphics", flags->graphics, "Include processes that only draw, such as display servers and browsers");
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
      "configuration (enforcer.policy) has the default. Processes that only draw are\n"
      "observed, unless a policy was set with --graphics. Only an admin may change\n"
      "these rules.");
  return [&common, flags, set, list, remove] {
    if (set.parsed())
      return set_policy(common, *flags);
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
  command.moment("--until", flags->until, Tense::future,
                 "End of the approval: a day, a time, or so long from now (default: never)");
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
    if (flags->until) {
      const Time now = wall_time();
      const Duration left = flags->until->distance.value_or(flags->until->at - now);
      if (left < std::chrono::seconds(1))
        return usage_error(fmt::format("--until: {} is not in the future", format_rfc3339(flags->until->at)),
                           "for example --until 12h, or --until tomorrow");
      body["ttl_seconds"] = left / std::chrono::seconds(1);
    }
    if (!flags->reason.empty()) body["reason"] = flags->reason;
    return change(common, post("/v1/approvals", body), [](const json& rule) {
      return fmt::format("approval {}: {}", number_at(rule, "id").value_or(0), visible(text_at(rule, "subject")));
    });
  };
}

}  // namespace sublet::cli
