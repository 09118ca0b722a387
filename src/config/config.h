// SPDX-License-Identifier: Apache-2.0
// The configuration of a daemon as one value. A default-constructed Config holds the defaults: no other place states
// them. The table in config/schema.cpp has the name, range and meaning of each value. Plain values, any thread.
#pragma once

#include "base/units.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace sublet {

// A loopback address with a port, which only this machine can reach; "" for none.
struct LoopbackAddress {
  std::string host;  // "127.0.0.1" or "::1"
  std::uint16_t port = 0;
  auto operator<=>(const LoopbackAddress&) const = default;
};

// The name of a table in a list, "night-shift": 1 to 64 letters, digits, '.', '_' and '-'; "" before it is set.
struct Name {
  std::string text;
  auto operator<=>(const Name&) const = default;
};

// One word of a short list, which stands in the table of keys.
struct Choice {
  std::string word;
  auto operator<=>(const Choice&) const = default;
};

// Printable text of at most 256 bytes.
struct Text {
  std::string text;
  auto operator<=>(const Text&) const = default;
};

// A URL. Its user, password, path and query are shown to nobody.
struct Url {
  std::string text;
  auto operator<=>(const Url&) const = default;
};

// Text that is shown to nobody.
struct Secret {
  std::string text;
  auto operator<=>(const Secret&) const = default;
};

// Words of a fixed set.
struct Words {
  std::vector<std::string> words;
  auto operator<=>(const Words&) const = default;
};

// Users by name or uid, and groups as @NAME.
struct Accounts {
  std::vector<std::string> names;
  auto operator<=>(const Accounts&) const = default;
};

struct Config {
  struct Actor {
    std::string socket;  // "": the system's actor, or none if the daemon starts its own
  } actor;
  struct Api {
    Accounts agents;
    LoopbackAddress tcp;
  } api;
  struct Device {
    Bytes headroom = 256 * MiB;
    Bytes unified_headroom = 4 * GiB;
  } device;
  struct Gpu {
    std::string nvml;    // "": the vendor's usual place
    std::string driver;  // libcuda.so.1; "": the vendor's usual place
    Duration interval_busy = std::chrono::seconds(1);
    Duration interval_idle = std::chrono::seconds(5);
    Duration timeout = std::chrono::seconds(10);
    Duration max_age = std::chrono::seconds(15);
    Duration forget_after = std::chrono::minutes(10);
    Choice names{"uuid"};
    Words cordon_on{{"ecc", "xid", "retired"}};
  } gpu;
  struct Guard {
    bool enabled = true;
    Choice ceiling{"none"};
    Bytes log_max_size = 10 * MiB;
    std::int64_t log_keep = 3;
    Bytes log_user_max = GiB;
    std::int64_t soft_cpu = 25;  // percent of one processor; 0: no limit
  } guard;
  struct Enforcer {
    bool enabled = true;
    Choice policy{"observe"};
    Duration interval = std::chrono::seconds(15);
    Duration grace = std::chrono::seconds(300);
    Duration start_grace = std::chrono::seconds(30);
    std::string accounting;
  } enforcer;
  struct Webhook {
    Name name;
    Url url;
    Text types;          // event types, separated by commas; "": all
    Text user;           // only events about leases of this user; "": all events
    Choice tier{"any"};  // only events about leases of this tier
    Choice format{"json"};
    Secret secret;  // "": the calls are not signed
  };
  struct Events {
    Url redis;  // "": none
    std::vector<Webhook> webhooks;
  } events;
  struct IdleRule {
    Name name;
    Text consumer, tenant;  // leases of this consumer or tenant; "": the rule is not for one
    Choice tier{"any"};     // leases of this tier; "any": the rule is not for one
    Text warn, pause, end;  // a duration or "off"; "": the rule leaves the part to others
  };
  struct Idle {
    bool enabled = true;
    Choice when{"waiting"};
    Text warn{"off"}, pause{"off"}, end{"off"};  // a duration or "off"
    std::vector<IdleRule> rules;
  } idle;
  struct Interposer {
    bool required = false;
  } interposer;
  struct Lease {
    Duration linger = std::chrono::seconds(5);
    Duration reconnect = std::chrono::seconds(30);
    Duration grace = std::chrono::seconds(30);
  } lease;
  struct Ledger {
    bool allow_swap = false;
    Bytes limit = 32 * GiB;
    Bytes reserve = 2 * GiB;
    double user_share = 0.75;
    double max_pressure = 0.1;
  } ledger;
  struct Limits {
    std::int64_t connections = 256;
    std::int64_t waiters = 1024;
    std::int64_t events = 20'000;
    std::int64_t leases = 2000;
    std::int64_t sessions = 100;
    Bytes body = 64 * KiB;
    std::int64_t depth = 16;
    Duration header_time = std::chrono::seconds(10);
    Duration body_time = std::chrono::seconds(10);
    Duration write_time = std::chrono::seconds(10);
  } limits;
  struct Meter {
    bool enabled = true;
    Duration keep_minutes = std::chrono::hours(90 * 24);
    Duration keep_hours = std::chrono::hours(730 * 24);
  } meter;
  struct Pause {
    bool automatic = true;
    Duration cooldown = std::chrono::seconds(10);
    Duration spot_unused_after = std::chrono::minutes(2);
    Duration min_residency{};  // 0: max(10 s, ten times the duration of a pause and a resume)
    Duration orphan_after = std::chrono::hours(24);
    double slice_overhead = 0.10;
    Duration verify_timeout = std::chrono::seconds(30);
    Duration yield_timeout = std::chrono::seconds(30);
  } pause;
  struct Placement {
    Choice policy{"fragmentation"};
  } placement;
  struct Queue {
    Duration claim_window = std::chrono::seconds(10);
    double aging_per_minute = 1.0;
    Duration reserve_after = std::chrono::minutes(5);  // 0: never
  } queue;
  struct Sessions {
    bool enabled = true;
    Duration ttl = std::chrono::hours(1);
    Duration max_continuous = std::chrono::minutes(30);
    Duration keep_parked = std::chrono::hours(1);
    Duration checkpoint_timeout = std::chrono::minutes(5);
    Text idle_pause{"10m"}, idle_end{"1h"};  // a duration or "off"
  } sessions;
  struct Stacks {
    bool enabled = false;
    std::string dir;                 // one directory for each stack; "": none
    std::string env_file;            // for each call of Compose; "": none
    bool env_file_may_lack = false;  // set by --stacks-from-env: a file that does not exist is left out
    Text label{"gpu.healthcheck-master"};
    Text label_value{"true"};
    Duration command_timeout = std::chrono::minutes(10);
    Duration ready_timeout = std::chrono::minutes(15);
    Duration ttl = std::chrono::minutes(30);
    std::string compose;  // the Compose program; "": found in PATH
    Text engine{"unix:///var/run/docker.sock"};
    Text http;                 // address of the compatible service; "": none
    Choice http_role{"user"};  // rights of its callers
    std::string mirror;        // state.json for readers of the one-stack service; "": none
    Text http_user;            // user who is charged for its stacks; "": the daemon's user
    Duration claim_window = std::chrono::seconds(10);
  } stacks;
  // The default tenant of a user or of a group's members.
  struct Tenant {
    Text name;  // of the user or group
    Name tenant;
  };
  // An entry of the tree of tenants. Only a file for `sublet tenant apply` has them; Loaded::row_lines tells which of
  // the values it states.
  struct TenantEntry {
    Text name, parent;
    Bytes quota, limit;
    double quota_devices = 0, limit_devices = 0;
    std::int64_t live_leases = 0, queued_leases = 0;
    Duration longest_lease{};
    Choice on_limit{"queue"};
    double weight = 1;
    Words tiers;
    std::int64_t highest_priority = 0;
    double park_share = 0;
  };
  struct Tenants {
    Duration window = std::chrono::hours(2);
    Duration slot = std::chrono::hours(1);
    Duration half_life{};  // 0: none
    double byte_weight = 1;
    Bytes device_weight;
    std::vector<Tenant> users;
    std::vector<Tenant> groups;  // the first that has the user decides
    std::vector<TenantEntry> entries;
  } tenants;
  // Only a scenario file for `sublet simulate` has these.
  struct Stream {
    Text name;    // of the jobs
    Text user;    // "": the name
    Text tenant;  // "": the user
    Choice tier{"standard"};
    std::int64_t priority = 0;
    bool pausable = true;
    std::int64_t devices = 1;
    Bytes vram;        // on each device; 0: all of it
    Duration runs{};   // with its memory
    Duration every{};  // between two arrivals; 0: they all arrive at `first`
    Duration first{};  // arrival of the first
    Duration until{};  // no arrival from then on; 0: scenario.length
    std::int64_t at_once = 1;
    double spread = 0;  // part by which `runs` and `every` differ, up or down
  };
  struct Scenario {
    Text devices;
    Duration length{};
    Duration checkpoint{};                      // of jobs that the point-in-time scheduler ends; 0: none
    Duration grace = std::chrono::seconds(30);  // that it gives them
    std::int64_t seed = 42;
    std::vector<Stream> streams;
  } scenario;
  struct Store {
    std::string path;  // "": in the state directory of the daemon's mode
    Duration keep_ended = std::chrono::hours(24 * 30);
    std::int64_t ended_per_user = 10'000;
  } store;
};

