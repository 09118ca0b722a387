// SPDX-License-Identifier: Apache-2.0
// Objects of the API server, sizes of users and paths of control groups, as the agent of Kubernetes reads them.
#include "fuzz.h"
#include "kube/api_server.h"
#include "kube/claim.h"
#include "kube/daemon.h"
#include "kube/quantity.h"
#include "kube/strays.h"
#include "kube/tenant.h"

#include <algorithm>

namespace {

using namespace sublet;

void read_claim(const nlohmann::json& object) {
  const auto claim = kube::parse_claim(object, "n1");
  if (!claim) return;
  FUZZ_CHECK(!claim->devices.empty());
  for (const auto& device : claim->devices) FUZZ_CHECK(device.vram > Bytes{});
  const kube::Card card{.id = "gpu0", .uuid = "GPU-0", .name = "card", .index = 0, .capacity = GiB};
  if (const auto size = kube::size_of(*claim, {card})) FUZZ_CHECK(size->cards == std::vector<std::string>{"GPU-0"});
}

void read_pod(const nlohmann::json& object) {
  (void)kube::check_annotations(object);
  const auto pod = kube::parse_pod(object);
  if (!pod) return;
  FUZZ_CHECK(kube::tag_of(pod->name).size() <= 64);
  (void)client::to_text(kube::lease_request(*pod, {}));
  (void)kube::held_from(object);
}

void read_namespace(const nlohmann::json& object) {
  const auto labels = kube::parse_space(object);
  if (!labels) return;
  FUZZ_CHECK(labels->tier.empty() || kube::is_tier(labels->tier));
  const std::size_t told = object.is_object() ? object.size() : 0;
  FUZZ_CHECK(kube::tenant_change(labels->fields, object, labels->fields).size() <= told);
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(text_of(data, size));
  if (const auto bytes = kube::parse_quantity(text))
    FUZZ_CHECK(kube::parse_quantity(kube::format_quantity(*bytes)) == *bytes);
  const std::string uid = kube::pod_of_path(text);
  FUZZ_CHECK(uid.find('/') == std::string::npos);
  (void)kube::parse_api_address(text);
  if (const auto card = kube::card_of_unit(text)) FUZZ_CHECK(!card->empty());
  const auto object = nlohmann::json::parse(text, nullptr, false);
  if (object.is_discarded()) return 0;
  read_claim(object);
  read_pod(object);
  read_namespace(object);
  return 0;
}
