// SPDX-License-Identifier: Apache-2.0
#include "kube/claim.h"

#include "kube/cdi.h"
#include "kube/quantity.h"
#include "kube/slice.h"

#include <gtest/gtest.h>

namespace sublet::kube {
namespace {

using nlohmann::json;

Card card(int index) {
  return {.id = "gpu" + std::to_string(index),
          .uuid = "GPU-" + std::to_string(index),
          .name = "card",
          .index = index,
          .capacity = 138 * GiB + 100 * MiB};
}

json result(const std::string& device, const std::string& vram, const std::string& guaranteed = "0") {
  return {{"request", "gpu"},
          {"driver", driver_name},
          {"pool", "n1"},
          {"device", device},
          {"consumedCapacity", {{"vram", vram}, {"guaranteed", guaranteed}}}};
}

json claim(json results) {
  return {{"metadata", {{"namespace", "vision"}, {"name", "gpu"}, {"uid", "12"}}},
          {"status", {{"allocation", {{"devices", {{"results", std::move(results)}}}}}}}};
}

TEST(Quantity, HasTheUnitsOfKubernetes) {
  const std::map<std::string, std::int64_t> sizes{{"0", 0},
                                                  {"6Gi", 6 * GiB.count},
                                                  {"1.5Gi", 3 * GiB.count / 2},
                                                  {"6656Mi", 6656 * MiB.count},
                                                  {"1G", 1000000000},
                                                  {"1e9", 1000000000},
                                                  {"5k", 5000},
                                                  {"2000m", 2},
                                                  {"123", 123}};
  for (const auto& [text, bytes] : sizes) EXPECT_EQ(parse_quantity(text)->count, bytes) << text;
  for (const char* text : {"", "Gi", "6GiB", "-1", "1.5", "6 Gi", "1e30", "nan", "0x10", "1m"})
    EXPECT_FALSE(parse_quantity(text)) << text;
  EXPECT_EQ(format_quantity(6 * GiB), "6144Mi");
  EXPECT_EQ(format_quantity({1000}), "1000");
  EXPECT_EQ(format_quantity({}), "0");
}

TEST(Claim, OfTwoCardsIsOneLease) {
  const auto parsed = parse_claim(claim({result("gpu-0", "6Gi"), result("gpu-1", "6Gi")}), "n1");
  const auto size = size_of(parsed.value(), {card(0), card(1)});
  EXPECT_EQ(size->vram, 6 * GiB);
  EXPECT_EQ(size->cards, (std::vector<std::string>{"GPU-0", "GPU-1"}));
  EXPECT_FALSE(size->guaranteed);
  const auto uneven = parse_claim(claim({result("gpu-0", "6Gi"), result("gpu-1", "5Gi")}), "n1");
  EXPECT_NE(size_of(uneven.value(), {card(0), card(1)}).error().detail.find("6.0 GiB and 5.0 GiB"), std::string::npos);
  const auto twice = parse_claim(claim({result("gpu-0", "6Gi", "6Gi"), result("gpu-0", "1Gi", "1Gi")}), "n1");
  EXPECT_EQ(size_of(twice.value(), {card(0)})->vram, 7 * GiB);
  EXPECT_TRUE(size_of(twice.value(), {card(0)})->guaranteed);
}

json with_parameters(const json& of_class, const json& of_claim) {
  json object = claim({result("gpu-0", "6Gi")});
  json& config = object["status"]["allocation"]["devices"]["config"] = json::array();
  for (const auto& [source, given] : {std::pair{"FromClass", of_class}, std::pair{"FromClaim", of_claim}}) {
    json parameters{{"apiVersion", "sublet.dev/v1"}, {"kind", "Lease"}};
    parameters.update(given);
    config.push_back({{"source", source}, {"opaque", {{"driver", driver_name}, {"parameters", parameters}}}});
  }
  return object;
}

TEST(Claim, LetsAPodWithAProbeBePausedOnlyByItsOwnChoice) {
  const auto pausable = [](const json& of_class, const json& of_claim, const Pod& pod) {
    const auto wish = [](const json& word) { return word.is_null() ? json::object() : json{{"pausable", word}}; };
    return pausable_of(parse_claim(with_parameters(wish(of_class), wish(of_claim)), "n1").value(), pod);
  };
  Pod probed, chosen, plain;
  probed.pausable = "no", chosen.pausable = "cooperative", plain.pausable = "auto";
  probed.patience = chosen.patience = std::chrono::seconds(30);
  for (const json& other : {json(), json("auto"), json("driver")}) {
    EXPECT_EQ(pausable(other, nullptr, probed), "no") << other;
    EXPECT_EQ(pausable(other, "auto", probed), "no") << other;
    EXPECT_EQ(pausable(other, "driver", probed), "driver") << other;
    EXPECT_EQ(pausable(other, "auto", chosen), "cooperative") << other;
  }
  EXPECT_EQ(pausable("no", nullptr, chosen), "no");
  EXPECT_EQ(pausable("driver", nullptr, plain), "driver");
  EXPECT_EQ(pausable("driver", "cooperative", plain), "cooperative");
  EXPECT_EQ(pausable(nullptr, nullptr, plain), "auto");
}

TEST(Claim, HasTheSmallerShareOfItsClassAndItsOwn) {
  const auto share = [](const json& of_class, const json& of_claim) {
    return parse_claim(with_parameters(of_class, of_claim), "n1")->share;
  };
  const json none = json::object(), small{{"share", 20}}, large{{"share", 90}};
  EXPECT_EQ(share(small, large), 20);
  EXPECT_EQ(share(large, small), 20);
  EXPECT_EQ(share(small, none), 20);
  EXPECT_EQ(share(none, large), 90);
  EXPECT_EQ(share(none, none), 0);
}

TEST(Claim, ThatIsBrokenIsRefused) {
  for (const json& object :
       {json(), json::array(), json{{"metadata", 3}}, claim(json::array()), claim({result("gpu-0", "x")}),
        claim({result("gpu-0", "0")}), claim({json{{"driver", driver_name}, {"pool", "n1"}}}), claim({7, "x"})})
    EXPECT_FALSE(parse_claim(object, "n1")) << object;
  EXPECT_FALSE(parse_claim(claim({result("gpu-0", "6Gi")}), "n2"));
  json object = claim({result("gpu-0", "6Gi")});
  object["status"]["allocation"]["devices"]["config"] = {{{"opaque", {{"driver", driver_name}, {"parameters", 7}}}}};
  EXPECT_FALSE(parse_claim(object, "n1"));
  object["status"]["allocation"]["devices"]["config"] = {{{"opaque", {{"driver", "other"}, {"parameters", 7}}}}};
  EXPECT_TRUE(parse_claim(object, "n1")) << "the parameters of another driver";
}

TEST(Slice, HasBothCapacitiesInWholeSteps) {
  Card lost = card(1), slice = card(2);
  lost.healthy = false;
  slice.id = "gpu0:1";
  const json spec = slice_spec("n1", {card(0), lost, slice}, {512 * MiB, 2});
  ASSERT_EQ(spec["devices"].size(), 2U);
  const json& device = spec["devices"][0];
  EXPECT_EQ(device["name"], "gpu-0");
  EXPECT_EQ(device["capacity"]["vram"]["value"], "282624Mi");
  EXPECT_EQ(device["capacity"]["guaranteed"]["value"], "141312Mi");
  EXPECT_EQ(device["capacity"]["vram"]["requestPolicy"]["validRange"]["max"], "141312Mi");
  EXPECT_EQ(device["capacity"]["guaranteed"]["requestPolicy"]["default"], "0");
  EXPECT_EQ(spec["devices"][1]["name"], "gpu-0-1");
}

TEST(Cdi, HandsOutEnvironmentMountsAndNodes) {
  Handout handout;
  handout.environment = {{"A", "1"}};
  handout.mounts = {{"/h", "/c", true}};
  const json content = cdi_content("12", handout);
  const json& edits = content["devices"][0]["containerEdits"];
  EXPECT_EQ(content["kind"], "vram.sublet.dev/claim");
  EXPECT_EQ(edits["env"], json::array({"A=1"}));
  EXPECT_EQ(edits["mounts"][0]["options"][0], "ro");
  EXPECT_FALSE(edits.contains("deviceNodes"));
  EXPECT_EQ(cdi_id("12"), "vram.sublet.dev/claim=12");
}

}  // namespace
}  // namespace sublet::kube
