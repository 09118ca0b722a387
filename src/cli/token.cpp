// SPDX-License-Identifier: Apache-2.0
// `token`: access tokens for callers over TCP. The secret is shown once, or written to a file.
#include "cli/fetch.h"
#include "cli/render.h"
#include "cli/token_file.h"

#include <fmt/format.h>

#include <memory>

namespace sublet::cli {
namespace {

using nlohmann::json;

struct TokenFlags {
  std::string scope = "read";
  std::string name;
  std::optional<Duration> ttl;
  std::string file;
  std::string id;
};

// A token may be created before it can be used, but its owner should know.
void warn_without_tcp(const Common& common, client::Client& client) {
  const json status = ask_also(client, "/v1/status");
  if (member(status, "daemon").is_object() && text_at(member(status, "daemon"), "tcp").empty())
    say(common, "the token cannot be used yet: tokens are for callers over TCP, and `api.tcp` is not set");
}

int create(const Common& common, const TokenFlags& flags) {
  auto client = connect(common);
  if (!client) return fail(client.error());
  TokenFile file("--file");
  if (!flags.file.empty()) {
    if (const Status made = file.create(flags.file); !made) return fail(made.error());
  }
  json body = {{"scope", flags.scope}};
  if (!flags.name.empty()) body["name"] = flags.name;
  if (flags.ttl) body["ttl_seconds"] = std::chrono::duration_cast<std::chrono::seconds>(*flags.ttl).count();
  const auto reply = client->post("/v1/tokens", body);
  if (!reply) return fail(common, reply.error());
  const auto made = client::parse(*reply);
  if (!made) return fail(common, made.error());
  if (file.exists()) {
    if (const Status written = file.write(text_at(*made, "token")); !written) {
      print_error(written.error().detail, fmt::format("sublet token revoke {}", text_at(*made, "id")));
      return kFailed;
    }
    file.keep();
    json shown = *made;
    shown.erase("token");
    if (common.json) fmt::print("{}\n", shown.dump());
    else fmt::print("{}\n", text_at(*made, "id"));
    say(common, fmt::format("to use the token: export SUBLET_TOKEN_FILE={}", visible(flags.file)));
    warn_without_tcp(common, *client);
    return kOk;
  }
  if (common.json) fmt::print("{}\n", reply->text);
  else fmt::print("{}\n", text_at(*made, "token"));
  say(common, fmt::format("{} is shown only now; --file writes it to a file instead", text_at(*made, "id")));
  warn_without_tcp(common, *client);
  return kOk;
}

int list(const Common& common) {
  return show(common, "/v1/tokens", [&](const json& body, client::Client&) -> Result<std::string> {
    if (list_at(body, "tokens").empty()) say(common, "there are no tokens; create one: sublet token create");
    return render_tokens(body, common, look_for(common));
  });
}

int revoke(const Common& common, const TokenFlags& flags) {
  auto client = connect(common);
  if (!client) return fail(client.error());
  const auto reply = client->call({"DELETE", "/v1/tokens/" + client::encode(flags.id), {}, {}, {}});
  if (!reply) return fail(common, reply.error());
  if (common.json) fmt::print("{}\n", reply->text);
  else say(common, fmt::format("{} is revoked", visible(flags.id)));
  return kOk;
}

}  // namespace

Action add_token(Command command, Common& common) {
  auto flags = std::make_shared<TokenFlags>();
  const Command create_command = command.verb("create", "Create a token and print it, this once");
  create_command
      .option("--scope", flags->scope, "read: see the tables; submit: read, and manage your leases; admin: everything")
      .type("SCOPE")
      .one_of({"read", "submit", "admin"})
      .show_default();
  create_command.option("--name", flags->name, "A name for the token").type("NAME");
  create_command.ttl("--ttl", flags->ttl, "Time until the token expires (default: never)");
  create_command.option("--file", flags->file, "Write the token to this new file instead of stdout")
      .type("FILE")
      .offers(Offer::Of::files);
  const Command list_command = command.verb("ls", "List tokens, without their secrets");
  const Command revoke_command = command.verb("revoke", "Revoke a token");
  revoke_command.option("ID", flags->id, "Id of the token, as `sublet token ls` shows it")
      .required()
      .type("ID")
      .offers(Offer::Of::tokens);
  for (const Command& sub : {create_command, revoke_command}) add_json(sub, common);
  add_table_flags(list_command, common);
  for (const Command& sub : {create_command, list_command, revoke_command}) add_common(sub, common);
  command.footer(
      "Over TCP (api.tcp), a token identifies the caller:\n"
      "SUBLET_HOST=http://127.0.0.1:PORT and SUBLET_TOKEN_FILE=FILE. A token acts for\n"
      "the user who created it.");
  return [&common, flags, create_command, list_command, revoke_command] {
    if (create_command.parsed()) return create(common, *flags);
    if (list_command.parsed()) return list(common);
    if (revoke_command.parsed()) return revoke(common, *flags);
    return usage_error("token needs a verb: create, ls or revoke", "for example: sublet token ls");
  };
}

}  // namespace sublet::cli