namespace config {

// A fault in a file. Line and column count from 1; 0 means the file as a whole.
struct Problem {
  enum class Kind { unreadable, syntax, unknown_key, not_supported, bad_value };
  Kind kind = Kind::syntax;
  std::string file;
  unsigned line = 0;
  unsigned column = 0;
  std::string key;   // dotted; "" when no key is concerned
  std::string text;  // what is wrong
  std::string hint;  // what to write instead
};

std::string to_string(const Problem& problem);  // "FILE:LINE:COLUMN: KEY: TEXT (HINT)"
// The same without the hint, for callers that show the hint themselves.
std::string without_hint(const Problem& problem);

// The result of reading a file.
struct Loaded {
  std::string file;
  bool file_exists = false;
  Config config;                          // valid only if `problems` is empty
  std::map<std::string, unsigned> lines;  // line of each key that the file sets
  // Line of each [[table]] of a list, and of each key in them: "quota.user[0]", "quota.user[0].limit".
  std::map<std::string, unsigned> row_lines;
  std::vector<Problem> problems;  // all problems, in the order of the file
};

Loaded parse(std::string_view text, const std::string& file_name);

// Reads a file. A missing file sets nothing. A file that cannot be read is a problem.
Loaded load(const std::filesystem::path& file);

// The same for a file that the command line names: a missing file is a problem.
Loaded load_named(const std::filesystem::path& file);

// Returns one error for a daemon that refuses to start: the first problem, and the number of the others.
Error to_error(const std::vector<Problem>& problems);
// The same for a file that is not the configuration of a daemon.
Error to_error(const std::vector<Problem>& problems, std::string hint);

// The file that a daemon reads, by its mode.
std::filesystem::path file_in(const std::filesystem::path& dir);  // DIR/sublet.toml
std::filesystem::path system_file();                              // /etc/sublet/sublet.toml
// $XDG_CONFIG_HOME/sublet/sublet.toml, else ~/.config/…; "" when neither XDG_CONFIG_HOME nor HOME is set.
std::filesystem::path user_file();

}  // namespace config
}  // namespace sublet
