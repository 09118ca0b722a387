// SPDX-License-Identifier: Apache-2.0
// `token`: who may call the daemon over TCP. The secret is shown once, or written to a file of its own.
#include "base/fd.h"
#include "cli/fetch.h"
#include "cli/render.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
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

// Made before the token is, so that a token is never made that cannot be written down.
Result<Fd> new_file(const std::string& path) {
  Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (file) return file;
  if (errno == EEXIST) {
    return bad_request(fmt::format("the token file '{}' exists already", visible(path)),
                       "an old token is not overwritten: remove the file, or name another");
  }
  Error error = from_errno(fmt::format("the token file '{}'", visible(path)), errno);
  error.hint = "name a file in a folder that you may write: --file FILE";
  return error;
}

// It may be made before it is of use, but who waits for it to work should know.
void warn_without_tcp(const Common& common, client::Client& client) {
  const json status = ask_also(client, "/v1/status");
  if (member(status, "daemon").is_object() && text_at(member(status, "daemon"), "tcp").empty())
    say(common, "nobody can use it yet: tokens are for callers over TCP, and `api.tcp` is not set");
}

int create(const Common& common, const TokenFlags& flags) {
  auto client = connect(common);
  if (!client) return fail(client.error());
  Fd file;
  if (!flags.file.empty()) {
    auto made = new_file(flags.file);
    if (!made) return fail(made.error());
    file = std::move(*made);
  }
  json body = {{"scope", flags.scope}};
  if (!flags.name.empty()) body["name"] = flags.name;
  if (flags.ttl) body["ttl_seconds"] = std::chrono::duration_cast<std::chrono::seconds>(*flags.ttl).count();
  const auto reply = client->post("/v1/tokens", body);
  if (!reply) {
    if (file) ::unlink(flags.file.c_str());
    return fail(common, reply.error());
  }
  const auto made = client::parse(*reply);
  if (!made) return fail(common, made.error());
  const std::string line = text_at(*made, "token") + "\n";
  if (file) {
    if (::write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()) ||
        ::fsync(file.get()) != 0) {
      print_error(
          fmt::format("the token file '{}' could not be written: {}", visible(flags.file), std::strerror(errno)),
          fmt::format("sublet token revoke {}", text_at(*made, "id")));
      return kFailed;
    }
    json shown = *made;
    shown.erase("token");
    if (common.json) fmt::print("{}\n", shown.dump());
    else fmt::print("{}\n", text_at(*made, "id"));
    say(common, fmt::format("use it: export SUBLET_TOKEN_FILE={}", visible(flags.file)));
    warn_without_tcp(common, *client);
    return kOk;
  }
  if (common.json) fmt::print("{}\n", reply->text);
  else fmt::print("{}", line);
  say(common, fmt::format("{} is shown this once; --file keeps it off the screen", text_at(*made, "id")));
  warn_without_tcp(common, *client);
  return kOk;
}

int list(const Common& common) {
  return show(common, "/v1/tokens", [&](const json& body, client::Client&) -> Result<std::string> {
    if (list_at(body, "tokens").empty()) say(common, "no tokens; one is made by: sublet token create");
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
  const Command create_command = command.verb("create", "Make a token and show it this once");
  create_command.option("--scope", flags->scope, "read: the tables; submit: and leases of yours; admin: everything")
      .type("SCOPE")
      .one_of({"read", "submit", "admin"})
      .show_default();
  create_command.option("--name", flags->name, "What it is for").type("NAME");
  create_command.ttl("--ttl", flags->ttl, "Until it expires; without: until it is revoked");
  create_command.option("--file", flags->file, "Write it to this new file instead of stdout")
      .type("FILE")
      .offers(Offer::Of::files);
  const Command list_command = command.verb("ls", "List tokens; their secrets are not kept");
  const Command revoke_command = command.verb("revoke", "Let a token in no more");
  revoke_command.option("ID", flags->id, "As token ls shows it").required().type("ID").offers(Offer::Of::tokens);
  for (const Command& sub : {create_command, revoke_command}) add_json(sub, common);
  add_table_flags(list_command, common);
  for (const Command& sub : {create_command, list_command, revoke_command}) add_common(sub, common);
  command.footer(
      "Over TCP (api.tcp) a caller is known by a token:\n"
      "SUBLET_HOST=http://127.0.0.1:PORT and SUBLET_TOKEN_FILE=FILE. It acts in the\n"
      "name of the user who made it.");
  return [&common, flags, create_command, list_command, revoke_command] {
    if (create_command.parsed()) return create(common, *flags);
    if (list_command.parsed()) return list(common);
    if (revoke_command.parsed()) return revoke(common, *flags);
    return usage_error("token: say what to do", "sublet token create, ls, or revoke ID");
  };
}

}  // namespace sublet::cli
