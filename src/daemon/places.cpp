// SPDX-License-Identifier: Apache-2.0
#include "base/in_container.h"
#include "client/endpoint.h"
#include "config/config.h"
#include "daemon/options.h"
#include "daemon/service_manager.h"
#include "proc/launch.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace sublet::daemon {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// Looks for a helper beside this program, and then where packages install programs that users do not call.
std::string find_program(const fs::path& bin, const std::string& name) {
  for (const fs::path& place : {bin / name, bin / "../libexec/sublet" / name, bin / "../lib/sublet" / name}) {
    if (::access(place.c_str(), X_OK) == 0) return fs::weakly_canonical(place).string();
  }
  return {};
}

Status make_directory(const std::string& path, mode_t mode) {
  std::error_code failure;
  // The directory existed: its owner decides its mode.
  if (!fs::create_directories(path, failure) && !failure) return {};
  if (failure) return from_errno("cannot create " + path, failure.value());
  if (::chmod(path.c_str(), mode) != 0) return from_errno("chmod " + path, errno);
  return {};
}

// Programs open files of known names in the directories of their users there. A file of another user would be theirs.
Status keep_others_from_writing(const std::string& path) {
  struct stat about {};
  if (::stat(path.c_str(), &about) != 0) return from_errno("cannot read " + path, errno);
  if ((about.st_mode & (S_IWGRP | S_IWOTH)) == 0) return {};
  if (::chmod(path.c_str(), 0711) != 0) return from_errno("chmod " + path, errno);
  return {};
}

std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') out += "'\\''";
    else out += c;
  }
  return out + "'";
}

