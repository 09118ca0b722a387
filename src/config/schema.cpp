// SPDX-License-Identifier: Apache-2.0
#include "config/schema.h"

#include "base/text.h"
#include "config/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace sublet::config {

namespace {

// One row for each key. Only the lambda connects the name to the member.
constexpr Key table[] = {
    {"actor.socket", "", "",
     "Absolute path of the socket of sublet-actor, which signals programs. Empty: an unprivileged system daemon uses "
     "/run/sublet-actor.sock, every other daemon starts its own actor.",
     +[](Config& c) -> std::string& { return c.actor.socket; }},
    {"api.agents", "", "",
     "Users and groups whose programs may ask for leases on behalf of any user: the plugins of cluster engines. They "
     "may name any control group and any tenant, so trust them as admins.",
     +[](Config& c) -> Accounts& { return c.api.agents; }},
    {"api.tcp", "", "",
     "Port of the API over TCP, for callers with an access token. Empty: the API is on the Unix socket only.",
     +[](Config& c) -> LoopbackAddress& { return c.api.tcp; }},
    {"device.headroom", "0", "1TiB",
     "VRAM of each device that is never leased. It covers unforeseen use and the residue of parked programs.",
     +[](Config& c) -> Bytes& { return c.device.headroom; }},
    {"device.unified_headroom", "0", "1TiB",
     "Memory of the machine that is never leased on a device that has no memory of its own (GB10, Jetson), beside "
     "`device.headroom`. It is for the system and for programs that use no GPU.",
     +[](Config& c) -> Bytes& { return c.device.unified_headroom; }},
    {"enforcer.accounting", "", "",
     "Absolute path of the file of process accounting (/var/log/account/pacct). It tells the parents of processes that "
     "have ended. Another program must turn the accounting on. Empty: no file is read.",
     +[](Config& c) -> std::string& { return c.enforcer.accounting; }},
    {"enforcer.enabled", "", "", "Keep records about processes that hold GPU memory without a lease.",
     +[](Config& c) -> bool& { return c.enforcer.enabled; }},
    {"enforcer.grace", "1s", "24h", "Time between SIGTERM and SIGKILL for a process without a lease.",
     +[](Config& c) -> Duration& { return c.enforcer.grace; }},
    {"enforcer.interval", "1s", "1h",
     "Time between two comparisons of the GPU processes with the leases. A notice or a signal needs three.",
     +[](Config& c) -> Duration& { return c.enforcer.interval; }},
    {"enforcer.policy", "observe warn adopt enforce", "",
     "Policy for processes without a lease. With observe, the daemon keeps a record. With warn, the owner also gets a "
     "notice. With adopt, the notice tells how the process gets a lease. With enforce, the daemon ends the process. "
     "`sublet enforce set` makes exceptions.",
     +[](Config& c) -> Choice& { return c.enforcer.policy; }},
    {"enforcer.start_grace", "1s", "1h",
     "Time after a start of the daemon, or a clock gap, in which no process without a lease is ended.",
     +[](Config& c) -> Duration& { return c.enforcer.start_grace; }},
    {"events.redis", "redis://", "",
     "Redis server that events are published to, as \"redis://USER:PASSWORD@HOST:PORT/NUMBER\". Empty: none.",
     +[](Config& c) -> Url& { return c.events.redis; }},
    {"gpu.cordon_on", "ecc xid retired", "",
     "Errors for which the daemon cordons a device by itself. Double-bit memory errors are `ecc`, and a fall off the "
     "bus (Xid 79) is `xid`. Memory pages or rows that are to be retired or remapped are `retired`.",
     +[](Config& c) -> Words& { return c.gpu.cordon_on; }},
    {"gpu.driver", "", "",
     "Absolute path of the CUDA driver's library (libcuda.so.1), which parks programs. Empty: where the vendor "
     "installs it. An actor with its own service unit takes the path from that unit (--driver).",
     +[](Config& c) -> std::string& { return c.gpu.driver; }},
    {"gpu.forget_after", "1s", "365d",
     "A GPU that is gone for this time is forgotten. Requests that only this GPU could hold are rejected, and leases "
     "parked from it end, unless no GPU is left.",
     +[](Config& c) -> Duration& { return c.gpu.forget_after; }},
    {"gpu.interval_busy", "100ms", "1m",
     "Time between two readings of the GPUs while a lease waits, settles or has changed.",
     +[](Config& c) -> Duration& { return c.gpu.interval_busy; }},
    {"gpu.interval_idle", "100ms", "10m", "Time between two readings of the GPUs while nothing happens.",
     +[](Config& c) -> Duration& { return c.gpu.interval_idle; }},
    {"gpu.max_age", "1s", "1h", "An older reading of a GPU counts as unknown: no lease is granted on the GPU.",
     +[](Config& c) -> Duration& { return c.gpu.max_age; }},
    {"gpu.names", "uuid index", "",
     "Names of GPUs in CUDA_VISIBLE_DEVICES of programs. index: for programs that cannot read a UUID; `sublet run "
     "--indices` does the same for one program.",
     +[](Config& c) -> Choice& { return c.gpu.names; }},
    {"gpu.nvml", "", "", "Absolute path of the NVML library (libnvidia-ml.so.1). Empty: where the vendor installs it.",
     +[](Config& c) -> std::string& { return c.gpu.nvml; }},
    {"gpu.timeout", "1s", "5m", "A reading of the GPUs that takes longer is abandoned, and its helper is replaced.",
     +[](Config& c) -> Duration& { return c.gpu.timeout; }},
    {"guard.ceiling", "none lease", "",
     "Leases that have a ceiling. none: those with `--memory`. lease: every lease that `sublet run` starts; without "
     "`--memory` its size is its ceiling.",
     +[](Config& c) -> Choice& { return c.guard.ceiling; }},
    {"guard.enabled", "", "", "Supervise programs (`sublet run --detach`) and enforce ceilings (`--memory`).",
     +[](Config& c) -> bool& { return c.guard.enabled; }},
    {"guard.log_keep", "0", "100", "Number of full log files of a supervised program that are kept.",
     +[](Config& c) -> std::int64_t& { return c.guard.log_keep; }},
    {"guard.log_max_size", "64KiB", "1TiB", "Size at which the log of a supervised program is put aside as full.",
     +[](Config& c) -> Bytes& { return c.guard.log_max_size; }},
    {"guard.log_user_max", "1MiB", "1PiB",
     "Disk space of all logs of one user. Above it, full log files are removed, and then output is dropped.",
     +[](Config& c) -> Bytes& { return c.guard.log_user_max; }},
    {"guard.soft_cpu", "0", "100",
     "Processor time of a program while it uses more memory than its soft limit (`--soft`), in percent of one "
     "processor. 0: not limited.",
     +[](Config& c) -> std::int64_t& { return c.guard.soft_cpu; }},
    {"idle.enabled", "", "", "Tell, pause or end leases whose programs do nothing, by rules.",
     +[](Config& c) -> bool& { return c.idle.enabled; }},
    {"idle.end", "1", "", "Time without work after which a lease ends, or \"off\".",
     +[](Config& c) -> Text& { return c.idle.end; }},
    {"idle.pause", "1", "", "Time without work after which a lease is paused, or \"off\". idle.when says when.",
     +[](Config& c) -> Text& { return c.idle.pause; }},
    {"idle.warn", "1", "", "Time without work after which the owner of a lease is warned, or \"off\".",
     +[](Config& c) -> Text& { return c.idle.warn; }},
    {"idle.when", "waiting always", "",
     "When idle leases are paused. waiting: only for another lease that waits for their memory. always: although no "
     "lease waits.",
     +[](Config& c) -> Choice& { return c.idle.when; }},
    {"interposer.required", "", "",
     "Warn of each lease whose program uses a device without the limit of the interposer. false: only of leases in "
     "which a process has the limit.",
     +[](Config& c) -> bool& { return c.interposer.required; }},
    {"lease.grace", "0s", "1h", "Time between SIGTERM and SIGKILL for a program whose lease has ended.",
     +[](Config& c) -> Duration& { return c.lease.grace; }},
    {"lease.linger", "0s", "1h", "Time that a lease held by a connection outlives its last connection.",
     +[](Config& c) -> Duration& { return c.lease.linger; }},
    {"lease.reconnect", "0s", "1h",
     "Time that owners have to reconnect after a restart of the daemon, before their leases end.",
     +[](Config& c) -> Duration& { return c.lease.reconnect; }},
    {"ledger.allow_swap", "", "",
     "Park programs even if the kernel may swap the parked memory out. Such a program may take minutes to resume.",
     +[](Config& c) -> bool& { return c.ledger.allow_swap; }},
    {"ledger.limit", "0", "1PiB",
     "Host memory that all parked programs may take together. A larger spot lease is ended instead of paused.",
     +[](Config& c) -> Bytes& { return c.ledger.limit; }},
    {"ledger.max_pressure", "0", "1",
     "No lease is paused while all processes waited for host memory for a larger part of the last 10 s than this. 1: "
     "no limit.",
     +[](Config& c) -> double& { return c.ledger.max_pressure; }},
    {"ledger.reserve", "0", "1PiB", "Host memory that parking always leaves free.",
     +[](Config& c) -> Bytes& { return c.ledger.reserve; }},
    {"ledger.user_share", "0.01", "1",
     "Part of ledger.limit that the programs of one user may take while other users have leases. A larger spot lease "
     "is ended, not paused, for another user's lease.",
     +[](Config& c) -> double& { return c.ledger.user_share; }},
    {"limits.body", "1KiB", "16MiB", "Maximum size of a request's body. Requests with a program have at least 4 MiB.",
     +[](Config& c) -> Bytes& { return c.limits.body; }},
    {"limits.body_time", "100ms", "10m", "Maximum time for a request's body to arrive.",
     +[](Config& c) -> Duration& { return c.limits.body_time; }},
    {"limits.connections", "1", "65536", "Maximum number of open connections of one user, besides waiting requests.",
     +[](Config& c) -> std::int64_t& { return c.limits.connections; }},
    {"limits.depth", "2", "256", "Maximum nesting depth of a request's body.",
     +[](Config& c) -> std::int64_t& { return c.limits.depth; }},
    {"limits.events", "16", "10000000", "Number of events that are stored for readers that reconnect.",
     +[](Config& c) -> std::int64_t& { return c.limits.events; }},
    {"limits.header_time", "100ms", "10m", "Maximum time for a request's header to arrive.",
     +[](Config& c) -> Duration& { return c.limits.header_time; }},
    {"limits.leases", "1", "10000000", "Maximum number of live leases of one user.",
     +[](Config& c) -> std::int64_t& { return c.limits.leases; }},
    {"limits.sessions", "1", "100000", "Maximum number of sessions of one user that are not closed.",
     +[](Config& c) -> std::int64_t& { return c.limits.sessions; }},
    {"limits.waiters", "1", "1000000", "Maximum number of waiting requests of one user; each has its own connection.",
     +[](Config& c) -> std::int64_t& { return c.limits.waiters; }},
    {"limits.write_time", "100ms", "10m", "Time after which a caller that does not read its answer is disconnected.",
     +[](Config& c) -> Duration& { return c.limits.write_time; }},
    {"meter.enabled", "", "", "Keep amounts of memory, use and waiting for `sublet report`.",
     +[](Config& c) -> bool& { return c.meter.enabled; }},
    {"meter.keep_hours", "1d", "3650d", "Time for which amounts by hour are kept.",
     +[](Config& c) -> Duration& { return c.meter.keep_hours; }},
    {"meter.keep_minutes", "1d", "3650d", "Time for which amounts by minute, and single leases and waits, are kept.",
     +[](Config& c) -> Duration& { return c.meter.keep_minutes; }},
    {"pause.automatic", "", "",
     "A waiting lease may preempt leases of a lower tier, and shares a device with leases of its tier by time slices.",
     +[](Config& c) -> bool& { return c.pause.automatic; }},
    {"pause.cooldown", "100ms", "1h",
     "Time that a lease is ineligible as a victim after its pause failed, could not begin or could not be measured. It "
     "doubles with each failure in a row, up to 64 times.",
     +[](Config& c) -> Duration& { return c.pause.cooldown; }},
    {"pause.min_residency", "0s", "1d",
     "Minimum time that a lease keeps its memory before a time slice ends. 0s: ten times its pause and resume, at "
     "least 10 s.",
     +[](Config& c) -> Duration& { return c.pause.min_residency; }},
    {"pause.orphan_after", "100ms", "3650d",
     "Time that a paused lease owned by a token may have no living process before it ends.",
     +[](Config& c) -> Duration& { return c.pause.orphan_after; }},
    {"pause.slice_overhead", "0.001", "1", "Part of the time that time slices may spend on pausing and resuming.",
     +[](Config& c) -> double& { return c.pause.slice_overhead; }},
    {"pause.spot_unused_after", "1s", "1d",
     "Time that a spot program may leave its VRAM unused before it can be ended for a higher tier. A program that can "
     "be paused only if it is cooperative has the same time to register.",
     +[](Config& c) -> Duration& { return c.pause.spot_unused_after; }},
    {"pause.verify_timeout", "100ms", "1h", "A pause whose memory is not measured free within this time is undone.",
     +[](Config& c) -> Duration& { return c.pause.verify_timeout; }},
    {"pause.yield_timeout", "100ms", "1h", "Time that a cooperative program has for its first answer to a yield order.",
     +[](Config& c) -> Duration& { return c.pause.yield_timeout; }},
    {"placement.policy", "fragmentation best-fit pack spread random", "",
     "Rule for the device of a lease where several have enough free memory; docs/placement.md describes each.",
     +[](Config& c) -> Choice& { return c.placement.policy; }},
    {"queue.aging_per_minute", "0", "1000", "Priority points that each minute of waiting adds.",
     +[](Config& c) -> double& { return c.queue.aging_per_minute; }},
    {"queue.claim_window", "1s", "1h",
     "Time that an offer stays open for an owner that was away when memory became free.",
     +[](Config& c) -> Duration& { return c.queue.claim_window; }},
    {"queue.reserve_after", "0s", "365d",
     "After this wait, freed memory is reserved for the waiting lease; other leases start only if they do not delay "
     "it. 0s: never; then small requests may keep a large request waiting for ever.",
     +[](Config& c) -> Duration& { return c.queue.reserve_after; }},
    {"sessions.checkpoint_timeout", "1s", "24h",
     "Time after which the checkpoint command of a session is killed, if the session names no time.",
     +[](Config& c) -> Duration& { return c.sessions.checkpoint_timeout; }},
    {"sessions.enabled", "", "", "Open sessions, whose leases are renewed by activity.",
     +[](Config& c) -> bool& { return c.sessions.enabled; }},
    {"sessions.idle_end", "1", "", "Time without work after which a session ends, or \"off\".",
     +[](Config& c) -> Text& { return c.sessions.idle_end; }},
    {"sessions.idle_pause", "1", "", "Time without work after which the lease of a session is paused, or \"off\".",
     +[](Config& c) -> Text& { return c.sessions.idle_pause; }},
    {"sessions.keep_parked", "0s", "365d",
     "Time that the parked program of an ended session is kept. 0s: a session is closed at its end.",
     +[](Config& c) -> Duration& { return c.sessions.keep_parked; }},
    {"sessions.max_continuous", "0s", "365d",
     "Time of unbroken activity after which a session is paused while others wait for its device. 0s: no limit.",
     +[](Config& c) -> Duration& { return c.sessions.max_continuous; }},
    {"sessions.ttl", "1s", "365d", "Time to live of a session that names none. Activity renews it.",
     +[](Config& c) -> Duration& { return c.sessions.ttl; }},
    {"stacks.claim_window", "1s", "1h", "Time that the next caller of the compatible service has to claim the slot.",
     +[](Config& c) -> Duration& { return c.stacks.claim_window; }},
    {"stacks.command_timeout", "1s", "24h",
     "Time after which a call of the Compose program is ended. Pulling images counts.",
     +[](Config& c) -> Duration& { return c.stacks.command_timeout; }},
    {"stacks.compose", "", "",
     "Absolute path of the Compose program. Empty: the first that works of `docker compose`, `docker-compose` and "
     "`podman compose`. A worker with its own service unit takes the path from that unit.",
     +[](Config& c) -> std::string& { return c.stacks.compose; }},
    {"stacks.dir", "", "",
     "Absolute path of a directory with one directory for each stack. Empty: stacks are only configured or adopted.",
     +[](Config& c) -> std::string& { return c.stacks.dir; }},
    {"stacks.enabled", "", "", "Start Docker Compose projects for leases (`sublet stack`).",
     +[](Config& c) -> bool& { return c.stacks.enabled; }},
    {"stacks.engine", "1", "",
     "Address of the container engine. A worker with its own service unit takes the address from that unit.",
     +[](Config& c) -> Text& { return c.stacks.engine; }},
    {"stacks.env_file", "", "", "Absolute path of a file with variables for each call of Compose. Empty: none.",
     +[](Config& c) -> std::string& { return c.stacks.env_file; }},
    {"stacks.http", "", "",
     "HOST:PORT of the compatible service, which speaks as gpu-service-manager does (127.0.0.1:8080). Another address "
     "than that of this machine needs access tokens. Empty: none.",
     +[](Config& c) -> Text& { return c.stacks.http; }},
    {"stacks.http_role", "user admin", "",
     "Rights of the callers of the compatible service. With admin, they see all tokens and may use `force`.",
     +[](Config& c) -> Choice& { return c.stacks.http_role; }},
    {"stacks.http_user", "", "",
     "User who is charged for stacks of the compatible service. Empty: the daemon's own user.",
     +[](Config& c) -> Text& { return c.stacks.http_user; }},
    {"stacks.label", "1", "", "Label of the service whose health is the health of its stack.",
     +[](Config& c) -> Text& { return c.stacks.label; }},
    {"stacks.label_value", "1", "", "Value of that label.", +[](Config& c) -> Text& { return c.stacks.label_value; }},
    {"stacks.mirror", "", "",
     "Absolute path of a state.json that the daemon writes for readers of the one-stack service. An existing file is "
     "taken over at the first start. Empty: none.",
     +[](Config& c) -> std::string& { return c.stacks.mirror; }},
    {"stacks.ready_timeout", "1s", "24h", "Time after which a stack that does not become ready is brought down.",
     +[](Config& c) -> Duration& { return c.stacks.ready_timeout; }},
    {"stacks.ttl", "1s", "365d",
     "Time to live of an acquired stack that names none. It counts from ready, and again from each renewal.",
     +[](Config& c) -> Duration& { return c.stacks.ttl; }},
    {"store.ended_per_user", "16", "10000000",
     "Number of ended leases of one user that stay in `sublet ps --all`. The oldest are removed first; up to an eighth "
     "more may remain.",
     +[](Config& c) -> std::int64_t& { return c.store.ended_per_user; }},
    {"store.keep_ended", "0s", "3650d", "Time that an ended lease stays in `sublet ps --all`.",
     +[](Config& c) -> Duration& { return c.store.keep_ended; }},
    {"store.path", "", "", "Absolute path of the store's file. Empty: in the state directory of the daemon's mode.",
     +[](Config& c) -> std::string& { return c.store.path; }},
    {"tenants.byte_weight", "0", "1000", "Weight of the byte-seconds in the past use of a tenant.",
     +[](Config& c) -> double& { return c.tenants.byte_weight; }},
    {"tenants.device_weight", "0", "1TiB", "A device-second counts in the past use as so many byte-seconds more.",
     +[](Config& c) -> Bytes& { return c.tenants.device_weight; }},
    {"tenants.half_life", "0s", "365d", "Time after which past use counts half. 0s: the window decides instead.",
     +[](Config& c) -> Duration& { return c.tenants.half_life; }},
    {"tenants.slot", "1s", "30d", "Use leaves the window by slots of this length.",
     +[](Config& c) -> Duration& { return c.tenants.slot; }},
    {"tenants.window", "1s", "365d", "Time for which the past use of a tenant counts in its share.",
     +[](Config& c) -> Duration& { return c.tenants.window; }},
};

constexpr LaterKey later_table[] = {{"fairshare.window", "this table: see tenants.window"}};

// `Rule` is a Key or a Field; `hint` says what to write instead of a value out of range.
template <typename Rule, typename Value>
Status set_in_range(const Rule& key, const std::string& hint, std::string_view text, Value& into) {
  Value value{};
  if (const Status parsed = parse(text, value); !parsed) return parsed.error();
  if constexpr (std::is_same_v<Value, Choice>) {
    if (!has_word(key.minimum, text)) {
      return bad_request(fmt::format("{} is none of: {}", printable(text), list_words(key.minimum)), hint);
    }
  } else if constexpr (std::is_same_v<Value, Words>) {
    for (const std::string& word : value.words)
      if (!has_word(key.minimum, word))
        return bad_request(fmt::format("{} is none of: {}", printable(word), list_words(key.minimum)), hint);
  } else if constexpr (std::is_same_v<Value, Text>) {
    if (key.minimum == "1" && text.empty()) return bad_request("the text is empty", hint);
  } else if constexpr (std::is_same_v<Value, Url>) {
    if (const Status fits = check_scheme(text, key.minimum); !fits) return bad_request(fits.error().detail, hint);
  } else if (!key.minimum.empty()) {
    Value low{};
    Value high{};
    (void)parse(key.minimum, low);  // the table's own texts; a test parses all of them
    (void)parse(key.maximum, high);
    // Written so that nan is out of range.
    if (!(value >= low && value <= high)) {
      return bad_request(fmt::format("{} is not between {} and {}", printable(text), key.minimum, key.maximum), hint);
    }
  }
  into = value;
  return {};
}

// As the file has it: in quotes unless it is a number or a truth value.
template <typename Value>
std::string in_file(const Value& value) {
  constexpr bool is_list = std::is_same_v<Value, Accounts> || std::is_same_v<Value, Words>;
  if constexpr (std::is_arithmetic_v<Value> || is_list) return spelled(value);
  else return in_quotes(spelled(value));
}

std::string_view type_at(std::size_t index) {
  static constexpr std::string_view names[] = {
      "duration", "size", "integer", "number",           "path", "address", "true or false", "word",
      "text",     "URL",  "secret",  "list of accounts", "name"};
  return names[index];
}

template <typename Rule>
std::string range_of(const Rule& key) {
  const std::string_view type = type_name(key);
  if (type == "address") return "127.0.0.1:PORT, [::1]:PORT, or empty";
  if (type == "true or false") return "true, false";
  if (type == "word" || type == "list of words") return list_words(key.minimum);
  if (type == "text" && key.minimum == "1") return "1 to 256 printable bytes";
  if (type == "text" || type == "secret") return "text, or empty";
  if (type == "URL") return fmt::format("{}, or empty", key.minimum.empty() ? "http://, https://" : key.minimum);
  if (type == "list of accounts") return "names, uids, `@group`";
  if (type == "name") return "1 to 64 of a-z, A-Z, digits, `.`, `_`, `-`";
  return key.minimum.empty() ? "absolute path, or empty" : fmt::format("{} to {}", key.minimum, key.maximum);
}

}  // namespace

