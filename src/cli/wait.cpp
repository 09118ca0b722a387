// SPDX-License-Identifier: Apache-2.0
#include "cli/fetch.h"
#include "cli/lease_verb.h"

#include <fmt/format.h>
#include <memory>

namespace sublet::cli {
namespace {

int wait(const Common& common, const LeaseVerb& verb) {
  auto client = connect(common);
  if (!client) return fail(client.error());
  const auto token = read_token(verb);
  if (!token) return fail(token.error());
  const auto ended = wait_for_end(common, *client, verb, *token);
  if (!ended) return fail(common, ended.error());
  if (common.json) fmt::print("{}\n", ended->reply.text);
  const client::Lease& lease = ended->lease;
  if (lease.exit_status) return *lease.exit_status;
  if (lease.end_reason == "released") return kOk;
  if (!common.json)
    print_error(visible(fmt::format("{} has ended ({})", lease.id, lease.end_reason)), "see: sublet why " + lease.id);
  return kFailed;
}

}  // namespace

Action add_wait(Command command, Common& common) {
  auto verb = std::make_shared<LeaseVerb>();
  add_lease(command, common, *verb, true, Offer::Of::all_leases);
  command.footer(
      "Exit status: the program's own if it is known. Otherwise 0 if the lease was\n"
      "released, and 1 if it ended in another way.");
  return [&common, verb] { return wait(common, *verb); };
}

}  // namespace sublet::cli
