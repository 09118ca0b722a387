// SPDX-License-Identifier: Apache-2.0
#include "cli/program_verb.h"

#include "base/ids.h"
#include "base/text.h"
#include "cli/fetch.h"

#include <fmt/format.h>

namespace sublet::cli {

void add_program_tag(Command command, Common& common, std::string& tag) {
  command.option("TAG", tag, "Tag of the program; an admin may write USER/TAG")
      .required()
      .not_empty()
      .type("TAG")
      .offers(Offer::Of::programs);
  add_json(command, common);
}

std::string program_target(const std::string& tag, const std::string& call) {
  return fmt::format("/v1/programs/{}{}", client::encode(tag), call);
}

int act_on_program(const Common& common, const std::string& tag, const std::string& call, const nlohmann::json& body,
                   const std::function<std::string(const nlohmann::json&)>& done) {
  auto client = connect(common);
  if (!client) return fail(client.error());
  const auto reply = client->post(program_target(tag, call), body);
  if (!reply) return fail(common, reply.error());
  const auto program = client::parse(*reply);
  if (!program) return fail(common, program.error());
  if (common.json) fmt::print("{}\n", reply->text);
  else say(common, visible(done(*program)));
  return kOk;
}

bool is_lease_id(const std::string& name) { return name.starts_with("lease-") && parse_lease_id(name); }

bool is_no_program(const client::Failure& failure) {
  return failure.kind == client::FailureKind::answered &&
         (failure.error.code == Code::NotFound || failure.http_status == 503);
}

int fail_for_both(const Common& common, const std::string& name, const client::Failure& program,
                  const client::Failure& lease) {
  if (lease.error.code != Code::NotFound || program.error.code != Code::NotFound) return fail(common, lease);
  if (common.json) fmt::print("{}\n", lease.text);
  std::string guess;
  for (const client::Failure* failure : {&program, &lease}) {
    const auto at = failure->error.detail.find(" – did you mean");
    if (guess.empty() && at != std::string::npos) guess = failure->error.detail.substr(at);
  }
  print_error(fmt::format("there is no program and no lease '{}'{}", printable(name), guess),
              "sublet programs lists programs, sublet ps --all lists leases");
  return kNotFound;
}

}  // namespace sublet::cli
