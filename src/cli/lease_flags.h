// SPDX-License-Identifier: Apache-2.0
// The flags of `run` and `hold` for the lease.
#pragma once

#include "cli/output.h"
#include "client/client.h"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>

namespace sublet::cli {

struct LeaseFlags {
  std::optional<Bytes> vram;      // per device; unset: choose_size() chooses
  bool all = false;               // --vram all: a whole device without its headroom
  std::optional<Bytes> min_vram;  // least size per device that is accepted
  std::optional<Bytes> memory;    // `run` only: ceiling per device
  std::optional<Bytes> soft;      // `run` only: soft limit per device
  std::string gpu;                // --gpu, several joined by commas; "" or "any": every device
  std::string gpu_spec;           // --gpu-spec; "": every device
  int gpus = 1;                   // number of devices, all or none
  std::string tier, tenant, name, tag, pausable;
  std::optional<int> priority;
  std::optional<Duration> ttl;
  std::optional<Duration> wait;                             // give up after this time; unset: never
  std::optional<Duration> idle_warn, idle_pause, idle_end;  // --idle-…: zero is off; unset: the daemon's rules
  bool interposer = false;                                  // libsublet-cuda.so is preloaded into the program
  std::optional<int> share;  // percent of the computing time of each device; unset: no bound
  bool no_wait = false;
  bool dry_run = false;
};

// Declares the flags that say how large the lease is and how it ranks. `flags` must outlive the parse.
void add_request_flags(Command command, LeaseFlags& flags);

// The same, and the flags of a lease that its caller waits for.
void add_lease_flags(Command command, LeaseFlags& flags);

// The flags of a verb that starts a program, about the library between this program and the driver.
void add_interposer_flags(Command command, LeaseFlags& flags);
// "30" or "30%".
Result<int> parse_share(std::string_view text);
// A share without the library is refused. Returns the exit code after the usage error was printed; nothing if it fits.
std::optional<int> check_share(const LeaseFlags& flags);

// Whether --gpu may mean `device` (of /v1/status): by its id, its index or the start of its uuid, alone or in a list.
bool device_matches(const nlohmann::json& device, const std::string& wanted);
// Whether --gpu and --gpu-spec may both mean the device.
bool device_matches(const nlohmann::json& device, const LeaseFlags& flags);

// The size to request.
struct Size {
  Bytes bytes;
  std::string why;  // how the size was chosen; "" if --vram gave it
};

// The size that an empty device can hold for these flags, without the headroom; 0 if no known device matches.
Bytes whole_size(const LeaseFlags& flags, const nlohmann::json& status);

// The kind of program behind a lease, under which sizes and times are remembered.
struct Consumer {
  std::string name;       // a label, unique to the program
  std::string path = {};  // of the file that the name stands for; "": the name says all
};

// Chooses --vram, else --memory, else the consumer's remembered peak plus a tenth, else a whole device. `status`: a
// reply of /v1/status. Names of shells and launchers are remembered only if --name gives them.
Result<Size> choose_size(const LeaseFlags& flags, const Consumer& consumer, const nlohmann::json& status,
                         client::Client& client);

// The body of POST /v1/leases.
nlohmann::json lease_body(const LeaseFlags& flags, const std::string& consumer, Bytes vram);

// Prints the result of a dry run with this body. Returns 0 if the lease would start, at once or after preemption; 75 if
// it would wait.
int dry_run(const Common& common, client::Client& client, nlohmann::json body, const Look& look);

// The name of a command line for people: that of the program, or of the script or module that an interpreter runs.
std::string program_name(const std::vector<std::string>& command);

// The consumer of a command line. Files of one name in two directories are two consumers: the name of one that PATH
// does not lead to has a hash of its path.
Consumer consumer_of(const std::vector<std::string>& command);

}  // namespace sublet::cli