std::string address_text(const LoopbackAddress& address) {
  if (address.host.empty()) return {};
  return fmt::format("{}:{}", address.host == "::1" ? "[::1]" : address.host, address.port);
}

std::span<const Key> keys() { return table; }
std::span<const LaterKey> later_keys() { return later_table; }

const Key* find(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(table), std::end(table), [&](const Key& key) { return key.name == name; });
  return found == std::end(table) ? nullptr : found;
}

const Schema& schema() {
  static const Schema ours{table, daemon_lists()};
  return ours;
}

std::string_view type_name(const Key& key) {
  return std::holds_alternative<Words& (*)(Config&)>(key.access) ? "list of words" : type_at(key.access.index());
}
std::string_view type_name(const Field& field) {
  return std::holds_alternative<Words& (*)(void*)>(field.access) ? "list of words" : type_at(field.access.index());
}

std::string range_text(const Key& key) { return range_of(key); }
std::string range_text(const Field& field) { return range_of(field); }

std::string value_text(const Key& key, const Config& config) {
  // Access returns a mutable reference, but nothing is written through it here.
  auto& source = const_cast<Config&>(config);
  return std::visit([&](auto access) { return in_file(access(source)); }, key.access);
}

std::string value_text(const Field& field, const void* row) {
  return std::visit([&](auto access) { return in_file(access(const_cast<void*>(row))); }, field.access);
}

