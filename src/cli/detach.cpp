// SPDX-License-Identifier: Apache-2.0
// `sublet run --detach`: hands a program to the daemon, which supervises it.
#include "base/size_bounds.h"
#include "cli/fetch.h"
#include "cli/program_environment.h"
#include "cli/run_flags.h"

#include <fmt/format.h>

namespace sublet::cli {
namespace {

constexpr Duration look_every = std::chrono::milliseconds(20);
constexpr int most_looks = 150;  // about 3 s

using nlohmann::json;

struct Work {
  std::vector<std::string> arguments;
  std::string shown;  // the command line as people know it
  std::string name;   // of the consumer, and of the program without --tag
};

Work work_of(const Common& common, const RunFlags& flags) {
  Work work;
  if (flags.command.empty()) {
    work.arguments = *common.command;
    work.shown = shown_command(work.arguments);
    work.name = consumer_name(work.arguments);
  } else {
    work.arguments = {"sh", "-c", flags.command};
    work.shown = shown_command({flags.command});
    work.name = consumer_name(words_of(flags.command));
  }
  if (!flags.lease.name.empty()) work.name = flags.lease.name;
  return work;
}

// The fields of POST /v1/programs besides those of the lease.
Result<json> program_fields(const RunFlags& flags, const Work& work) {
  if (auto checked = check_utf8("the argument", work.arguments); !checked) return checked.error();
  auto fields = surroundings();
  if (!fields) return fields;
  auto environment = environment_of(flags.env, flags.env_file);
  if (!environment) return environment;
  json& body = *fields;
  body["environment"] = std::move(*environment);
  body["arguments"] = work.arguments;
  body["command"] = work.shown;
  body["tag"] = flags.lease.tag.empty() ? work.name : flags.lease.tag;
  if (!flags.restart.empty()) body["restart"] = flags.restart;
  return fields;
}

int add_program(const Common& common, client::Client& client, const json& body) {
  const auto reply = client.post("/v1/programs", body);
  if (!reply) return fail(common, reply.error());
  auto program = client::parse(*reply);
  if (!program) return fail(common, program.error());
  std::string text = reply->text;
  // Its keeper asks for its lease within milliseconds; only then do other verbs know the lease.
  for (int i = 0; i < most_looks && text_at(*program, "state") == "starting" && client.pause(look_every); ++i) {
    const auto now = client.get("/v1/programs/" + client::encode(text_at(*program, "tag")));
    auto parsed = now ? client::parse(*now) : client::Answer<json>(now.error());
    if (!parsed) break;
    program = std::move(parsed);
    program->erase("environment");
    text = program->dump();
  }
  if (common.json) fmt::print("{}\n", text);
  else fmt::print("{}: {}\n", text_at(*program, "tag"), text_at(*program, "state"));
  if (text_at(*program, "state") != "failed") return kOk;
  print_error(text_at(*program, "why"), fmt::format("see: sublet status {}", text_at(*program, "tag")));
  return static_cast<int>(number_at(*program, "exit_status").value_or(kFailed));
}

}  // namespace

int run_detached(const Common& common, RunFlags flags) {
  const Work work = work_of(common, flags);
  auto fields = program_fields(flags, work);
  if (!fields) return fail(common, fields.error());
  auto client = connect(common);
  if (!client) return fail(common, client.error());
  const auto reply = meet(common, *client);
  if (!reply) return fail(common, reply.error());
  const auto status = client::parse(*reply);
  if (!status) return fail(common, status.error());
  Look look = look_for(common);
  learn_devices(*status, look);
  Talk talk(common, -1, false, look);
  if (const auto taken = take_wish(flags.lease, *client, *status, &talk); !taken) return fail(common, taken.error());
  const auto size = choose_size(flags.lease, work.name, *status, *client);
  if (!size) return fail(common, size.error());
  if (!size->why.empty() && !common.json)
    talk.say(fmt::format("asking for {}: {}", format_size_down(size->bytes), size->why));
  json body = lease_body(flags.lease, work.name, size->bytes);
  if (flags.lease.dry_run) return dry_run(common, *client, std::move(body), look);
  // A lease whose size is the ceiling keeps the size of the ceiling when the ceiling changes.
  if (!flags.lease.vram && !flags.lease.all && flags.lease.memory) body.erase("vram_bytes");
  body.update(*fields);
  return add_program(common, *client, body);
}

}  // namespace sublet::cli
