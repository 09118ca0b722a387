// SPDX-License-Identifier: Apache-2.0
#include "cli/program_verb.h"

#include "base/ids.h"
#include "base/text.h"
#include "cli/fetch.h"
#include "cli/talk.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace sublet::cli {

void add_program_tag(Command command, Common& common, std::string& tag) {
  command.option("TAG", tag, "Tag of the program; an admin may write USER/TAG")
      .required()
      .not_empty()
      .type("TAG")
      .offers(Offer::Of::programs);
  add_json(command, common);
}

void add_all(Command command, ProgramChoice& choice) {
  command.flag("--all", choice.all, "All supervised programs of yours");
}

void add_program_tags(Command command, Common& common, ProgramChoice& choice) {
  command.option("TAG", choice.tags, "Tags of programs; an admin may write USER/TAG")
      .not_empty()
      .type("TAG")
      .offers(Offer::Of::programs);
  add_all(command, choice);
  add_json(command, common);
}

std::optional<int> check_choice(const ProgramChoice& choice, std::string_view verb) {
  if (choice.all && !choice.tags.empty())
    return usage_error(fmt::format("{} takes tags or --all, not both", verb), "leave one of the two out");
  if (choice.all || !choice.tags.empty()) return std::nullopt;
  return usage_error(fmt::format("{} needs a tag, or --all", verb), "sublet programs lists the tags");
}

client::Answer<std::vector<std::string>> tags_of(const ProgramChoice& choice, client::Client& client) {
  if (!choice.all) return choice.tags;
  const auto reply = client.get("/v1/programs");
  if (!reply) return reply.error();
  const auto body = client::parse(*reply);
  if (!body) return body.error();
  std::vector<std::string> tags;
  for (const nlohmann::json& program : list_at(*body, "programs"))
    if (number_at(program, "uid").value_or(-1) == ::geteuid()) tags.push_back(text_at(program, "tag"));
  return tags;
}

client::Answer<Supervised> parse_program(client::Answer<client::Reply> reply) {
  if (!reply) return reply.error();
  auto body = client::parse(*reply);
  if (!body) return body.error();
  return Supervised{std::move(*reply), std::move(*body)};
}

client::Answer<Supervised> wait_for_program(const Common& common, client::Client& client, const std::string& tag,
                                         const std::function<bool(const nlohmann::json&)>& is_done) {
  constexpr Duration longest = std::chrono::milliseconds(500);
  Talk talk(common, -1, false, Look{});
  const keep::Listener listener = talk.listener();
  for (Duration each = std::chrono::milliseconds(20);; each = std::min(2 * each, longest)) {
    auto program = parse_program(client.insist({"GET", program_target(tag), {}, {}, {}}, keep::patience(listener)));
    if (!program || is_done(program->body)) return program;
    (void)client.pause(each);
  }
}

void tell_resumed_first(const Common& common, const std::string& tag, const nlohmann::json& program) {
  const std::string state = text_at(program, "lease_state");
  if (common.json || !flag_at(program, "stopping") || (state != "pausing" && state != "paused" && state != "resuming"))
    return;
  say(common, visible(fmt::format("{} was paused: it is resumed first, once memory is free, to save its work; "
                                  "waiting for its end",
                                  tag)));
}

client::Answer<Supervised> wait_for_start(const Common& common, client::Client& client, const std::string& tag,
                                       Supervised asked) {
  const bool ends_first = flag_at(asked.body, "stopping");
  const std::int64_t least = number_at(asked.body, "starts").value_or(0) + (ends_first ? 1 : 0);
  const auto is_done = [&](const nlohmann::json& now) {
    const bool over = number_at(now, "starts").value_or(0) >= least && !flag_at(now, "stopping");
    return text_at(now, "state") != "starting" && (over || text_at(now, "state") == "stopped");
  };
  if (is_done(asked.body)) return asked;
  tell_resumed_first(common, tag, asked.body);
  return wait_for_program(common, client, tag, is_done);
}

int tell_started(const Common& common, const std::string& tag, const Supervised& program) {
  const std::string state = text_at(program.body, "state"), why = text_at(program.body, "why");
  if (common.json) fmt::print("{}\n", program.reply.text);
  else if (state != "failed") say(common, visible(fmt::format("{}: {}", tag, state)));
  if (state != "failed") return kOk;
  print_error(visible(fmt::format("{} has failed{}{}", tag, why.empty() ? "" : ": ", why)),
              visible(fmt::format("see: sublet status {}", tag)));
  return kFailed;
}

int act_on_programs(const Common& common, const ProgramChoice& choice, const std::string& call,
                    const nlohmann::json& body, const Finish& finish) {
  auto client = connect(common);
  if (!client) return fail(client.error());
  const auto tags = tags_of(choice, *client);
  if (!tags) return fail(common, tags.error());
  if (tags->empty()) say(common, "you have no supervised program");
  int code = kOk;
  const auto take = [&code](int its) { code = code == kOk ? its : code; };
  std::vector<std::pair<std::string, Supervised>> asked;
  for (const std::string& tag : *tags) {
    auto program = parse_program(client->post(program_target(tag, call), body));
    if (program) asked.emplace_back(tag, std::move(*program));
    else if (take(fail(common, program.error())); code == kNoDaemon) return code;
  }
  for (auto& [tag, program] : asked) take(finish(*client, tag, std::move(program)));
  return code;
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
