// SPDX-License-Identifier: Apache-2.0
#include "cli/fetch.h"
#include "cli/lease_verb.h"

#include <fmt/format.h>
#include <chrono>
#include <memory>

namespace sublet::cli {
namespace {

using namespace std::chrono_literals;

constexpr Duration each_wait = 1s;  // --any: time for which one lease is waited for before the next one is looked at

struct WaitFlags {
  std::vector<std::string> leases;  // ids or tags, in the order given
  LeaseVerb token;                  // only its token file is set
  bool any = false;
};

client::Answer<Ended> look(client::Client& client, const std::string& lease, const std::string& query,
                           const std::string& token) {
  const client::Request request{"GET", lease_target({lease, {}}, query), {}, {}, token};
  auto reply = client.insist(request, {}, each_wait + 30s);
  if (!reply) return reply.error();
  auto found = client::parse_lease(reply->text);
  if (!found) return found.error();
  return Ended{std::move(*found), std::move(*reply)};
}

// Prints how the lease ended. Returns the exit status.
int tell(const Common& common, const Ended& ended, bool alone) {
  const client::Lease& lease = ended.lease;
  const int code = lease.exit_status ? *lease.exit_status : lease.end_reason == "released" ? kOk : kFailed;
  if (common.json) {
    fmt::print("{}\n", ended.reply.text);
    return code;
  }
  const std::string words = visible(fmt::format("{} has ended ({})", lease.id, lease.end_reason));
  if (!lease.exit_status && code != kOk) print_error(words, "see: sublet why " + visible(lease.id));
  else if (!alone) say(common, words);
  return code;
}

// Waits in turn for each lease, because the daemon answers about one lease at a time.
int wait_for_first(const Common& common, client::Client& client, std::vector<Ended> leases, const std::string& token) {
  for (;;) {
    for (const Ended& now : leases) {
      if (now.lease.ended()) return tell(common, now, false);
    }
    for (Ended& now : leases) {
      const std::string query = fmt::format("?wait={}ms&since={}", each_wait / 1ms, client::encode(now.lease.state));
      auto later = look(client, now.lease.id, query, token);
      if (!later) return our_code(fail(common, later.error()));
      now = std::move(*later);
      if (now.lease.ended()) break;
    }
  }
}

// Returns the exit status of the first lease, in the order given, that failed.
int wait_for_all(const Common& common, client::Client& client, const std::vector<std::string>& leases,
                 const std::string& token) {
  int code = kOk;
  for (const std::string& lease : leases) {
    const auto ended = wait_for_end(common, client, {lease, {}}, token);
    if (!ended) return our_code(fail(common, ended.error()));
    const int status = tell(common, *ended, leases.size() == 1);
    if (code == kOk) code = status;
  }
  return code;
}

int wait(const Common& common, const WaitFlags& flags) {
  auto client = connect(common);
  if (!client) return our_code(fail(client.error()));
  const auto token = read_token(flags.token);
  if (!token) return our_code(fail(token.error()));
  if (!flags.any && flags.leases.size() == 1) return wait_for_all(common, *client, flags.leases, *token);
  // An unknown lease is reported before the wait. A tag may name another lease later.
  std::vector<Ended> found;
  std::vector<std::string> ids;
  for (const std::string& lease : flags.leases) {
    const auto reply = client->call({"GET", lease_target({lease, {}}), {}, {}, *token});
    if (!reply) return our_code(fail(common, reply.error()));
    auto now = client::parse_lease(reply->text);
    if (!now) return our_code(fail(common, now.error()));
    ids.push_back(now->id);
    found.push_back({std::move(*now), *reply});
  }
  if (flags.any) return wait_for_first(common, *client, std::move(found), *token);
  return wait_for_all(common, *client, ids, *token);
}

}  // namespace

Action add_wait(Command command, Common& common) {
  auto flags = std::make_shared<WaitFlags>();
  command.option("LEASE", flags->leases, "Id or tag of the lease; several are allowed")
      .not_empty()
      .type("LEASE")
      .offers(Offer::Of::all_leases)
      .required();
  command.flag("--any", flags->any, "Return when the first of several leases has ended");
  add_token(command, common, flags->token);
  command.footer(
      "Exit status: the program's own if it is known. Otherwise 0 if the lease was\n"
      "released, 1 if it ended in another way, and 125 if there is no such lease. Of\n"
      "several leases: the status of the first one, in the order given, that failed;\n"
      "with --any, the status of the one that ended.\n"
      "The tag of a supervised program stands for its newest lease. A later start is\n"
      "not waited for.");
  return [&common, flags] { return wait(common, *flags); };
}

}  // namespace sublet::cli
