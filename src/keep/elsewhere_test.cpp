// SPDX-License-Identifier: Apache-2.0
#include "keep/elsewhere.h"

#include <gtest/gtest.h>

#include <sstream>

namespace sublet::keep {
namespace {

using Words = std::vector<std::string>;

Words words(const std::string& line) {
  std::istringstream in(line);
  Words all;
  for (std::string word; in >> word;) all.push_back(word);
  return all;
}

std::string joined(const Words& all) {
  std::string text;
  for (const std::string& word : all) text += (text.empty() ? "" : " ") + word;
  return text;
}

TEST(Elsewhere, ContainersInTheForegroundAreFollowed) {
  for (const char* line :
       {"docker run img", "podman run --rm -it img sh", "/usr/bin/docker run --name x -e A=1 --gpus all img",
        "sudo -E docker run img", "env A=1 nice -n 5 docker run img", "docker -H unix:///s container run img -d",
        "docker --context far run -v /a:/b img --detach", "nerdctl run -ti -p 80:80 img", "sudo -u ana docker run img",
        "timeout -s KILL 60 docker run img", "timeout --kill-after=5 -sKILL 1h docker run img",
        "env -u X -i A=1 docker run img", "sudo -E -- env A=1 docker run img", "nice -5 taskset -c 0-3 docker run img",
        "stdbuf -oL docker run img", "time -f %e docker run img", "docker run --device /dev/fuse -w /data img"}) {
    EXPECT_TRUE(container_run(words(line))) << line;
    EXPECT_FALSE(started_elsewhere(words(line))) << line;
  }
}

TEST(Elsewhere, TheImageIsTheFirstWordBehindTheOptions) {
  const std::pair<const char*, const char*> rows[] = {
      {"docker run img cmd", "img"},
      {"docker run -it --rm img", "img"},
      {"docker run -v /a:/b -p80:80 --name x --init --env=A=1 img", "img"},
      {"docker run -itv /a:/b img -v", "img"},
  };
  for (const auto& [line, image] : rows) {
    const Words command = words(line);
    const auto run = container_run(command);
    ASSERT_TRUE(run) << line;
    EXPECT_EQ(command[run->image], image) << line;
  }
}

TEST(Elsewhere, WorkThatALeaseCannotFollowIsTold) {
  const std::pair<const char*, const char*> rows[] = {
      {"docker run -d img", "leave -d out"},
      {"docker run -itd img", "leave -d out"},
      {"podman run --rm --detach img", "leave -d out"},
      {"docker compose up", "sublet stack"},
      {"docker exec web train", "sublet attach"},
      {"systemd-run --user train", "--detach"},
      {"tmux new -d train", "inside of tmux"},
      {"at now", "sublet run"},
      {"sudo systemd-run train", "--detach"},
      {"kubectl exec pod train", "sublet attach"},
      {"docker-compose -f x.yml up", "sublet stack"},
      {"podman-compose up", "sublet stack"},
      {"sudo -u ana tmux new -d train", "inside of tmux"},
  };
  for (const auto& [line, verb] : rows) {
    const auto told = started_elsewhere(words(line));
    ASSERT_TRUE(told) << line;
    EXPECT_NE(told->verb.find(verb), std::string::npos) << told->verb;
    EXPECT_FALSE(container_run(words(line))) << line;
  }
  for (const char* line : {"python train.py", "systemd-run --scope --user train", "docker build .", "docker ps",
                           "sh -c x", "docker", "env", "nohup train"})
    EXPECT_FALSE(started_elsewhere(words(line))) << line;
}

TEST(Elsewhere, AnEngineOnAnotherMachineIsTold) {
  struct Row {
    const char* line;
    const char* docker_host;
    const char* told;  // "": nothing
  };
  const Row rows[] = {
      {"docker run img", "", ""},
      {"docker run img", "unix:///run/docker.sock", ""},
      {"docker run img", "tcp://far:2375", "DOCKER_HOST is tcp://far:2375"},
      {"podman run img", "tcp://far:2375", ""},
      {"docker -H tcp://far run img", "", "tcp://far"},
      {"docker -Htcp://far run img", "", "tcp://far"},
      {"docker --host=ssh://far run img", "unix:///s", "ssh://far"},
      {"docker -H unix:///s run img", "tcp://far", ""},
      {"docker --context far run img", "", "the context far"},
      {"docker -c default run img", "", ""},
      {"podman --remote run img", "", "a remote one"},
      {"python train.py", "tcp://far", ""},
  };
  for (const Row& row : rows) {
    const Words told = warnings_of_others(words(row.line), row.docker_host);
    if (*row.told == 0) EXPECT_EQ(joined(told), "") << row.line;
    else EXPECT_NE(joined(told).find(row.told), std::string::npos) << row.line << ": " << joined(told);
  }
  EXPECT_NE(joined(warnings_of_others(words("docker run --cgroup-parent /x img"), "")).find("--cgroup-parent"),
            std::string::npos);
  EXPECT_NE(joined(warnings_of_others(words("docker run -d img"), "")).find("does not follow it"), std::string::npos);
}

TEST(Elsewhere, TheContainerGetsTheDevicesOfTheLeaseAlone) {
  const std::string own =
      "--cgroup-parent=g.slice --env=NVIDIA_VISIBLE_DEVICES=GPU-a,GPU-b --env=CUDA_VISIBLE_DEVICES=GPU-a,GPU-b";
  const std::pair<const char*, std::string> rows[] = {
      {"docker run img x", "docker run " + own + " img x"},
      {"docker run --gpus all --rm img --gpus all",
       "docker run " + own + " --gpus=\"device=GPU-a,GPU-b\" --rm img --gpus all"},
      {"docker run --gpus=2 img", "docker run " + own + " --gpus=\"device=GPU-a,GPU-b\" img"},
      {"podman run --device nvidia.com/gpu=0 --device=nvidia.com/gpu=1 --device /dev/fuse img",
       "podman run " + own + " --device=nvidia.com/gpu=GPU-a --device=nvidia.com/gpu=GPU-b --device /dev/fuse img"},
      {"podman run --gpus all --device nvidia.com/gpu=0 img",
       "podman run " + own + " --device=nvidia.com/gpu=GPU-a --device=nvidia.com/gpu=GPU-b img"},
      {"docker run -e NVIDIA_VISIBLE_DEVICES=all -e A=1 --env=CUDA_VISIBLE_DEVICES=0 img -e CUDA_VISIBLE_DEVICES=0",
       "docker run " + own + " -e NVIDIA_VISIBLE_DEVICES=GPU-a,GPU-b -e A=1 --env=CUDA_VISIBLE_DEVICES=GPU-a,GPU-b img "
       "-e CUDA_VISIBLE_DEVICES=0"},
      {"docker run -ite CUDA_VISIBLE_DEVICES -eNVIDIA_VISIBLE_DEVICES=1 -l X=CUDA_VISIBLE_DEVICES=1 img",
       "docker run " + own + " -ite CUDA_VISIBLE_DEVICES=GPU-a,GPU-b -eNVIDIA_VISIBLE_DEVICES=GPU-a,GPU-b -l "
       "X=CUDA_VISIBLE_DEVICES=1 img"},
  };
  for (const auto& [line, expected] : rows) {
    const Words command = words(line);
    EXPECT_EQ(joined(with_devices(command, *container_run(command), {"GPU-a", "GPU-b"}, "g.slice")), expected);
  }
  const Words named = words("docker run --cgroup-parent /mine img");
  EXPECT_TRUE(container_run(named)->has_parent);
  const std::string own_group = joined(with_devices(named, *container_run(named), {"GPU-a"}, "g.slice"));
  EXPECT_EQ(own_group.find("g.slice"), std::string::npos) << own_group;
}

}  // namespace
}  // namespace sublet::keep