std::string default_text(const Key& key) { return value_text(key, Config{}); }

std::string default_text(const List& list, const Field& field) {
  return field.required ? std::string() : value_text(field, list.rows.defaults());
}

Status set_value(const Key& key, std::string_view text, Config& config) {
  const auto hint = "the default is " + default_text(key);
  return std::visit([&](auto access) { return set_in_range(key, hint, text, access(config)); }, key.access);
}

Status set_value(const List& list, const Field& field, std::string_view text, void* row) {
  const auto hint = field.required ? "write a value in this range" : "the default is " + default_text(list, field);
  return std::visit([&](auto access) { return set_in_range(field, hint, text, access(row)); }, field.access);
}

namespace {

// The tables of a list, each with its sub-keys.
std::string list_reference(const List& list) {
  std::string out = fmt::format(
      "\n## `[[{}]]`\n\n{} The file may hold any number of these tables.\n\n"
      "| key | type | default | range | meaning |\n| --- | --- | --- | --- | --- |\n",
      list.name, list.summary);
  for (const Field& field : list.fields) {
    const std::string fallback = field.required ? "required" : fmt::format("`{}`", default_text(list, field));
    out += fmt::format("| `{}` | {} | {} | {} | {} |\n", field.name, type_name(field), fallback, range_text(field),
                       field.summary);
  }
  return out;
}

}  // namespace

