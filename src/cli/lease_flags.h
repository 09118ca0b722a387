// SPDX-License-Identifier: Apache-2.0
// What `run` and `hold` say about the lease they want.
#pragma once

#include "cli/output.h"
#include "client/client.h"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>

namespace sublet::cli {

struct LeaseFlags {
  std::optional<Bytes> vram;      // on each device
  std::optional<Bytes> min_vram;  // rather so little now than all of it later
  std::optional<Bytes> memory;    // `run` only
  std::string gpu;                // "" or "any": whichever has room
  int gpus = 1;                   // so many devices, all or none
  std::string tier, tenant, name, tag, pausable;
  std::optional<int> priority;
  std::optional<Duration> ttl;
  std::optional<Duration> wait;  // give up after so long; unset: never
  bool no_wait = false;
  bool dry_run = false;
};

// Declares the flags that both verbs have. `flags` must outlive the parse.
void add_lease_flags(Command command, LeaseFlags& flags);

// Whether `device`, of /v1/status, is one that --gpu may mean: by its id, its index or the start of its uuid.
bool device_matches(const nlohmann::json& device, const std::string& wanted);

// How much is asked for, and why if it was not said.
struct Size {
  Bytes bytes;
  std::string why;  // "" when --vram said it
};

// --vram, else --memory, else what the consumer is remembered to have used and a tenth, else a whole device (`status`
// is a reply of /v1/status). Under the name of a shell or a launcher any program may run: nothing is taken as
// remembered of it, nor is anything remembered, unless that is its --name.
Result<Size> choose_size(const LeaseFlags& flags, const std::string& consumer, const nlohmann::json& status,
                         client::Client& client);

// The body of POST /v1/leases.
nlohmann::json lease_body(const LeaseFlags& flags, const std::string& consumer, Bytes vram);

// Says what would come of a request with this body, and does nothing: 0 if it would start, at once or once others have
// made room; 75 if it would have to wait.
int dry_run(const Common& common, client::Client& client, nlohmann::json body, const Look& look);

// A consumer's name from a command line: the program's, or that of the script or module which an interpreter is given.
std::string consumer_name(const std::vector<std::string>& command);

}  // namespace sublet::cli
