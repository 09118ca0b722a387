// SPDX-License-Identifier: Apache-2.0
// `tenant`: guarantees, limits and weights of teams and users.
#include "cli/fetch.h"
#include "cli/render.h"
#include "cli/tenant_file.h"
#include "config/schema.h"

#include <fmt/format.h>

#include <memory>

namespace sublet::cli {
namespace {

using nlohmann::json;

struct TenantFlags {
  std::string file, name;
  std::vector<std::string> fields;
  bool dry_run = false, recursive = false;
};

constexpr std::size_t most_problems = 10;

int print_tenant_problems(const Common& common, const config::Loaded& loaded) {
  if (common.json) {
    const config::Problem& first = loaded.problems.front();
    (void)fail(common, bad_request(config::without_hint(first), first.hint));
    return kBadConfig;
  }
  for (std::size_t i = 0; i < std::min(most_problems, loaded.problems.size()); ++i)
    print_error(config::without_hint(loaded.problems[i]), loaded.problems[i].hint);
  if (loaded.problems.size() > most_problems)
    fmt::print(stderr, "sublet: and {} more problems\n", loaded.problems.size() - most_problems);
  return kBadConfig;
}

// Prints what a change of the tree changed, or would change.
int tell_changes(const Common& common, const json& answer, const std::string& text) {
  if (common.json) {
    fmt::print("{}\n", text);
    return kOk;
  }
  fmt::print("{}", render_tenant_changes(answer, look_for(common)));
  std::map<std::string, int> counts;
  for (const json& change : list_at(answer, "changes")) ++counts[text_at(change, "change")];
  if (counts.empty()) say(common, "the tree has these tenants already: nothing changes");
  else if (flag_at(answer, "dry_run")) say(common, "nothing was changed (--dry-run)");
  else
    say(common, fmt::format("{} added, {} changed, {} removed", counts["added"], counts["changed"], counts["removed"]));
  return kOk;
}

int tell_changes(const Common& common, const client::Answer<client::Reply>& reply) {
  if (!reply) return fail(common, reply.error());
  const auto answer = client::parse(*reply);
  if (!answer) return fail(common, answer.error());
  return tell_changes(common, *answer, reply->text);
}

int apply_file(const Common& common, const TenantFlags& flags) {
  const config::Loaded loaded = config::load_named(flags.file, config::tenant_schema());
  if (!loaded.problems.empty()) return print_tenant_problems(common, loaded);
  const json tenants = tenants_in(loaded);
  if (tenants.empty())  // a file that was cut short would remove the whole tree
    return fail(common, bad_request(fmt::format("{} describes no tenant", flags.file),
                                    "remove tenants by name: sublet tenant rm NAME"));
  auto client = connect(common);
  if (!client) return fail(common, client.error());
  const json body{{"tenants", tenants}, {"dry_run", flags.dry_run}};
  auto reply = client->post("/v1/tenants", body);
  if (reply) return tell_changes(common, reply);
  client::Failure failure = reply.error();
  failure.error = in_tenant_file(std::move(failure.error), loaded);
  return fail(common, failure);
}

int list_tenants(const Common& common) {
  return show(common, "/v1/tenants", [&](const json& body, client::Client&) -> Result<std::string> {
    if (list_at(body, "tenants").empty())
      say(common, "there are no tenants; describe them in a file: sublet tenant apply FILE");
    return render_tenants(body, common, look_for(common));
  });
}

int show_tenant(const Common& common, const TenantFlags& flags) {
  return show(common, "/v1/tenants/" + client::encode(flags.name),
              [&](const json& body, client::Client& client) -> Result<std::string> {
                Look look = look_for(common);
                if (!list_at(body, "rotations").empty()) learn_devices(ask_also(client, "/v1/devices"), look);
                return render_tenant(body, look);
              });
}

int set_tenant(const Common& common, const TenantFlags& flags) {
  auto fields = tenant_fields(flags.fields);
  if (!fields) return fail(common, fields.error());
  if (flags.dry_run) (*fields)["dry_run"] = true;
  auto client = connect(common);
  if (!client) return fail(common, client.error());
  const std::string target = "/v1/tenants/" + client::encode(flags.name);
  return tell_changes(common,
                      client->call({"POST", target, client::to_text(*fields), client::new_idempotency_key(), {}}));
}

int remove_tenant(const Common& common, const TenantFlags& flags) {
  auto client = connect(common);
  if (!client) return fail(common, client.error());
  std::string target = "/v1/tenants/" + client::encode(flags.name);
  const char* separator = "?";
  for (const auto& [name, given] : {std::pair("recursive", flags.recursive), std::pair("dry_run", flags.dry_run)}) {
    if (!given) continue;
    target += fmt::format("{}{}=true", separator, name);
    separator = "&";
  }
  return tell_changes(common, client->call({"DELETE", target, {}, {}, {}}));
}

}  // namespace

Action add_tenant(Command command, Common& common) {
  auto flags = std::make_shared<TenantFlags>();
  const Command apply_command = command.verb("apply", "Replace the tree of tenants by that of a file");
  apply_command.option("FILE", flags->file, "A TOML file with one [[tenant]] table for each tenant")
      .required()
      .type("FILE")
      .offers(Offer::Of::files);
  const Command list_command = command.verb("ls", "List tenants: quota, limit, weight, and what they hold");
  const Command show_command = command.verb("show", "Show one tenant");
  const Command set_command = command.verb("set", "Change or add one tenant");
  const Command remove_command = command.verb("rm", "Remove a tenant; its leases go on");
  for (const Command& sub : {show_command, set_command, remove_command})
    sub.option("NAME", flags->name, "Name of the tenant").required().type("NAME").offers(Offer::Of::tenants);
  set_command.option("CHANGE", flags->fields, "Keys as in a file, such as quota=4GiB; `limit=` states it no more")
      .required()
      .type("KEY=VALUE...");
  remove_command.flag("--recursive", flags->recursive, "Remove the tenants below it too");
  for (const Command& sub : {apply_command, set_command, remove_command})
    sub.flag("--dry-run", flags->dry_run, "Only print what would change, and for which leases");
  for (const Command& sub : {apply_command, show_command, set_command, remove_command}) add_json(sub, common);
  add_table_flags(list_command, common);
  for (const Command& sub : {apply_command, list_command, show_command, set_command, remove_command})
    add_common(sub, common);
  command.footer(
      "A tenant is a team, a project or a user that leases are charged to. Its quota is\n"
      "guaranteed to it; others may borrow what it does not use, and are paused when it\n"
      "asks for it. Only an admin changes tenants. Others see their own tenants and\n"
      "those above.");
  return [&common, flags, apply_command, list_command, show_command, set_command, remove_command] {
    if (apply_command.parsed()) return apply_file(common, *flags);
    if (list_command.parsed()) return list_tenants(common);
    if (show_command.parsed()) return show_tenant(common, *flags);
    if (set_command.parsed()) return set_tenant(common, *flags);
    if (remove_command.parsed()) return remove_tenant(common, *flags);
    return usage_error("tenant needs a verb: apply, ls, show, set or rm", "for example: sublet tenant ls");
  };
}

}  // namespace sublet::cli
