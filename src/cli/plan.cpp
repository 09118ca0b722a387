// SPDX-License-Identifier: Apache-2.0
// `sublet plan`: when leases would start, and who would be paused or ended for them. Changes nothing.
#include "base/size_bounds.h"
#include "cli/fetch.h"
#include "cli/lease_flags.h"
#include "cli/render.h"

#include <fmt/format.h>

#include <memory>

namespace sublet::cli {
namespace {

using nlohmann::json;

struct PlanFlags {
  LeaseFlags lease;
  int count = 1;
};

std::string yields_text(const json& yields) {
  std::string text;
  for (const json& each : yields) {
    const auto back = number_at(each, "back_in_ms");
    text += fmt::format("{}{} ({}, {}, {}) is {}{}", text.empty() ? "" : "; ", text_at(each, "lease"),
                        text_at(each, "consumer"), text_at(each, "user"), text_at(each, "tier"),
                        flag_at(each, "ends") ? "ended" : "paused",
                        flag_at(each, "ends") ? ""
                        : back ? fmt::format(", back in about {}", about(std::chrono::milliseconds(*back)))
                               : ", back at a time that is not known");
  }
  return text;
}

std::string render_planned(const json& planned, const Look& look) {
  std::string out;
  for (const json& its : planned) {
    const auto starts = number_at(its, "starts_in_ms");
    std::string devices;
    for (const json& uuid : list_at(its, "devices"))
      if (uuid.is_string()) devices += (devices.empty() ? " on " : ", ") + device_name(uuid.get<std::string>(), look);
    const std::string basis = visible(text_at(its, "basis"));
    const std::string when =
        !starts        ? "start not known"
        : *starts == 0 ? "starts at once" + devices
                       : fmt::format("starts in about {}{}", about(std::chrono::milliseconds(*starts)), devices);
    out += fmt::format("{}: {}{}\n", text_at(its, "lease"), when, basis.empty() ? "" : ": " + basis);
    if (const std::string yields = yields_text(list_at(its, "yields")); !yields.empty())
      out += fmt::format("   {}\n", visible(yields));
  }
  return out;
}

int plan(const Common& common, const PlanFlags& flags) {
  auto client = connect(common);
  if (!client) return fail(common, client.error());
  const auto reply = client->get("/v1/status");
  if (!reply) return fail(common, reply.error());
  const auto status = client::parse(*reply);
  if (!status) return fail(common, status.error());
  Look look = look_for(common);
  learn_devices(*status, look);
  const std::string consumer = flags.lease.name.empty() ? "plan" : flags.lease.name;
  const auto size = choose_size(flags.lease, {consumer}, *status, *client);
  if (!size) return fail(common, size.error());
  if (!size->why.empty())
    say(common, fmt::format("sublet: asking for {}: {}", format_size_down(size->bytes), size->why));
  json body = lease_body(flags.lease, consumer, size->bytes);
  body["owner"] = {{"connection", true}};
  body["dry_run"] = true;
  body["count"] = flags.count;
  const auto answer = client->post("/v1/leases", body);
  if (!answer) return fail(common, answer.error());
  const auto told = client::parse(*answer);
  if (!told) return fail(common, told.error());
  const json& planned = list_at(*told, "planned");
  if (common.json) fmt::print("{}\n", answer->text);
  else fmt::print("{}", render_planned(planned, look));
  const bool all =
      std::ranges::all_of(planned, [](const json& its) { return number_at(its, "starts_in_ms").has_value(); });
  return all ? kOk : kWouldWait;
}

}  // namespace

Action add_plan(Command command, Common& common) {
  auto flags = std::make_shared<PlanFlags>();
  add_request_flags(command, flags->lease);
  command.option("--count", flags->count, "Number of leases like this (1)").type("N").between(1, 100);
  add_json(command, common);
  command.footer(
      "Tells when each of these leases would start if they were asked for now, and\n"
      "which leases would be paused or ended for it. They have the ids that they would\n"
      "get. Nothing is asked for. Exit 75: the start of one is not known.");
  return [&common, flags] { return plan(common, *flags); };
}

}  // namespace sublet::cli
