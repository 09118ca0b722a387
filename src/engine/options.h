// SPDX-License-Identifier: Apache-2.0
// The engine's options, and the replies that it stores.
#pragma once

#include "base/failpoints.h"
#include "engine/tenants.h"
#include "lease/lease.h"
#include "lease/rules.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace sublet::engine {

struct Options {
  core::Rules rules;
  std::string exit_dir;  // directory of the users' directories (user_directory.h), with exit records and answers
  std::string boot_id;
  std::string mode;                                // "system", "user" or "dir"
  std::string dir;                                 // directory of a private daemon, else ""
  std::string config_file;                         // absolute path of the file that was read at the start; "": none
  std::string tcp;                                 // HOST:PORT of the TCP listener, else ""
  std::string gpu_names = "uuid";                  // gpu.names
  Bytes unified_headroom = 4 * GiB;                // device.unified_headroom
  std::map<std::string, std::string> program_env;  // environment that programs need to see the simulated cards
  std::string credit_socket = {};                  // for SUBLET_CREDIT of programs with the interposer; "": none
  Failpoints* failpoints = nullptr;                // outlives the engine; null: none
  int leases_per_user = 2000;                      // limit of leases that have not ended
  TenantRules tenants;                             // tenants that users may charge
  std::vector<std::string> agents{};               // users, uids and @groups that ask for leases of others
};

// A reply: HTTP status and body, in the form in which it is remembered.
struct Answered {
  int status = 200;
  std::string body;  // JSON
  // Sequence that must be durable before the answer is sent; unset: all that was intended until then.
  std::optional<std::uint64_t> after = {};
};

// The Idempotency-Key under which an answer is remembered.
struct Remember {
  std::uint32_t uid = 0;
  std::string key;  // "": the answer is not remembered
  std::string fingerprint;
};

}  // namespace sublet::engine
