// SPDX-License-Identifier: Apache-2.0
// `preempt`: pauses other leases now for a waiting lease.
#include "cli/fetch.h"
#include "cli/lease_verb.h"
#include "cli/render.h"

#include <fmt/format.h>

#include <memory>

namespace sublet::cli {
namespace {

using nlohmann::json;

struct PreemptFlags {
  LeaseVerb verb;
  std::optional<Duration> wait;
  bool no_wait = false;
  bool preview = false;
};

// It has what it waited for, or never will. The owner of a token is told of the offer, since it may be whoever waits
// here; all others claim at once.
bool settled(const json& lease) {
  const std::string state = text_at(lease, "state");
  if (state == "offered") return text_at(member(lease, "owner"), "kind") == "token";
  if (state == "active") return !member(lease, "resize").is_object();
  return state == "ended" || state == "poisoned" ||
         (state == "paused" && !flag_at(member(lease, "pause"), "resume_requested"));
}

int tell(const Common& common, const json& lease) {
  const std::string id = text_at(lease, "id");
  const std::string state = text_at(lease, "state");
  if (common.json) fmt::print("{}\n", lease.dump());
  if (state == "active" || state == "offered") {
    if (!common.json) {
      say(common, state == "active" ? fmt::format("{} has its {}", id, size_at_most(lease, "reserved_bytes"))
                                    : fmt::format("{} is offered its memory: its owner must claim it", id));
    }
    return kOk;
  }
  if (state == "ended" && !text_at(lease, "granted_at").empty()) {
    if (!common.json) say(common, fmt::format("{} got its memory, and has ended since", id));
    return kOk;
  }
  print_error(fmt::format("{} is {}", id, state == "ended" ? "ended: " + text_at(lease, "end_reason") : state),
              "sublet why " + id);
  return kFailed;
}

class Preempt {
 public:
  Preempt(const Common& common, const PreemptFlags& flags, client::Client client, std::string token)
      : common_(common), flags_(flags), client_(std::move(client)), token_(std::move(token)), look_(look_for(common)) {}

  int go();

 private:
  const Common& common_;
  const PreemptFlags& flags_;
  client::Client client_;
  std::string token_;
  Look look_;

  client::Answer<client::Reply> order();
  std::optional<int> show(const client::Reply& reply, const json& body);
  int wait(json lease);
};

client::Answer<client::Reply> Preempt::order() {
  const json wish{{"lease", flags_.verb.lease}, {"preview", flags_.preview}};
  return client_.call({"POST", "/v1/preempt", client::to_text(wish), {}, token_});
}

int Preempt::go() {
  learn_devices(ask_also(client_, "/v1/devices"), look_);
  const auto reply = order();
  if (!reply) return fail(common_, reply.error());
  const auto body = client::parse(*reply);
  if (!body) return fail(common_, body.error());
  if (const auto code = show(*reply, *body)) return *code;
  const json& lease = member(*body, "lease");
  if (settled(lease)) return tell(common_, lease);
  if (flags_.no_wait) {
    if (common_.json) fmt::print("{}\n", lease.dump());
    return kOk;
  }
  return wait(lease);
}

// The table; the exit code if that is all.
std::optional<int> Preempt::show(const client::Reply& reply, const json& body) {
  const json& lease = member(body, "lease");
  const bool there = settled(lease) && list_at(body, "victims").empty();
  if (common_.json) {
    if (!flags_.preview) return std::nullopt;
    fmt::print("{}\n", reply.text);
  } else if (there && flags_.preview) {
    fmt::print("{} has its {} already: no lease has to be paused.\n", text_at(lease, "id"),
               size_at_most(lease, "reserved_bytes"));
  } else if (!there) {
    const auto text = render_preview(body, common_, look_);
    if (!text) return fail(text.error());
    fmt::print("{}", *text);
    std::fflush(stdout);
  }
  if (!flags_.preview) return std::nullopt;
  return flag_at(body, "found") ? kOk : kFailed;
}

int Preempt::wait(json lease) {
  const std::string id = text_at(lease, "id");
  const auto ended = wait_until_settled(common_, client_, std::move(lease), token_,
                                        {.settled = settled,
                                         .at_most = flags_.wait,
                                         .not_yet = id + " did not get its memory",
                                         .goes_on = "the daemon continues to free memory for " + id},
                                        look_);
  if (const int* code = std::get_if<int>(&ended)) return *code;
  return tell(common_, std::get<json>(ended));
}

}  // namespace

Action add_preempt(Command command, Common& common) {
  auto flags = std::make_shared<PreemptFlags>();
  add_lease(command, common, flags->verb);
  command.flag("--preview", flags->preview, "Only print which leases would be paused, for how long and at what cost");
  const Option wait = command.duration("--wait", flags->wait, "Return after this time at the latest (exit 124)");
  command.flag("--no-wait", flags->no_wait, "Return at once, and let the daemon continue").excludes(wait);
  command.footer(
      "Pauses the cheapest victims, one after the other, until LEASE has its memory.\n"
      "Your own programs of any tier may be victims; a request by an admin may pause\n"
      "any program. Other users' programs of a lower tier are paused only as far as\n"
      "the tiers allow without this request. Victims resume in the order of the queue.\n"
      "LEASE keeps its memory from them until it ends, is paused or asks for more;\n"
      "leases of its tier share the memory with it by time slices. The command returns\n"
      "when LEASE has its memory. When it is interrupted, the daemon continues.");
  return [&common, flags] {
    auto client = connect(common);
    if (!client) return fail(client.error());
    const auto token = read_token(flags->verb);
    if (!token) return fail(token.error());
    return Preempt(common, *flags, std::move(*client), *token).go();
  };
}

}  // namespace sublet::cli
