// SPDX-License-Identifier: Apache-2.0
#include "kube/claim.h"

#include "base/text.h"
#include "kube/quantity.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace sublet::kube {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 5> tiers{"critical", "interactive", "standard", "batch", "spot"};
constexpr std::array<std::string_view, 4> pausables{"auto", "driver", "cooperative", "no"};
constexpr std::array<std::string_view, 5> fields{"apiVersion", "kind", "tier", "pausable", "share"};

Error wrong(const Claim& claim, const std::string& what, const std::string& hint) {
  return bad_request(fmt::format("claim {}/{}: {}", claim.name.space, claim.name.name, what), hint);
}

template <std::size_t N>
Status take_word(const Claim& claim, const json& parameters, const char* field,
                 const std::array<std::string_view, N>& known, std::string& into) {
  const json& given = member_at(parameters, {field});
  if (given.is_null()) return {};
  const std::string word = given.is_string() ? given.get<std::string>() : given.dump();
  if (std::ranges::count(known, word) == 0)
    return wrong(claim, fmt::format("{} '{}' is unknown{}", field, printable(word), did_you_mean(word, known)),
                 fmt::format("one of {}", fmt::join(known, ", ")));
  into = word;
  return {};
}

Status take_parameters(const json& parameters, bool of_class, Claim& claim) {
  if (!parameters.is_object() || text_at(parameters, {"apiVersion"}) != "sublet.dev/v1" ||
      text_at(parameters, {"kind"}) != "Lease")
    return wrong(claim, "its parameters are no Lease of sublet.dev/v1", "apiVersion: sublet.dev/v1, kind: Lease");
  for (const auto& [field, value] : parameters.items())
    if (std::ranges::count(fields, field) == 0)
      return wrong(claim, fmt::format("the parameter '{}' is unknown{}", printable(field), did_you_mean(field, fields)),
                   fmt::format("one of {}", fmt::join(fields, ", ")));
  if (const json& share = member_at(parameters, {"share"}); !share.is_null()) {
    if (!share.is_number_integer() || share < 1 || share > 100)
      return wrong(claim, fmt::format("share '{}' is no percentage", printable(share.dump())),
                   "a whole number, 1 to 100: percent of the computing time of each card");
    claim.share = std::min(share.get<int>(), claim.share > 0 ? claim.share : 100);
  }
  if (auto taken = take_word(claim, parameters, "tier", tiers, of_class ? claim.class_tier : claim.tier); !taken)
    return taken;
  return take_word(claim, parameters, "pausable", pausables, of_class ? claim.class_pausable : claim.pausable);
}

Result<ClaimedDevice> device_from(const Claim& claim, const json& result) {
  ClaimedDevice device{text_at(result, {"request"}),
                       text_at(result, {"pool"}),
                       text_at(result, {"device"}),
                       text_at(result, {"shareID"}),
                       {},
                       {}};
  const std::string vram = text_at(result, {"consumedCapacity", "vram"});
  const std::string guaranteed = text_at(result, {"consumedCapacity", "guaranteed"});
  const auto size = parse_quantity(vram), kept = parse_quantity(guaranteed.empty() ? "0" : guaranteed);
  if (!size || !kept || size->count <= 0)
    return wrong(claim, fmt::format("device {} has no capacity vram ('{}')", device.device, printable(vram)),
                 "consumable capacity needs Kubernetes 1.36, or its feature gate DRAConsumableCapacity");
  device.vram = *size;
  device.guaranteed = *kept;
  return device;
}

}  // namespace

Result<Claim> parse_claim(const json& object, const std::string& node) {
  Claim claim;
  claim.name = {text_at(object, {"metadata", "namespace"}), text_at(object, {"metadata", "name"}),
                text_at(object, {"metadata", "uid"})};
  if (claim.name.uid.empty()) return bad_request("the API server's answer is no claim");
  for (const json& result : list_at(object, {"status", "allocation", "devices", "results"})) {
    if (text_at(result, {"driver"}) != driver_name || text_at(result, {"pool"}) != node) continue;
    auto device = device_from(claim, result);
    if (!device) return device.error();
    claim.devices.push_back(std::move(*device));
  }
  if (claim.devices.empty())
    return wrong(claim, fmt::format("it has no device of {} on node {}", driver_name, node),
                 "the scheduler has not allocated the claim to this node");
  for (const json& config : list_at(object, {"status", "allocation", "devices", "config"})) {
    if (text_at(config, {"opaque", "driver"}) != driver_name) continue;
    const bool of_class = text_at(config, {"source"}) == "FromClass";
    if (auto taken = take_parameters(member_at(config, {"opaque", "parameters"}), of_class, claim); !taken)
      return taken.error();
  }
  for (const json& user : list_at(object, {"status", "reservedFor"}))
    if (text_at(user, {"resource"}) == "pods")
      claim.users.push_back({{claim.name.space, text_at(user, {"name"})}, text_at(user, {"uid"})});
  return claim;
}

std::string pausable_of(const Claim& claim, const Pod& pod) {
  const std::string& wish = claim.pausable.empty() ? claim.class_pausable : claim.pausable;
  if (wish.empty()) return pod.pausable;
  const bool is_own_choice = !claim.pausable.empty() && wish != "auto";
  return !pod.patience || is_own_choice || wish == "no" ? wish : pod.pausable;
}

std::string device_name(const Card& card) {
  std::string name = card.id;
  if (name.starts_with("gpu")) name.insert(3, "-");
  std::ranges::replace(name, ':', '-');
  return name;
}

Result<ClaimSize> size_of(const Claim& claim, const std::vector<Card>& cards) {
  std::map<std::string, Bytes> on, kept;
  for (const ClaimedDevice& device : claim.devices) {
    const auto card = std::ranges::find_if(cards, [&](const Card& one) { return device_name(one) == device.device; });
    if (card == cards.end())
      return wrong(claim, fmt::format("this node has no card {}", printable(device.device)),
                   "sublet status shows the cards of the node");
    on[card->uuid] += device.vram;
    kept[card->uuid] += device.guaranteed;
  }
  ClaimSize size{on.begin()->second, {}, kept.begin()->second > Bytes{}};
  for (const auto& [card, bytes] : on) {
    if (bytes != size.vram)
      return wrong(claim,
                   fmt::format("its parts of the cards differ: {} and {}", format_size(size.vram), format_size(bytes)),
                   "a lease has the same size on each of its cards");
    if (kept[card] != (size.guaranteed ? bytes : Bytes{}))
      return wrong(claim, fmt::format("guaranteed is {} of {}", format_size(kept[card]), format_size(bytes)),
                   "guarantee all of it, or nothing: a lease is paused as a whole");
    size.cards.push_back(card);
  }
  return size;
}

}  // namespace sublet::kube
