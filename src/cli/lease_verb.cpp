// SPDX-License-Identifier: Apache-2.0
#include "cli/lease_verb.h"

#include "base/clock.h"
#include "cli/fetch.h"
#include "cli/leave.h"
#include "cli/talk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace sublet::cli {

using namespace std::chrono_literals;

void add_lease(Command command, Common& common, LeaseVerb& verb, bool required, Offer::Of offer) {
  const Option lease =
      command.option("LEASE", verb.lease, "Id or tag of the lease").not_empty().type("LEASE").offers(offer);
  if (required) lease.required();
  add_token(command, common, verb);
}

void add_token(Command command, Common& common, LeaseVerb& verb) {
  command.option("--token-file", verb.token_file, "File with the lease's token (default: SUBLET_LEASE_TOKEN_FILE)")
      .type("FILE")
      .offers(Offer::Of::files);
  add_json(command, common);
}

namespace {

constexpr const char* from_where = "this command writes a lease's token: sublet hold --token-file FILE --ttl TIME";

Error unreadable(const std::string& path, int errnum) {
  Error error = from_errno(fmt::format("cannot read the token file '{}'", visible(path)), errnum);
  error.hint = from_where;
  return error;
}

}  // namespace

Result<std::string> read_token(const LeaseVerb& verb) {
  std::string path = verb.token_file;
  const char* variable = std::getenv("SUBLET_LEASE_TOKEN_FILE");
  if (path.empty() && variable != nullptr) path = variable;
  if (path.empty()) return std::string();
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!file) return unreadable(path, errno);
  char buffer[257];
  const ssize_t n = ::read(file.get(), buffer, sizeof buffer);
  if (n < 0) return unreadable(path, errno);
  std::string token(buffer, static_cast<std::size_t>(n));
  while (!token.empty() && (token.back() == '\n' || token.back() == '\r' || token.back() == ' ')) token.pop_back();
  // A header's value must not contain characters that end the header.
  const bool plain = std::all_of(token.begin(), token.end(), [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  if (token.empty() || token.size() > 128 || !plain) {
    return bad_request(fmt::format("the file '{}' contains no token", visible(path)), from_where);
  }
  return token;
}

std::string lease_target(const LeaseVerb& verb, const std::string& call) {
  return fmt::format("/v1/leases/{}{}", client::encode(verb.lease), call);
}

int act_on_lease(const Common& common, const LeaseVerb& verb, const std::string& call, const nlohmann::json& body,
                 const std::function<std::string(const client::Lease&)>& done) {
  auto client = connect(common);
  if (!client) return fail(client.error());
  const auto token = read_token(verb);
  if (!token) return fail(token.error());
  const auto reply = client->call({"POST", lease_target(verb, call), client::to_text(body), {}, *token});
  if (!reply) return fail(common, reply.error());
  if (common.json) {
    fmt::print("{}\n", reply->text);
    return kOk;
  }
  const auto lease = client::parse_lease(reply->text);
  if (!lease) return fail(common, lease.error());
  say(common, visible(done(*lease)));
  return kOk;
}

client::Answer<Ended> wait_for_end(const Common& common, client::Client& client, const LeaseVerb& verb,
                                   const std::string& token) {
  Talk talk(common, -1, false, Look{});
  const keep::Listener listener = talk.listener();
  // The first answer decides whether there is a daemon and such a lease at all; after it, a restart is outlived.
  auto reply = client.call({"GET", lease_target(verb), {}, {}, token});
  for (bool told = false;;) {
    if (!reply) return reply.error();
    auto lease = client::parse_lease(reply->text);
    if (!lease) return lease.error();
    if (lease->ended()) return Ended{std::move(*lease), std::move(*reply)};
    // It does not end by itself.
    if (lease->state == "poisoned" && !lease->stopping && !std::exchange(told, true)) talk.fail(keep::news(*lease));
    const std::string call = fmt::format("?wait=60s&since={}", client::encode(lease->state));
    reply = client.insist({"GET", lease_target({lease->id, {}}, call), {}, {}, token}, keep::patience(listener), 90s);
  }
}

std::variant<nlohmann::json, int> wait_until_settled(const Common& common, client::Client& client, nlohmann::json lease,
                                                     const std::string& token, const LongWait& wait, const Look& look) {
  const std::int64_t started = monotonic_ns();
  Talk talk(common, -1, common.json, look);
  const keep::Listener listener = talk.listener();
  const std::string id = text_at(lease, "id");
  const std::string goes_on = fmt::format("{}: sublet why {}", wait.goes_on, id);
  Leave leave(client);
  while (!wait.settled(lease)) {
    if (const auto waiting = client::parse_lease(lease)) talk.line().show(*waiting);
    std::optional<Duration> left = wait.at_most;
    if (left) *left -= Duration(monotonic_ns() - started);
    if (left && *left <= Duration{}) {
      talk.line().clear();
      print_error(fmt::format("{} within {}", wait.not_yet, format_duration(*wait.at_most)), goes_on);
      return kGaveUp;
    }
    // Short ones: the estimate counts down, and the end of a wish to grow is no change of state.
    const Duration at_most = left ? std::clamp<Duration>(*left, 100ms, wait.each) : wait.each;
    const std::string ask = fmt::format("?wait={}ms&since={}", at_most / 1ms, client::encode(text_at(lease, "state")));
    client::Patience patience = keep::patience(listener);
    if (left) patience.limit = *left;
    // A hanging daemon must not delay the command beyond the given time.
    const Duration timeout = left ? *left + 1s : at_most + 30s;
    const auto reply = client.insist({"GET", lease_target({id, {}}, ask), {}, {}, token}, patience, timeout);
    if (leave.asked()) {
      talk.line().clear();
      leave.now(common.quiet || common.json, goes_on);
    }
    if (!reply && left && reply.error().passing()) continue;  // away for as long as there was time
    if (!reply) return fail(common, reply.error());
    auto body = client::parse(*reply);
    if (!body) return fail(common, body.error());
    lease = std::move(*body);
  }
  talk.line().clear();
  return lease;
}

}  // namespace sublet::cli
