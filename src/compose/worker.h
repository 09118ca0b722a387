// SPDX-License-Identifier: Apache-2.0
// The interface to Docker Compose and the container engine. The real implementation asks the program `sublet-stacks`
// (remote_worker); tests use a recording one. Belongs to the loop thread. No call blocks, and no call waits for
// another: each has a callback that is called once, later, on the loop. A callback may start other calls.
#pragma once

#include "base/error.h"
#include "base/units.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sublet::compose {

// A stack named by an administrator instead of being found in `Sources::dir`.
struct Adopted {
  std::string name;
  std::string path;  // absolute; a directory or a Compose file
  bool operator==(const Adopted&) const = default;
};

// Where stacks are looked for.
struct Sources {
  std::string dir;                 // one directory for each stack; "": none
  std::string config;              // text of GPU_SERVICE_CONFIG_YAML; "": none
  std::string env_file;            // goes to each Compose call; "": none
  bool env_file_may_lack = false;  // a file that does not exist is left out
  std::vector<Adopted> adopted;
  bool operator==(const Sources&) const = default;
};

enum class Origin { directory, config, adopted };

// How a Compose file asks for GPUs for a service.
enum class GpuRequest { none, nvidia, cdi };

struct Service {
  std::string name;
  std::map<std::string, std::string> labels;
  bool healthcheck = false;  // one is defined and not disabled, in the file; an image may define one too
  int replicas = 1;
  GpuRequest gpu = GpuRequest::none;                 // of the file; `resolved` has it no more
  std::vector<std::string> gpu_capabilities{};       // that it asked for, sorted: "gpu", "video"
  std::map<std::string, std::string> gpu_options{};  // of the driver
};

// A stack as its Compose file describes it now.
struct Description {
  std::string name;
  Origin origin = Origin::directory;
  std::string file;            // absolute path of the Compose file
  std::string directory;       // Compose's project directory
  std::string project;         // Compose's project name
  std::optional<Error> error;  // the stack cannot be started: the file is broken, unsafe or ambiguous
  // The rest is valid without `error`.
  std::vector<Service> services;
  std::string extension;  // x-sublet as JSON; "": the file has none
  std::string resolved;   // the whole configuration, as Compose resolved it, without its requests for GPUs; given to
                          // `up`, so that no later change of the file runs
};

struct Container {
  std::string id;  // 64 hex digits
  std::string service;
  std::string name;
  std::map<std::string, std::string> labels;
  std::string status;              // the engine's word: created, running, paused, restarting, removing, exited, dead
  std::string health;              // starting, healthy, unhealthy; "": the container has no healthcheck
  int exit_code = 0;               // valid if `status` is exited or dead
  std::int64_t pid = 0;            // of its main process, in the engine's pid namespace; 0: it does not run
  std::string state;               // the engine's whole State object, as JSON
  std::vector<std::string> ports;  // that are published: "127.0.0.1:8080->80/tcp"
  bool operator==(const Container&) const = default;
};

// The containers of a project, exited ones too.
struct Observation {
  std::string project;
  std::vector<Container> containers;
};

struct Engine {
  bool reachable = false;
  std::string version;       // of the engine; "" while it is not reachable
  std::string program;       // the Compose program and its version, "docker compose 2.29.1"; "": none was found
  std::string why;           // why it is not reachable, or no program was found
  bool gpu_runtime = false;  // device requests can be given to containers
};

struct Start {
  std::string name;
  std::string project;
  std::string directory;
  std::string resolved;                   // Description::resolved
  std::string overlay;                    // a second Compose file: environment, labels, device requests
  Duration timeout{};                     // stacks.command_timeout
  bool recreate = false;                  // containers that run already are replaced
  std::string credit{};                   // folder of the daemon's socket for questions of the interposer; "": not used
  std::vector<std::string> interposed{};  // services that get the interposer
};

struct Stop {
  std::string name;
  std::string project;
  std::string directory;
  std::string resolved;  // as given to the last `up`; "": unknown, then containers are found by their project label
  Duration timeout{};
};

struct LogQuery {
  std::string project;
  std::string service;  // "": all services
  int tail = 80;        // lines of each container
  bool follow = false;
};

class Worker {
 public:
  using Described = std::function<void(Result<std::vector<Description>>)>;
  using Done = std::function<void(Status)>;
  using Chunk = std::function<void(std::string text)>;
  virtual ~Worker() = default;

  // Looks for stacks and resolves each. Unchanged files are not resolved again. Sorted by name. Two stacks of one name
  // have an error each. An error of the call: the worker is away.
  virtual void describe(const Sources& sources, Described done) = 0;
  // Runs `up -d` with a text that describe() gave, here or before a restart. An error has the last lines of the
  // program's output. Stale: Compose failed or exceeded `timeout` and was ended, or the text is unknown. Denied: the
  // overlay sets more than environment, labels and devices of services, or `credit` is not the daemon's folder.
  // Unavailable: worker, engine or program were away, and the outcome is unknown.
  virtual void up(const Start& start, Done done) = 0;
  // Runs `pull` with such a text; nothing is started. The overlay is not used. Errors as of up().
  virtual void pull(const Start& start, Done done) = 0;
  // Runs `down --remove-orphans`. Errors as of up().
  virtual void down(const Stop& stop, Done done) = 0;
  // Names the projects whose containers are reported; replaces the names of an earlier call.
  virtual void watch(const std::vector<std::string>& projects) = 0;
  // The listeners: each change of a watched project, once after `watch` and after each return of the engine too; and
  // each change of the engine.
  virtual void on_observation(std::function<void(const Observation&)> listener) = 0;
  virtual void on_engine(std::function<void(const Engine&)> listener) = 0;
  // Reads logs of containers, as the engine keeps them, with the name of the service before each line. `chunk` may be
  // called many times before `done`. Returns a number for stop_logs().
  virtual std::uint64_t logs(const LogQuery& query, Chunk chunk, Done done) = 0;
  // Ends a reading; its callbacks are not called again.
  virtual void stop_logs(std::uint64_t number) = 0;
};

}  // namespace sublet::compose
