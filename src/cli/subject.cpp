// SPDX-License-Identifier: Apache-2.0
#include "cli/subject.h"

#include "cli/exit_status.h"
#include "cli/fetch.h"
#include "cli/lease_verb.h"
#include "cli/program_verb.h"
#include "cli/render_subject.h"

#include <fmt/format.h>

namespace sublet::cli {
namespace {

using nlohmann::json;

constexpr const char* last_output = "/log?lines=10&follow=false";

// Adds the processes; their parents are known only on the daemon's machine, in its pid namespace.
void add_processes(Subject& subject, client::Client& client, const Look& look) {
  subject.processes =
      list_at(ask_also(client, "/v1/processes?lease=" + client::encode(text_at(subject.lease, "id"))), "processes");
  const auto root = proc::ProcRoot::open();
  const bool here = root && client.daemon_pid().value_or(0) > 0;
  const auto all = here ? root->list() : Result<std::vector<proc::ProcessInfo>>(std::vector<proc::ProcessInfo>());
  const auto command_of = [&](std::int32_t pid) { return here ? root->command_line(pid) : std::string(); };
  const auto pid = number_at(member(subject.lease, "owner"), "pid").value_or(0);
  subject.tree = process_tree(static_cast<std::int32_t>(pid), all ? *all : std::vector<proc::ProcessInfo>(),
                              subject.processes, look, command_of);
}

void add_output(Subject& subject, client::Client& client) {
  const std::string tag = fmt::format("{}/{}", text_at(subject.program, "user"), text_at(subject.program, "tag"));
  const auto reply = client.get(program_target(tag, last_output));
  if (!reply) return;
  for (std::string_view rest = reply->text; !rest.empty();) {
    const auto end = std::min(rest.find('\n'), rest.size());
    subject.output.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

// The supervised program whose newest lease this is; null if there is none.
json program_of(const json& lease, client::Client& client) {
  const json programs = ask_also(client, "/v1/programs");
  for (const json& program : list_at(programs, "programs"))
    if (text_at(program, "lease") == text_at(lease, "id")) return program;
  return nullptr;
}

Subject gather(const json& body, bool is_program, client::Client& client, const Look& look) {
  Subject subject;
  subject.processes = json::array();
  if (is_program) {
    subject.program = body;
    const std::string lease = text_at(body, "lease");
    if (!lease.empty()) subject.lease = ask_also(client, lease_target({lease, {}}));
  } else {
    subject.lease = body;
    subject.program = program_of(body, client);
  }
  if (subject.lease.is_object() && text_at(subject.lease, "state") != "ended") add_processes(subject, client, look);
  if (subject.program.is_object()) add_output(subject, client);
  return subject;
}

}  // namespace

int exit_status_of(const json& subject) {
  const std::string state = text_at(subject, "state");
  if (state == "failed" || state == "poisoned") return kHasFailed;
  if (state == "ended") return text_at(subject, "end_reason") == "released" ? kDoesNotRun : kHasFailed;
  if (state == "stopped" || state == "exited") return kDoesNotRun;
  const bool waits = state == "starting" || state == "queued" || state == "offered" || state == "backoff";
  return waits ? kWaits : kOk;
}

int show_subject(const Common& common, const std::string& name) {
  auto client = connect(common);
  if (!client) return fail(client.error());
  const auto program = is_lease_id(name) ? client::Failure{client::FailureKind::answered, not_found(""), 404, {}}
                                         : client::Answer<client::Reply>(client->get(program_target(name)));
  if (!program && !is_no_program(program.error())) return fail(common, program.error());
  const auto lease = program ? client::Answer<client::Reply>(*program) : client->get(lease_target({name, {}}));
  if (!lease)
    return is_lease_id(name) ? fail(common, lease.error())
                             : fail_for_both(common, name, program.error(), lease.error());
  const auto found = client::parse(*lease);
  if (!found) return fail(common, found.error());
  client->close();
  const std::string target = program ? program_target(name) : lease_target({name, {}});
  const int code = show(common, target, [&](const json& body, client::Client& daemon) -> Result<std::string> {
    Look look = look_for(common);
    learn_devices(ask_also(daemon, "/v1/devices"), look);
    return render_subject(gather(body, program.has_value(), daemon, look), look);
  });
  return code == kOk ? exit_status_of(*found) : code;
}

}  // namespace sublet::cli
