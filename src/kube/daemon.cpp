// SPDX-License-Identifier: Apache-2.0
#include "kube/daemon.h"

#include "base/clock.h"
#include "kube/groups.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::kube {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

constexpr std::size_t longest_label = 64;
constexpr Duration one_wait = 5s, one_pause = 500ms;

Error error_of(const client::Failure& failure) {
  Error error = failure.error;
  if (failure.passing()) error.code = Code::Unavailable;
  return error;
}

Result<json> ask(client::Client& client, client::Request request, Duration timeout = client::Client::default_timeout) {
  auto reply = client.call(std::move(request), timeout);
  if (!reply) return error_of(reply.error());
  auto body = client::parse(*reply);
  if (!body) return error_of(body.error());
  return Result<json>(boost::system::in_place_value, std::move(*body));
}

Card card_from(const json& device) {
  Card card;
  card.id = device.value("id", "");
  card.uuid = device.value("uuid", "");
  card.name = device.value("name", "");
  card.index = device.value("index", 0);
  card.capacity = {device.value("capacity_bytes", std::int64_t{0})};
  card.simulated = device.value("simulated", false);
  const std::string service = text_at(device, {"service", "state"});
  card.healthy = text_at(device, {"state"}) != "lost" && service.empty();
  return card;
}

bool is_in_use(const Error& error) { return error.code == Code::InUse; }

}  // namespace

Held held_from(const json& lease) {
  Held held{text_at(lease, {"id"}),
            text_at(lease, {"state"}),
            text_at(lease, {"summary"}),
            text_at(lease, {"owner", "cgroup"}),
            {},
            {},
            {}};
  const json& pause = member_at(lease, {"pause"});
  held.reason = text_at(pause, {"cause"});
  held.preemptor = text_at(pause, {"preemptor"});
  if (const std::string until = text_at(pause, {"until"}); !until.empty()) held.until = until;
  return held;
}

// The lease is root's: a uid of a pod names nobody of this machine, and processes of any user are paused for root.
json lease_request(const Pod& pod, const Need& need) {
  json body{{"vram_bytes", need.vram.count},
            {"devices", std::max<std::int64_t>(std::ssize(need.cards), 1)},
            {"tier", need.tier},
            {"pausable", need.pausable},
            {"consumer", pod.owner.substr(0, longest_label)},
            {"tag", tag_of(pod.name)},
            {"owner", {{"cgroup", need.group}}},
            {"on_behalf", {{"user", 0}, {"tenant", pod.name.space}}}};
  if (need.share > 0) body.update({{"interposer", true}, {"share", need.share}});
  if (!need.cards.empty()) body["device"] = fmt::format("{}", fmt::join(need.cards, ","));
  return body;
}

Result<std::vector<Card>> Daemon::cards() const {
  client::Client client = connect();
  auto reply = ask(client, {"GET", "/v1/devices", {}, {}, {}});
  if (!reply) return reply.error();
  std::vector<Card> cards;
  for (const json& device : list_at(*reply, {"devices"})) {
    Card card = card_from(device);
    if (!card.uuid.empty() && card.capacity > Bytes{}) cards.push_back(std::move(card));
  }
  if (cards.empty()) return unavailable("the daemon has read no card yet", "sublet status shows why");
  return cards;
}

Result<std::map<std::string, std::string>> Daemon::program_environment() const {
  client::Client client = connect();
  auto reply = ask(client, {"GET", "/v1/status", {}, {}, {}});
  if (!reply) return reply.error();
  std::map<std::string, std::string> environment;
  const json& given = member_at(*reply, {"program_env"});
  for (const auto& [name, value] : given.items())
    if (value.is_string()) environment[name] = value.get<std::string>();
  return environment;
}

Result<Held> Daemon::take(const Pod& pod, const Need& need, std::int64_t deadline_ns) const {
  client::Client client = connect();
  json body = lease_request(pod, need);
  const auto left = [deadline_ns] { return Duration(deadline_ns - monotonic_ns()); };
  auto lease = ask(client, {"POST", "/v1/leases", client::to_text(body), client::new_idempotency_key(), {}});
  // The tag may belong to another lease for a moment, and an earlier lease of the group may not be settled.
  while (!lease && (is_in_use(lease.error()) || lease.error().code == Code::Unavailable) && left() > one_pause) {
    if (is_in_use(lease.error()) && lease.error().detail.find("control group") == std::string::npos) body.erase("tag");
    if (!client.pause(one_pause)) break;
    lease = ask(client, {"POST", "/v1/leases", client::to_text(body), client::new_idempotency_key(), {}});
  }
  if (!lease) return lease.error();
  for (;;) {
    Held held = held_from(*lease);
    if (held.state == "ended")
      return Error{Code::Unavailable,
                   fmt::format("{} ended before the pod had its memory: {}", held.id, text_at(*lease, {"end_reason"})),
                   fmt::format("see: sublet why {}", held.id)};
    const Duration wait = std::min(one_wait, left());
    const std::string path = "/v1/leases/" + client::encode(held.id);
    if (held.has_memory()) return held;
    const std::int64_t ms = std::chrono::duration_cast<std::chrono::milliseconds>(wait).count();
    if (ms <= 0) {  // the sentence with the estimate is in answers for one lease only
      auto now = ask(client, {"GET", path, {}, {}, {}});
      return now ? held_from(*now) : std::move(held);
    }
    lease = ask(client, {"GET", fmt::format("{}?wait={}ms&since={}", path, ms, client::encode(held.state)), {}, {}, {}},
                one_wait + 30s);
    if (!lease) return lease.error();
  }
}

Result<std::map<std::string, Held>> Daemon::of_pods() const {
  client::Client client = connect();
  std::map<std::string, Held> leases;
  std::string after;
  do {
    auto page = ask(client, {"GET", "/v1/leases" + after, {}, {}, {}});
    if (!page) return page.error();
    for (const json& lease : list_at(*page, {"leases"}))
      if (const std::string uid = uid_of_group(text_at(lease, {"owner", "cgroup"})); !uid.empty())
        leases[uid] = held_from(lease);
    const std::string next = text_at(*page, {"next"});
    after = next.empty() ? "" : "?after=" + client::encode(next);
  } while (!after.empty());
  return leases;
}

Result<json> Daemon::tenant(const std::string& name) const {
  client::Client client = connect();
  auto reply = ask(client, {"GET", "/v1/tenants/" + client::encode(name), {}, {}, {}});
  if (!reply && reply.error().code == Code::NotFound)
    return Result<json>(boost::system::in_place_value, json::object());
  return reply;
}

Status Daemon::change_tenant(const std::string& name, const json& fields) const {
  client::Client client = connect();
  auto reply =
      ask(client,
          {"POST", "/v1/tenants/" + client::encode(name), client::to_text(fields), client::new_idempotency_key(), {}});
  return reply ? Status() : Status(reply.error());
}

Result<std::vector<json>> Daemon::verdicts() const {
  client::Client client = connect();
  auto reply = ask(client, {"GET", "/v1/verdicts", {}, {}, {}});
  if (!reply) return reply.error();
  const json& list = list_at(*reply, {"verdicts"});
  return std::vector<json>(list.begin(), list.end());
}

Status Daemon::release(const std::string& lease) const {
  client::Client client = connect();
  auto reply = ask(client, {"POST",
                            fmt::format("/v1/leases/{}/release", client::encode(lease)),
                            R"({"force": true})",
                            client::new_idempotency_key(),
                            {}});
  if (reply || reply.error().code == Code::NotFound) return {};
  return reply.error();
}

}  // namespace sublet::kube