// The simulator's own tool makes the cards. This program knows nothing of simulated cards.
Status make_cards(const fs::path& bin, const Options& options) {
  const std::string tool = find_program(bin, "simgpu-ctl");
  if (tool.empty()) {
    return bad_request(fmt::format("--sim needs simgpu-ctl, which is not in {}", bin.string()),
                       "install the package sublet-simgpu, or in a build tree: ./dev build");
  }
  const auto pid = proc::Launch{.program = tool, .arguments = {"--dir", options.dir, "create", options.sim}}.start();
  if (!pid) return pid.error();
  int status = 0;
  while (::waitpid(*pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return bad_request(fmt::format("simgpu-ctl could not create the cards '{}'", options.sim),
                     "see the message of simgpu-ctl above");
}

Places places_of_mode(const Options& options) {
  Places places;
  if (!options.dir.empty()) {
    places.mode = "dir";
    places.config_file = config::file_in(options.dir).string();
    places.state_dir = options.dir + "/state";
    places.socket = options.dir + "/sublet.sock";
    places.env_file = options.dir + "/env";
  } else if (::geteuid() == 0 || !environment("STATE_DIRECTORY").empty()) {  // a service manager sets STATE_DIRECTORY
    places.mode = "system";
    places.config_file = config::system_file().string();
    places.state_dir = "/var/lib/sublet";
    places.socket = "/run/sublet/sublet.sock";
  } else {
    places.mode = "user";
    places.config_file = config::user_file().string();
    places.state_dir = client::user_state_dir();
    places.socket = client::user_sockets().front();
  }
  // Made absolute, because clients may have another working directory.
  if (!options.config.empty()) places.config_file = fs::absolute(options.config).lexically_normal().string();
  places.credit_socket = fs::path(places.socket).replace_filename(in_container::socket_name);
  places.exit_dir = places.state_dir + "/exits";
  places.log_dir = places.state_dir + "/logs";
  return places;
}

// A system daemon that runs as a plain user has no rights over programs: its actor is a service. Every other daemon has
// an actor as its child, with the daemon's rights.
Status find_actor(const fs::path& bin, Places& places) {
  if (places.mode == "system" && ::geteuid() != 0) places.actor_socket = "/run/sublet-actor.sock";
  places.actor = find_program(bin, "sublet-actor");
  if (places.actor.empty()) {
    return unavailable(fmt::format("sublet-actor is neither beside subletd ({}) nor in libexec", bin.string()),
                       "install sublet-actor there: it signals programs for the daemon");
  }
  places.group_name = "sublet";
  if (places.mode == "system") return {};
  // Leases of several daemons have the same numbers. So the group name comes from the state directory, and stays the
  // same over restarts.
  struct stat home {};
  if (::stat(places.state_dir.c_str(), &home) != 0) return from_errno("cannot read " + places.state_dir, errno);
  places.group_name = fmt::format("sublet-{:x}-{:x}", home.st_dev, home.st_ino);
  return {};
}

void note_files(const Places& places, const std::string& dir, StartFiles& files) {
  files.note_directory(dir);
  files.note_own(places.state_dir);
  files.note_own(places.exit_dir);
  files.note_own(places.log_dir);
  files.note_directory(fs::path(places.socket).parent_path());
  files.note_own(places.socket);
  files.note_own(places.credit_socket);
  files.note_own(places.env_file);
  if (!dir.empty()) files.note_own(dir + "/simgpu");
}

}  // namespace

Result<Places> prepare(const Options& given, StartFiles& files) {
  Options options = given;
  std::error_code failure;
  if (!options.dir.empty()) options.dir = fs::absolute(options.dir).lexically_normal().string();
  while (options.dir.size() > 1 && options.dir.back() == '/') options.dir.pop_back();
  const fs::path bin = fs::read_symlink("/proc/self/exe", failure).parent_path();
  Places places = places_of_mode(options);
  note_files(places, options.dir, files);
  // Other users may reach the socket and the directory of their own exit records. Only this user may read the store.
  const bool shared = places.mode == "system";
  if (!options.dir.empty()) {
    if (auto made = make_directory(options.dir, 0700); !made) return made.error();
  }
  if (auto made = make_directory(places.state_dir, shared ? 0711 : 0700); !made) return made.error();
  if (auto made = make_directory(places.exit_dir, shared ? 0711 : 0700); !made) return made.error();
  if (auto closed = keep_others_from_writing(places.exit_dir); !closed) return closed.error();
  // Keepers reach the directory of their user in it. This user lists it.
  if (auto made = make_directory(places.log_dir, shared ? 0711 : 0700); !made) return made.error();
  const std::string socket_dir = fs::path(places.socket).parent_path().string();
  if (socket_dir != places.state_dir) {
    if (auto made = make_directory(socket_dir, shared ? 0755 : 0700); !made) return made.error();
  }
  places.helper = find_program(bin, "sublet-gpu");
  if (places.helper.empty()) {
    return unavailable(fmt::format("sublet-gpu is neither beside subletd ({}) nor in libexec", bin.string()),
                       "install sublet-gpu there: it reads the GPUs for the daemon");
  }
  places.keeper = find_program(bin, "sublet-keep");
  places.stacks = find_program(bin, "sublet-stacks");
  if (auto found = find_actor(bin, places); !found) return found.error();
  if (!options.sim.empty()) {
    if (auto made = make_cards(bin, options); !made) return made.error();
  }
  if (!options.dir.empty() && fs::exists(options.dir + "/simgpu/cards")) {
    const std::string libraries = (bin / "../lib/simgpu").lexically_normal().string();
    places.nvml = libraries + "/libnvidia-ml.so.1";
    places.driver = libraries + "/libcuda.so.1";
    places.program_env = {{"SIMGPU_DIR", options.dir + "/simgpu"}, {"LD_LIBRARY_PATH", libraries}};
    // The helper that reads the devices is our child and inherits this variable.
    ::setenv("SIMGPU_DIR", places.program_env["SIMGPU_DIR"].c_str(), 1);
  }
  return places;
}

Status announce_ready(const Options& options, const Places& places) {
  if (!places.env_file.empty()) {
    std::ofstream env(places.env_file, std::ios::trunc);
    env << "# Source this in a shell that should use the daemon of this directory.\n";
    env << "export SUBLET_HOST=" << shell_quoted("unix://" + places.socket) << "\n";
    for (const auto& [name, value] : places.program_env) {
      if (name == "LD_LIBRARY_PATH") {
        env << "export LD_LIBRARY_PATH=" << shell_quoted(value) << "\"${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}\"\n";
      } else {
        env << "export " << name << "=" << shell_quoted(value) << "\n";
      }
    }
    env.close();
    if (!env) return unavailable("cannot write " + places.env_file);
  }
  tell_service_manager("READY=1\n");
  if (options.ready_fd >= 0) {
    constexpr std::string_view message = "ready\n";
    if (::write(options.ready_fd, message.data(), message.size()) < 0) return from_errno("--ready-fd", errno);
    ::close(options.ready_fd);
  }
  return {};
}

}  // namespace sublet::daemon
