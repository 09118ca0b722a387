// SPDX-License-Identifier: Apache-2.0
// `gpu`: takes a device out of service, and back.
#include "cli/fetch.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

namespace sublet::cli {
namespace {

using nlohmann::json;

struct GpuFlags {
  std::string device;
  std::string reason;
  std::optional<Duration> deadline;
};

std::string counted(std::size_t count, const char* state) {
  return fmt::format("{} {} {}", count, count == 1 ? "lease" : "leases", state);
}

// "; 1 lease runs on: lease-3 (it is never paused)".
std::string left_text(const json& service) {
  std::string text;
  std::size_t paused = 0, others = 0;
  std::string named;
  for (const json& lease : list_at(service, "leases")) {
    const std::string state = text_at(lease, "state");
    if (state == "paused" || state == "pausing") {
      ++paused;
      continue;
    }
    ++others;
    const std::string problem = text_at(lease, "problem");
    named += (named.empty() ? ": " : ", ") + text_at(lease, "lease") +
             (problem.empty() ? " (" + state + ")" : " (" + problem + ")");
  }
  if (paused > 0) text += "; " + counted(paused, paused == 1 ? "is paused" : "are paused");
  if (others > 0) text += "; " + counted(others, others == 1 ? "is left" : "are left") + named;
  return text;
}

std::string done_text(const json& answer) {
  const json& service = member(answer, "service");
  const std::string device = text_at(answer, "device").empty() ? text_at(answer, "uuid") : text_at(answer, "device");
  if (!service.is_object()) return device + " is in service";
  const std::string deadline = text_at(service, "deadline");
  return fmt::format("{} is {}{}: no lease is granted there{}", device, text_at(service, "state"),
                     deadline.empty() ? "" : ", deadline " + deadline, left_text(service));
}

int change(const Common& common, const GpuFlags& flags, const char* what) {
  json body = json::object();
  if (!flags.reason.empty()) body["reason"] = flags.reason;
  if (flags.deadline) body["deadline_seconds"] = *flags.deadline / std::chrono::seconds(1);
  auto client = connect(common);
  if (!client) return fail(common, client.error());
  const auto reply =
      client->call({"POST", fmt::format("/v1/devices/{}/{}", client::encode(flags.device), what),
                    client::to_text(body), client::new_idempotency_key(), {}});
  if (!reply) return fail(common, reply.error());
  const auto answer = client::parse(*reply);
  if (!answer) return fail(common, answer.error());
  if (common.json) fmt::print("{}\n", reply->text);
  else say(common, done_text(*answer));
  return kOk;
}

}  // namespace

Action add_gpu(Command command, Common& common) {
  auto flags = std::make_shared<GpuFlags>();
  const Command cordon = command.verb("cordon", "Grant no lease on a device any more; running leases go on");
  const Command drain = command.verb("drain", "Cordon a device, and pause the leases there");
  const Command uncordon = command.verb("uncordon", "Take a device back into service; its paused leases resume");
  for (const Command& sub : {cordon, drain, uncordon})
    sub.option("GPU", flags->device, "Name, index or UUID of the device, as `sublet gpus` shows it")
        .required()
        .type("GPU")
        .offers(Offer::Of::devices);
  for (const Command& sub : {cordon, drain}) {
    sub.option("--reason", flags->reason, "Why, for all who wait for the device").type("TEXT");
  }
  drain.ttl("--deadline", flags->deadline,
            "Time after which leases end that cannot be paused (default: they run until their programs end)");
  for (const Command& sub : {cordon, drain, uncordon}) {
    add_json(sub, common);
    add_common(sub, common);
  }
  command.footer(
      "A device out of service keeps its leases, and grants nothing. It stays out of\n"
      "service over restarts of the daemon. Leases that a drain has paused resume once\n"
      "the device is back in service. Only an admin may do this. `sublet gpus` and\n"
      "`sublet why` tell everybody.");
  return [&common, flags, cordon, drain, uncordon] {
    if (cordon.parsed()) return change(common, *flags, "cordon");
    if (drain.parsed()) return change(common, *flags, "drain");
    if (uncordon.parsed()) return change(common, *flags, "uncordon");
    return usage_error("gpu needs a verb: cordon, drain or uncordon",
                       "for example: sublet gpu drain gpu1 --deadline 30m");
  };
}

}  // namespace sublet::cli
