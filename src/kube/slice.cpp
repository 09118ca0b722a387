// SPDX-License-Identifier: Apache-2.0
#include "kube/slice.h"

#include "client/http.h"
#include "kube/claim.h"
#include "kube/quantity.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::kube {
namespace {

using nlohmann::json;

constexpr Bytes step = 256 * MiB, usual_request = GiB;
constexpr const char* slices = "/apis/resource.k8s.io/v1/resourceslices";
constexpr const char* mark = "sublet.dev/spec";
constexpr std::size_t longest_attribute = 64;

Bytes whole_steps(double bytes) { return static_cast<std::int64_t>(bytes / static_cast<double>(step.count)) * step; }

json capacity(Bytes value, Bytes usual, Bytes least, Bytes most) {
  return {{"value", format_quantity(value)},
          {"requestPolicy",
           {{"default", format_quantity(usual)},
            {"validRange",
             {{"min", format_quantity(least)}, {"max", format_quantity(most)}, {"step", format_quantity(step)}}}}}};
}

// FNV-1a, as hexadecimal digits.
std::string digest_of(const std::string& text) {
  constexpr std::uint64_t start = 14'695'981'039'346'656'037ULL, factor = 1'099'511'628'211ULL;
  std::uint64_t hash = start;
  for (const unsigned char c : text) hash = (hash ^ c) * factor;
  return fmt::format("{:016x}", hash);
}

// The slice is removed with the node. Without the right to read the node it stays.
json owners(const ApiServer& api, const std::string& node) {
  const auto object = api.get("/api/v1/nodes/" + client::encode(node));
  const std::string uid = object ? text_at(*object, {"metadata", "uid"}) : "";
  if (uid.empty()) return json::array();
  return json::array({{{"apiVersion", "v1"}, {"kind", "Node"}, {"name", node}, {"uid", uid}, {"controller", true}}});
}

}  // namespace

std::string slice_name(const std::string& node) { return fmt::format("{}-{}", node, driver_name); }

json slice_spec(const std::string& node, const std::vector<Card>& cards, const UnitRules& rules) {
  json devices = json::array();
  for (const Card& card : cards) {
    const Bytes whole = whole_steps(static_cast<double>(card.capacity.count));
    if (!card.healthy || whole <= Bytes{}) continue;
    const Bytes declared = whole_steps(static_cast<double>(card.capacity.count) * rules.overcommit);
    const Bytes most = std::min(whole, declared);
    devices.push_back({{"name", device_name(card)},
                       {"allowMultipleAllocations", true},
                       {"attributes",
                        {{"uuid", {{"string", card.uuid.substr(0, longest_attribute)}}},
                         {"product", {{"string", card.name.substr(0, longest_attribute)}}},
                         {"index", {{"int", card.index}}}}},
                       {"capacity",
                        {{"vram", capacity(declared, std::min(usual_request, most), std::min(step, most), most)},
                         {"guaranteed", capacity(most, Bytes{}, Bytes{}, most)}}}});
  }
  return {{"driver", driver_name},
          {"nodeName", node},
          {"pool", {{"name", node}, {"resourceSliceCount", 1}}},
          {"devices", std::move(devices)}};
}

Status publish_slice(const ApiServer& api, const std::string& node, const json& spec) {
  const std::string digest = digest_of(spec.dump()), target = fmt::format("{}/{}", slices, slice_name(node));
  auto found = api.get(target);
  if (!found && found.error().code != Code::NotFound) return found.error();
  json wanted = spec;
  if (!found) {
    wanted["pool"]["generation"] = 1;
    const json slice{
        {"apiVersion", "resource.k8s.io/v1"},
        {"kind", "ResourceSlice"},
        {"metadata",
         {{"name", slice_name(node)}, {"annotations", {{mark, digest}}}, {"ownerReferences", owners(api, node)}}},
        {"spec", std::move(wanted)}};
    auto made = api.call("POST", slices, slice);
    if (made) return {};
    if (made.error().code != Code::NotFound) return made.error();
    return unavailable("the API server knows no resource.k8s.io/v1, so that there is no dynamic resource allocation",
                       "start the agent with --doors plugin");
  }
  if (text_at(*found, {"metadata", "annotations", mark}) == digest) return {};
  const json& generation = member_at(*found, {"spec", "pool", "generation"});
  wanted["pool"]["generation"] = (generation.is_number_integer() ? generation.get<std::int64_t>() : 0) + 1;
  json changed = std::move(*found);
  changed["metadata"]["annotations"][mark] = digest;
  changed["spec"] = std::move(wanted);
  auto done = api.call("PUT", target, changed);
  return done ? Status() : Status(done.error());
}

}  // namespace sublet::kube
