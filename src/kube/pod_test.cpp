// SPDX-License-Identifier: Apache-2.0
#include "kube/pod.h"

#include "kube/daemon.h"
#include "kube/groups.h"
#include "kube/residence.h"
#include "kube/strays.h"

#include <gtest/gtest.h>

namespace sublet::kube {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

json pod() {
  return {{"metadata", {{"namespace", "vision"}, {"name", "chat-7d9f-x2x"}, {"uid", "12-34"}}},
          {"spec", {{"containers", json::array({json::object()})}}}};
}

TEST(Pod, OfADeploymentHasTheDeploymentAsItsOwner) {
  json object = pod();
  EXPECT_EQ(parse_pod(object)->owner, "chat-7d9f-x2x");
  object["metadata"]["ownerReferences"] = json::array({{{"name", "chat-7d9f"}}});
  EXPECT_EQ(parse_pod(object)->owner, "chat-7d9f");
  object["metadata"]["labels"]["pod-template-hash"] = "7d9f";
  EXPECT_EQ(parse_pod(object)->owner, "chat");
}

TEST(Pod, MayLowerTheTierOfItsClassAndNotRaiseIt) {
  json object = pod();
  const auto tier = [&object](const std::string& wish, const std::string& of_class) {
    object["metadata"]["annotations"]["sublet.dev/tier"] = wish;
    return tier_of(parse_pod(object).value(), of_class);
  };
  EXPECT_EQ(tier("batch", "standard"), "batch");
  EXPECT_EQ(tier("critical", "standard"), "standard");
  Pod limited = parse_pod(object).value();
  limited.highest_tier = "batch";
  EXPECT_EQ(tier_of(limited, "interactive"), "batch");
  EXPECT_EQ(tier_of(limited, "spot"), "spot");
  object["metadata"]["annotations"]["sublet.dev/tier"] = "batsh";
  EXPECT_NE(parse_pod(object).error().detail.find("did you mean 'batch'"), std::string::npos);
  EXPECT_EQ(tier_of_class("", 2'000'000'000), "critical");
  EXPECT_EQ(tier_of_class("", 1000), "interactive");
  EXPECT_EQ(tier_of_class("", 999), "standard");
  EXPECT_EQ(tier_of_class("", -1), "batch");
  EXPECT_EQ(tier_of_class("spot", 1000), "spot");
  EXPECT_EQ(tier_of_class("unknown", 0), "standard");
}

TEST(Pod, HasThePatienceOfItsStrictestProbe) {
  json object = pod();
  EXPECT_FALSE(parse_pod(object)->patience);
  json& containers = object["spec"]["containers"];
  containers = json::array({{{"livenessProbe", {{"httpGet", json::object()}}}},
                            {{"livenessProbe", {{"periodSeconds", 2}, {"failureThreshold", 5}}}}});
  EXPECT_EQ(parse_pod(object)->patience, 10s);
  EXPECT_EQ(parse_pod(object)->pausable, "no");
  json& annotation = object["metadata"]["annotations"]["sublet.dev/pausable"];
  annotation = "auto";
  EXPECT_EQ(parse_pod(object)->pausable, "no") << "auto is no choice";
  containers[0]["name"] = "web";
  EXPECT_EQ(parse_pod(object)->guard, "livenessProbe of web");
  annotation = "driver";
  EXPECT_EQ(parse_pod(object)->pausable, "driver");
  EXPECT_EQ(parse_pod(object)->guard, "");
  containers = json::array({{{"livenessProbe", {{"exec", {{"command", {"/run/sublet/sublet-probe", "true"}}}}}}}});
  EXPECT_FALSE(parse_pod(object)->patience) << "it answers while the lease is paused";
  containers = json::array({{{"startupProbe", {{"periodSeconds", 4}}}}});
  EXPECT_EQ(parse_pod(object)->patience, 12s);
  containers = json::array({json::object()});
  object["spec"]["initContainers"] = json::array({{{"restartPolicy", "Always"}, {"livenessProbe", json::object()}}});
  EXPECT_EQ(parse_pod(object)->patience, 30s) << "of a sidecar";
}

TEST(Pod, IsNoMirrorOfAPodThatIsNotStatic) {
  json object = pod();
  const auto group = [&object](const std::string& mirror) {
    object["metadata"]["annotations"]["kubernetes.io/config.mirror"] = mirror;
    return parse_pod(object)->group_uid;
  };
  EXPECT_EQ(group("0123456789abcdef0123456789abcdef"), "0123456789abcdef0123456789abcdef");
  for (const char* other : {"01234567-89ab-cdef-0123-456789abcdef", "0123456789ABCDEF0123456789ABCDEF", "../12", ""})
    EXPECT_EQ(group(other), "12-34") << other;
}

TEST(Pod, ThatIsBrokenIsRefused) {
  for (const json& object : {json(), json::array(), json{{"metadata", 1}}, json{{"metadata", {{"name", "x"}}}}})
    EXPECT_FALSE(parse_pod(object));
  json object = pod();
  object["metadata"]["annotations"]["sublet.dev/pausable"] = "sometimes";
  EXPECT_FALSE(parse_pod(object));
  object = pod();
  object["spec"]["containers"] = {{"livenessProbe", 7}};
  object["spec"]["securityContext"] = "none";
  EXPECT_TRUE(parse_pod(object));
}

TEST(Pod, WithAnUnknownAnnotationIsRefused) {
  json object = pod();
  EXPECT_TRUE(check_annotations(object));
  json& annotations = object["metadata"]["annotations"];
  annotations = {{"sublet.dev/tier", "batch"}, {"sublet.dev/pausable", "no"}, {"example.org/pausble", "x"}};
  EXPECT_TRUE(check_annotations(object));
  annotations["sublet.dev/pausble"] = "no";
  EXPECT_NE(check_annotations(object).error().detail.find("did you mean 'pausable'"), std::string::npos);
  EXPECT_TRUE(parse_pod(object)) << "it is still a pod that may use a card without a lease";
  annotations = 7;
  EXPECT_TRUE(check_annotations(object));
}

TEST(Pod, AsksOnBehalfOfItsUserAndNamespace) {
  json object = pod();
  const json body = lease_request(parse_pod(object).value(), {.vram = GiB, .cards = {"GPU-1"}, .group = "/g"});
  EXPECT_EQ(body["on_behalf"], (json{{"user", 0}, {"tenant", "vision"}})) << "no user of this machine has it";
  EXPECT_EQ(body["tag"], "vision.chat-7d9f-x2x");
  EXPECT_EQ(body["owner"]["cgroup"], "/g");
  EXPECT_EQ(body["device"], "GPU-1");
}

TEST(Pod, HasATagOfAtMost64Characters) {
  const std::string one = tag_of({"space", std::string(200, 'a') + "1"});
  const std::string two = tag_of({"space", std::string(200, 'a')});
  EXPECT_EQ(one.size(), 64U);
  EXPECT_NE(one, two);
}

TEST(Residence, SaysWhyAndUntilWhen) {
  Held lease{"lease-1", "paused", "", "", "tier", "lease-9", "2026-11-29T14:05:00.000Z"};
  EXPECT_EQ(residence_of(&lease).message, "lease-1 is paused for lease-9, back about 14:05 UTC");
  EXPECT_EQ(residence_of(&lease).reason, "Preempted");
  const std::map<std::string, std::string> reasons{
      {"slice", "Timeshare"}, {"admin_request", "Operator"}, {"idle", "Preempted"}};
  for (const auto& [cause, reason] : reasons) {
    lease.reason = cause;
    EXPECT_EQ(residence_of(&lease).reason, reason) << cause;
  }
  lease.state = "active";
  EXPECT_TRUE(residence_of(&lease).resident);
  EXPECT_EQ(residence_of(nullptr).reason, "NoLease");
  const json patch = condition_patch("12", residence_of(&lease), {1'764'425'100'123'456'789});
  EXPECT_EQ(patch["metadata"]["uid"], "12");
  EXPECT_EQ(patch["status"]["conditions"][0]["lastTransitionTime"], "2025-11-29T14:05:00Z");
}

TEST(Group, OfAPodHasTheNamesOfBothDrivers) {
  const auto plain = group_candidates("/", "12-34");
  EXPECT_EQ(plain[1], "/kubepods/burstable/pod12-34");
  EXPECT_EQ(plain[3], "/kubepods.slice/kubepods-pod12_34.slice");
  EXPECT_EQ(plain[5], "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod12_34.slice");
  const auto below = group_candidates("/a/b", "12");
  EXPECT_EQ(below[0], "/a/b/kubepods/pod12");
  EXPECT_EQ(below[4],
            "/a.slice/a-b.slice/a-b-kubepods.slice/a-b-kubepods-burstable.slice/"
            "a-b-kubepods-burstable-pod12.slice");
}

TEST(Group, OfAProcessIsInsideOfItsPods) {
  EXPECT_EQ(pod_of_path("/kubepods/burstable/pod12-34/c0ffee"), "12-34");
  EXPECT_EQ(pod_of_path("/kubepods.slice/kubepods-pod12_34.slice/cri-containerd-c0ffee.scope"), "12-34");
  for (const char* other : {"", "/", "/user.slice", "/kubepods", "/system.slice/pod12/x"})
    EXPECT_EQ(pod_of_path(other), "") << other;
}

TEST(Group, TellsTheUidOfItsPod) {
  EXPECT_EQ(uid_of_group("/sys/fs/cgroup/memory/kubepods/burstable/pod12-34"), "12-34");
  EXPECT_EQ(uid_of_group("/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12_34.slice"),
            "12-34");
  for (const char* other : {"", "/", "/sys/fs/cgroup/slurm/job_1", "/kubepods", "/kubepods.slice", "/other/pod12"})
    EXPECT_EQ(uid_of_group(other), "") << other;
}

}  // namespace
}  // namespace sublet::kube
