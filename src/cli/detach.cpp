// SPDX-License-Identifier: Apache-2.0
// `sublet run --detach`: hands a program to the daemon, which supervises it.
#include "base/size_bounds.h"
#include "cli/fetch.h"
#include "cli/program_environment.h"
#include "cli/program_verb.h"
#include "cli/run_flags.h"
#include "keep/elsewhere.h"

#include <fmt/format.h>

#include <cstdlib>

namespace sublet::cli {
namespace {

constexpr Duration look_every = std::chrono::milliseconds(20);
constexpr int most_looks = 150;  // about 3 s

using nlohmann::json;

struct Work {
  std::vector<std::string> arguments;
  std::string shown;  // the command line as people know it
  std::string name;   // of the program without --tag
  Consumer consumer;
};

Work work_of(const Common& common, const RunFlags& flags) {
  Work work;
  if (flags.command.empty()) {
    work.arguments = *common.command;
    work.shown = shown_command(work.arguments);
    work.name = program_name(work.arguments);
    work.consumer = consumer_of(work.arguments);
  } else {
    work.arguments = {"sh", "-c", flags.command};
    work.shown = shown_command({flags.command});
    work.name = program_name(words_of(flags.command));
    work.consumer = consumer_of(words_of(flags.command));
  }
  if (!flags.lease.name.empty()) work.name = flags.lease.name, work.consumer = {flags.lease.name};
  return work;
}

// The fields of POST /v1/programs besides those of the lease.
Result<json> program_fields(const RunFlags& flags, const Work& work) {
  if (auto checked = check_utf8("the argument", work.arguments); !checked) return checked.error();
  auto fields = surroundings();
  if (!fields) return fields;
  std::vector<std::string> given = flags.env;
  // The keeper names the devices by these, as `sublet run` in the foreground does.
  const char* visible = flags.lease.gpu.empty() ? std::getenv("CUDA_VISIBLE_DEVICES") : flags.lease.gpu.c_str();
  if (visible != nullptr) given.insert(given.begin(), fmt::format("CUDA_VISIBLE_DEVICES={}", visible));
  if (const char* names = std::getenv("SUBLET_GPU_NAMES"); names != nullptr)
    given.insert(given.begin(), fmt::format("SUBLET_GPU_NAMES={}", names));
  auto environment = environment_of(given, flags.env_file);
  if (!environment) return environment;
  json& body = *fields;
  body["environment"] = std::move(*environment);
  body["arguments"] = work.arguments;
  body["command"] = work.shown;
  body["tag"] = flags.lease.tag.empty() ? work.name : flags.lease.tag;
  if (!flags.restart.empty()) body["restart"] = flags.restart;
  if (flags.replace) body["replace"] = true;
  return fields;
}

std::string docker_host_in(const json& environment) {
  constexpr std::string_view name = "DOCKER_HOST=";
  for (const json& entry : environment)
    if (const auto text = entry.get<std::string>(); text.starts_with(name)) return text.substr(name.size());
  return {};
}

// The settings of a program that a new version has otherwise, as "tier batch -> standard".
std::string changed_settings(const json& before, const json& now) {
  std::string text;
  const auto add = [&text](const char* name, const std::string& old, const std::string& fresh) {
    if (old != fresh) text += fmt::format("{}{} {} -> {}", text.empty() ? "" : ", ", name, old, fresh);
  };
  const auto size = [](const json& program, const char* field) {
    return number_at(program, field) ? size_at_most(program, field) : std::string("none");
  };
  const auto number = [](const json& program) { return fmt::format("{}", number_at(program, "priority").value_or(0)); };
  const auto share = [](const json& program) {
    const auto percent = number_at(program, "share");
    return percent ? fmt::format("{} %", *percent) : std::string("none");
  };
  const auto interposer = [](const json& program) {
    return std::string(flag_at(program, "interposer") ? "on" : "off");
  };
  add("restart", text_at(before, "restart"), text_at(now, "restart"));
  add("tier", text_at(before, "tier"), text_at(now, "tier"));
  add("priority", number(before), number(now));
  add("ceiling", size(before, "memory_bytes"), size(now, "memory_bytes"));
  add("soft limit", size(before, "soft_bytes"), size(now, "soft_bytes"));
  add("interposer", interposer(before), interposer(now));
  add("share", share(before), share(now));
  add("VRAM", size(before, "vram_bytes"), size(now, "vram_bytes"));
  return text;
}

// The program that a new version replaces; null: none.
json replaced_program(client::Client& client, const json& body) {
  if (!flag_at(body, "replace")) return nullptr;
  const auto reply = client.get(program_target(text_at(body, "tag")));
  const auto program = reply ? client::parse(*reply) : client::Answer<json>(reply.error());
  return program ? *program : json(nullptr);
}

int add_program(const Common& common, client::Client& client, const json& body) {
  const json before = replaced_program(client, body);
  const auto reply = client.post("/v1/programs", body);
  if (!reply) return fail(common, reply.error());
  auto program = client::parse(*reply);
  if (!program) return fail(common, program.error());
  std::string text = reply->text;
  if (flag_at(*program, "stopping")) {  // it replaces a program that has to end first
    auto started = wait_for_start(common, client, text_at(*program, "tag"), {*reply, *program});
    if (!started) return fail(common, started.error());
    program = client::parse(started->reply);
    if (!program) return fail(common, program.error());
    program->erase("environment");
    text = program->dump();
  }
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
  if (const std::string changed = before.is_object() ? changed_settings(before, *program) : ""; !changed.empty())
    say(common, visible(fmt::format("sublet: the new version of {0} also has other settings: {1}; a flag that is left "
                                    "out has its default",
                                    text_at(*program, "tag"), changed)));
  if (text_at(*program, "state") != "failed") return kOk;
  print_error(text_at(*program, "why"), fmt::format("see: sublet status {}", text_at(*program, "tag")));
  return static_cast<int>(number_at(*program, "exit_status").value_or(kFailed));
}

}  // namespace

Result<json> fields_of_line(const std::string& line) {
  if (line.find_first_not_of(" \t\r\n") == std::string::npos)
    return bad_request("the line is empty", "give the command line of the program: python3 serve.py");
  RunFlags flags;
  flags.command = line;
  const Work work = work_of({}, flags);
  auto fields = program_fields(flags, work);
  if (!fields) return fields;
  json lease = lease_body({}, work.consumer.name, {});
  lease.erase("vram_bytes");
  fields->update(lease);
  return fields;
}

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
  for (const std::string& warning : keep::warnings_of_others(work.arguments, docker_host_in(fields->at("environment"))))
    talk.say("warning: " + warning);
  const std::string names = flags.env_file.empty() ? left_out(flags.env, *status) : "";
  if (!names.empty())
    talk.say(fmt::format("the program does not get {0} of this shell; --env {1} passes it on", names,
                         names.substr(0, names.find(','))));
  const auto size = choose_size(flags.lease, work.consumer, *status, *client);
  if (!size) return fail(common, size.error());
  if (!size->why.empty() && !common.json)
    talk.say(fmt::format("asking for {}: {}", format_size_down(size->bytes), size->why));
  json body = lease_body(flags.lease, work.consumer.name, size->bytes);
  if (flags.lease.dry_run) return dry_run(common, *client, std::move(body), look);
  // A lease whose size is the ceiling keeps the size of the ceiling when the ceiling changes.
  if (!flags.lease.vram && !flags.lease.all && flags.lease.memory) body.erase("vram_bytes");
  body.update(*fields);
  return add_program(common, *client, body);
}

}  // namespace sublet::cli
