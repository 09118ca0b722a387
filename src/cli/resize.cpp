// SPDX-License-Identifier: Apache-2.0
#include "cli/lease_verb.h"

#include <fmt/format.h>
#include <memory>

namespace sublet::cli {
namespace {

struct ResizeFlags {
  LeaseVerb verb;
  std::optional<Bytes> size;
  std::optional<Duration> wait;
  bool no_wait = false;
};

int resize(const Common& common, const ResizeFlags& flags) {
  nlohmann::json body{{"vram_bytes", flags.size->count}};
  if (flags.no_wait) body["queue"] = false;
  if (flags.wait) body["wait_seconds"] = std::min<std::int64_t>(3600, *flags.wait / std::chrono::seconds(1));
  bool waits = false;
  const int code = act_on_lease(common, flags.verb, "/resize", body, [&](const client::Lease& lease) {
    waits = lease.resize.has_value();
    if (!waits) return fmt::format("{} has {}", lease.id, format_size(lease.vram));
    const std::string place = lease.queue ? fmt::format(", at place {}", lease.queue->place) : "";
    return fmt::format("{} keeps {} and waits for {}{}", lease.id, format_size(lease.vram), format_size(*lease.resize),
                       place);
  });
  return code == kOk && waits && flags.wait ? kGaveUp : code;
}

}  // namespace

Action add_resize(Command command, Common& common) {
  auto flags = std::make_shared<ResizeFlags>();
  add_lease(command, common, flags->verb);
  command.size("SIZE", flags->size, "What it is to have on each of its devices").required();
  const Option wait = command.duration("--wait", flags->wait, "Return when it has it, or after this time (exit 124)");
  command.flag("--no-wait", flags->no_wait, "Do not queue: exit 75 if it would have to wait").excludes(wait);
  command.footer(
      "Less is given back at once, more is had at once or waited for in the queue: the lease keeps what it has, and\n"
      "the command returns. Its present size cancels that.");
  return [&common, flags] { return resize(common, *flags); };
}

}  // namespace sublet::cli