std::string reference_page(const Schema& schema) {
  std::string out =
      "# Configuration\n"
      "\n"
      "<!-- Made by `sublet __reference config` from the table of keys; a test compares the two. -->\n"
      "\n"
      "A daemon reads one file when it starts:\n"
      "\n"
      "- `/etc/sublet/sublet.toml` for the system's daemon,\n"
      "- `$XDG_CONFIG_HOME/sublet/sublet.toml` for a user's own daemon,\n"
      "- `DIR/sublet.toml` with `--dir DIR`,\n"
      "- FILE with `--config FILE`.\n"
      "\n"
      "`/v1/status` shows the file in use (`daemon.config`). Every key has a default, so the file may be missing.\n"
      "`sublet config check` checks the file. `sublet config show --origin` prints every value and where it comes "
      "from.\n"
      "\n"
      "Durations are text such as `\"10s\"`, `\"5m\"`, `\"1h30m\"`; sizes are text such as `\"256MiB\"`.\n"
      "\n"
      "| key | type | default | range | meaning |\n"
      "| --- | --- | --- | --- | --- |\n";
  for (const Key& key : schema.keys) {
    out += fmt::format("| `{}` | {} | `{}` | {} | {} |\n", key.name, type_name(key), default_text(key), range_text(key),
                       key.summary);
  }
  for (const List& list : schema.lists) out += list_reference(list);
  out +=
      "\n"
      "These keys are refused as \"not supported by this version\", because their feature does not exist yet:\n"
      "\n";
  for (const LaterKey& key : later_keys()) out += fmt::format("- `{}` ({})\n", key.name, key.feature);
  return out;
}

}  // namespace sublet::config
