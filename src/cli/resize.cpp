// SPDX-License-Identifier: Apache-2.0
#include "base/size_bounds.h"
#include "cli/fetch.h"
#include "cli/lease_verb.h"
#include "cli/program_verb.h"

#include <fmt/format.h>
#include <memory>

namespace sublet::cli {
namespace {

using nlohmann::json;

struct ResizeFlags {
  LeaseVerb verb;
  std::optional<Bytes> size;
  std::optional<Duration> wait;
  bool no_wait = false;
};

bool waits(const json& lease) { return member(lease, "resize").is_object(); }

std::string waiting_text(const json& lease) {
  const auto place = number_at(member(lease, "queue"), "place");
  return fmt::format("{} keeps {} and waits for {}{}", text_at(lease, "id"), size_at_most(lease, "vram_bytes"),
                     size_at_most(member(lease, "resize"), "vram_bytes"),
                     place ? fmt::format(", at place {}", *place) : "");
}

// A lease of a supervised program is that of one start.
void tell_of_next_start(const Common& common, client::Client& client, const json& lease, Bytes wanted) {
  const std::string tag = text_at(lease, "tag");
  if (common.json || tag.empty()) return;
  if (text_at(ask_also(client, program_target(tag)), "lease") != text_at(lease, "id")) return;
  say(common, visible(fmt::format("the next start of {0} asks for its earlier size again: sublet update {0} --vram {1} "
                                  "changes that too",
                                  tag,
                                  wanted.count % GiB.count == 0   ? fmt::format("{}GiB", wanted.count / GiB.count)
                                  : wanted.count % MiB.count == 0 ? fmt::format("{}MiB", wanted.count / MiB.count)
                                                                  : fmt::format("{}", wanted.count))));
}

// Prints the result.
int tell(const Common& common, const json& lease, Bytes wanted) {
  const std::string id = text_at(lease, "id");
  if (common.json) fmt::print("{}\n", lease.dump());
  if (text_at(lease, "state") == "ended") {
    print_error(fmt::format("{} has ended: {}", id, text_at(lease, "end_reason")), "sublet why " + id);
    return kFailed;
  }
  if (!waits(lease) && number_at(lease, "vram_bytes") != wanted.count) {
    print_error(fmt::format("{} no longer waits for {}: it keeps {}", id, format_size_down(wanted),
                            size_at_most(lease, "vram_bytes")),
                "sublet why " + id);
    return kFailed;
  }
  if (!common.json)
    say(common, waits(lease) ? waiting_text(lease) : fmt::format("{} has {}", id, size_at_most(lease, "vram_bytes")));
  return kOk;
}

int resize(const Common& common, const ResizeFlags& flags) {
  auto client = connect(common);
  if (!client) return fail(client.error());
  const auto token = read_token(flags.verb);
  if (!token) return fail(token.error());
  json wish{{"vram_bytes", flags.size->count}};
  if (flags.no_wait) wish["queue"] = false;
  const auto reply = client->call({"POST", lease_target(flags.verb, "/resize"), client::to_text(wish), {}, *token});
  if (!reply) return fail(common, reply.error());
  auto lease = client::parse(*reply);
  if (!lease) return fail(common, lease.error());
  tell_of_next_start(common, *client, *lease, *flags.size);
  if (!flags.wait || !waits(*lease)) return tell(common, *lease, *flags.size);
  Look look = look_for(common);
  learn_devices(ask_also(*client, "/v1/devices"), look);
  const std::string id = text_at(*lease, "id");
  const auto ended =
      wait_until_settled(common, *client, std::move(*lease), *token,
                         {.settled = [](const json& now) { return !waits(now); },
                          .at_most = flags.wait,
                          .each = std::chrono::milliseconds(500),
                          .not_yet = fmt::format("{} did not get its {}", id, format_size_down(*flags.size)),
                          .goes_on = id + " stays in the queue"},
                         look);
  if (const int* code = std::get_if<int>(&ended)) return *code;
  return tell(common, std::get<json>(ended), *flags.size);
}

}  // namespace

Action add_resize(Command command, Common& common) {
  auto flags = std::make_shared<ResizeFlags>();
  add_lease(command, common, flags->verb);
  command.size("SIZE", flags->size, "New size on each of the lease's devices").required();
  const Option wait =
      command.duration("--wait", flags->wait, "Return when the lease has its new size, or after this time (exit 124)");
  command.flag("--no-wait", flags->no_wait, "Do not queue: exit 75 if the lease would have to wait").excludes(wait);
  command.footer(
      "A smaller size takes effect at once; other leases get the memory once a reading\n"
      "shows that it is unused. A larger size is granted at once, or waits in the\n"
      "queue: the lease keeps its present size, and the command returns. The present\n"
      "size as SIZE cancels the wait.");
  return [&common, flags] { return resize(common, *flags); };
}

}  // namespace sublet::cli
