// SPDX-License-Identifier: Apache-2.0
// `free`: frees memory for a program without a lease, and reserves it for a while.
#include "base/size_bounds.h"
#include "cli/acquire.h"
#include "cli/fetch.h"
#include "cli/render.h"
#include "cli/talk.h"

#include <fmt/format.h>

#include <memory>

namespace sublet::cli {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

constexpr Duration default_hold = 60s;

struct FreeFlags {
  std::optional<Bytes> size;
  std::string gpu;
  std::optional<Duration> hold, wait;
  bool preview = false;
};

class Free {
 public:
  Free(const Common& common, const FreeFlags& flags, client::Client client)
      : common_(common), flags_(flags), client_(std::move(client)), look_(look_for(common)) {}

  int go();

 private:
  const Common& common_;
  const FreeFlags& flags_;
  client::Client client_;
  Look look_;

  Duration hold() const { return flags_.hold.value_or(default_hold); }
  json body() const;
  int preview();
  int tell(const Acquired& acquired);
};

json Free::body() const {
  json body{{"vram_bytes", flags_.size->count}, {"hold_seconds", hold() / 1s}};
  if (!flags_.gpu.empty() && flags_.gpu != "any") body["device"] = flags_.gpu;
  return body;
}

int Free::preview() {
  json ask = body();
  ask["preview"] = true;
  const auto reply = client_.post("/v1/free", ask);
  if (!reply) return fail(common_, reply.error());
  const auto preview_reply = client::parse(*reply);
  if (!preview_reply) return fail(common_, preview_reply.error());
  if (common_.json) {
    fmt::print("{}\n", reply->text);
  } else {
    const auto text = render_preview(*preview_reply, common_, look_);
    if (!text) return fail(text.error());
    fmt::print("{}", *text);
  }
  return flag_at(*preview_reply, "found") ? kOk : kFailed;
}

int Free::go() {
  learn_devices(ask_also(client_, "/v1/devices"), look_);
  if (flags_.preview) return preview();
  Talk talk(common_, -1, false, look_);
  keep::Signals signals;
  keep::Events events;
  client_.set_interrupt(events.interrupt());
  const keep::Listener listener = talk.listener();
  Wanted wanted{.verb = common_.verb, .json = common_.json, .body = body(), .at_most = flags_.wait, .keep_token = {}};
  wanted.target = "/v1/free";
  wanted.asked = [&](const json& reply) {
    if (common_.json || list_at(member(reply, "preemption"), "victims").empty()) return;
    const auto text = render_preview(member(reply, "preemption"), common_, look_);
    if (text) say(common_, text->substr(0, text->size() - 1));
  };
  auto acquired = Acquire(client_, events, signals, listener, talk.line()).run(wanted);
  if (const int* code = std::get_if<int>(&acquired)) return *code;
  return tell(std::get<Acquired>(acquired));
}

int Free::tell(const Acquired& acquired) {
  const client::Lease& lease = acquired.lease;
  if (common_.json) {
    fmt::print("{}\n", acquired.told.dump());
    return kOk;
  }
  fmt::print("{}\n", lease.id);
  say(common_,
      visible(fmt::format("sublet: {} are free on {}, reserved for {} as {}; 'sublet release {}' ends the reservation",
                          format_size_down(lease.vram), names_of(common_, lease.devices), format_duration(hold()),
                          lease.id, lease.id)));
  return kOk;
}

}  // namespace

Action add_free(Command command, Common& common) {
  auto flags = std::make_shared<FreeFlags>();
  command.size("SIZE", flags->size, "VRAM to free").required();
  command.option("--gpu", flags->gpu, "Device: gpu0, a uuid, or any; or one of several, joined by commas")
      .type("ID")
      .offers({Offer::Of::devices, {"any"}});
  command.ttl("--for", flags->hold, "Keep the memory free for this time (60s)");
  const Option wait = command.duration("--wait", flags->wait, "Give up after this time (exit 124)");
  command.flag("--preview", flags->preview, "Only print which leases would be paused, for how long and at what cost")
      .excludes(wait);
  add_json(command, common);
  command.footer(
      "Frees memory for a program that runs without a lease. Your own programs may be\n"
      "paused, and other users' programs of the tiers batch and spot. Other users'\n"
      "programs of the tier standard are paused when the time slice of the freed\n"
      "memory begins. A request by an admin may pause any program. Paused programs\n"
      "resume in the order of the queue, once the time is over or the printed lease\n"
      "is released. Ctrl-C cancels the request while programs are still being paused.");
  return [&common, flags] {
    auto client = connect(common);
    if (!client) return fail(client.error());
    return Free(common, *flags, std::move(*client)).go();
  };
}

}  // namespace sublet::cli
