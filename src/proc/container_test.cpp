// SPDX-License-Identifier: Apache-2.0
#include "proc/container.h"

#include <gtest/gtest.h>

namespace sublet::proc {
namespace {

const std::string id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const std::string other = std::string(64, 'f');

TEST(Container, IsFoundInThePathOfAControlGroup) {
  struct Case {
    std::string path;
    std::string container;
  };
  const std::vector<Case> cases{
      // Docker: cgroupfs, systemd, rootless, seen from a sibling in its own namespace.
      {"/docker/" + id, "0123456789ab"},
      {"/system.slice/docker-" + id + ".scope", "0123456789ab"},
      {"/user.slice/user-1000.slice/user@1000.service/user.slice/docker-" + id + ".scope", "0123456789ab"},
      {"/../" + id, "0123456789ab"},
      {"/system.slice/docker-" + id + ".scope/init/worker", "0123456789ab"},
      // Podman, and its monitor outside of the container.
      {"/machine.slice/libpod-" + id + ".scope/container", "0123456789ab"},
      {"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + id + ".scope", "0123456789ab"},
      {"/libpod_parent/libpod-" + id, "0123456789ab"},
      {"/machine.slice/libpod-conmon-" + id + ".scope", ""},
      // Kubernetes with containerd, CRI-O and Docker.
      {"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1a.slice/cri-containerd-" + id + ".scope",
       "0123456789ab"},
      {"/kubepods.slice/kubepods-pod1a.slice/crio-" + id + ".scope", "0123456789ab"},
      {"/kubepods.slice/kubepods-pod1a.slice/crio-conmon-" + id + ".scope", ""},
      {"/kubepods/besteffort/pod12345678-1234-1234-1234-123456789abc/" + id, "0123456789ab"},
      {"/system.slice/containerd.service/kubepods-burstable-pod1a.slice:cri-containerd:" + id, "0123456789ab"},
      {"/system.slice/nerdctl-" + id + ".scope", "0123456789ab"},
      // LXC, its monitor, and systemd's machines.
      {"/lxc/web", "web"},
      {"/lxc.payload/web/system.slice", "web"},
      {"/lxc.payload.web-1/user.slice", "web-1"},
      {"/lxc.monitor.web", ""},
      {"/machine.slice/machine-debian.scope/payload", "debian"},
      {"/machine.slice/machine-my\\x2dbox.scope", "my-box"},
      {"/machine.slice/systemd-nspawn@my\\x2dbox.service/payload", "my-box"},
      // The outermost container is the one that the host knows.
      {"/docker/" + id + "/kubelet/kubepods/pod1a/" + other, "0123456789ab"},
      {"/lxc.payload.web/docker/" + id, "web"},
      // No containers.
      {"", ""},
      {"/", ""},
      {"/user.slice/user-1000.slice/session-3.scope", ""},
      {"/system.slice/docker.service", ""},
      {"/docker/" + id.substr(1), ""},
      {"/docker/x" + id.substr(1), ""},
      {"/system.slice/x" + id + ".scope", ""},
      {"/lxc", ""},
      {"/lxc/", ""},
      {"/machine.slice/machine-.scope", ""},
      {"/system.slice/slurmstepd.scope/job_7/step_0", ""},
  };
  for (const Case& c : cases) EXPECT_EQ(container_of_path(c.path), c.container) << c.path;
}

TEST(Container, NamesArePrintableAndShort) {
  EXPECT_EQ(container_of_path("/lxc/a\x1b[31m"), "a\\x1b[31m");
  EXPECT_EQ(container_of_path("/machine.slice/machine-a\\x1b.scope"), "a\\x1b");
  EXPECT_EQ(container_of_path("/machine.slice/machine-a\\x2.scope"), "a\\x2");
  EXPECT_EQ(container_of_path("/lxc/" + std::string(200, 'x')), std::string(64, 'x'));
}

TEST(Container, AnyHierarchyMayTell) {
  EXPECT_EQ(container_of(parse_process_cgroups("0::/system.slice/docker-" + id + ".scope\n")), "0123456789ab");
  EXPECT_EQ(container_of(parse_process_cgroups("5:memory:/docker/" + id + "\n1:name=systemd:/\n0::/\n")),
            "0123456789ab");
  EXPECT_EQ(container_of(parse_process_cgroups("1:name=systemd:/\n0::/\n")), "");
}

}  // namespace
}  // namespace sublet::proc
