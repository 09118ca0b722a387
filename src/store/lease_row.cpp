// SPDX-License-Identifier: Apache-2.0
#include "store/lease_row.h"

#include "store/history.h"
#include "store/reason_column.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <limits>

namespace sublet::store {
namespace {

// clang-format off
constexpr std::array columns{
    "id", "generation", "state", "end_reason",
    "uid", "user", "tenant", "consumer", "tag", "command", "tier", "priority", "pausable", "vram_bytes",
    "wanted_device", "ttl_ns", "owner_kind", "owner_pid", "owner_start_ticks", "keeper_pid", "keeper_start_ticks",
    "exit_record", "token",
    "devices", "had_process", "lapsed_offers", "exit_status", "stop_requested", "created_at", "queued_at",
    "granted_at", "offer_ends_at", "expires_at", "unheld_since", "stop_at", "ended_at", "peak_used_bytes",
    "booked", "device_count", "asked_vram_bytes", "min_vram_bytes", "resize_bytes", "resize_at",
    "owner_inode", "parking_method", "parking_since", "parking_reason", "parking_bytes", "parking_settled",
    "residue_bytes", "parking_returns", "parking_then_stop", "parking_told", "cooperation_way",
    "cooperation_residue_bytes", "cooperation_pid", "cooperation_start_ticks", "cooperation_address", "pause_signal",
    "resume_signal", "resumed_at", "ordered_by", "ordered_anybodys", "parking_touched",
    "parking_yielded", "before_top_method", "before_top_bytes", "before_top_settled", "ordered_at",
    "unfit", "unfit_why", "parked_for_ns", "parked_at", "nameless", "sized_mean_bytes", "sized_until",
    "sized_parked_ns", "parking_deserted_since", "ceiling_bytes", "soft_limit_bytes", "kept_until"};
// clang-format on

std::int64_t number(std::uint64_t value) { return static_cast<std::int64_t>(value); }

std::optional<std::int64_t> number(const std::optional<Time>& time) {
  return time ? std::optional(time->ns) : std::nullopt;
}

std::optional<std::int64_t> number(const std::optional<Duration>& duration) {
  return duration ? std::optional(std::int64_t{duration->count()}) : std::nullopt;
}

std::string encode_booked(const std::vector<core::Booked>& booked) {
  std::string text;
  for (const auto& [process, cgroup] : booked) {
    text += cgroup.empty() ? fmt::format("{} {}\n", process.pid, process.start_ticks) : cgroup + "\n";
  }
  return text;
}

// Takes the next number of a line. The numbers are separated by one blank.
template <typename Number>
bool take_number(std::string_view& line, Number& number) {
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), number);
  if (error != std::errc()) return false;
  line.remove_prefix(static_cast<std::size_t>(end - line.data()));
  if (line.empty()) return true;
  if (line.front() != ' ' || line.size() == 1) return false;
  line.remove_prefix(1);
  return true;
}

bool take_bytes(std::string_view& line, Bytes& bytes) {
  return take_number(line, bytes.count) && bytes >= Bytes{} && bytes.count <= 1LL << 62;
}

// "pid start_ticks"
bool decode_process(std::string_view line, ProcessRef& process) {
  const char* end = line.data() + line.size();
  const auto pid = std::from_chars(line.data(), end, process.pid);
  if (pid.ec != std::errc() || pid.ptr == end || *pid.ptr != ' ') return false;
  const auto ticks = std::from_chars(pid.ptr + 1, end, process.start_ticks);
  return ticks.ec == std::errc() && ticks.ptr == end;
}

bool decode_booked(std::string_view text, std::vector<core::Booked>& booked) {
  while (!text.empty()) {
    const std::string line(text.substr(0, text.find('\n')));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    core::Booked entry;
    if (line.starts_with('/')) entry.cgroup = line;
    else if (!decode_process(line, entry.process)) return false;
    booked.push_back(std::move(entry));
  }
  return booked.size() <= core::booked_limit;
}

// An earlier version stored no list of the processes that the driver locked.
constexpr std::string_view not_noted = "?";

std::string encode_touched(const std::optional<std::vector<ProcessRef>>& locked_processes) {
  if (!locked_processes) return std::string(not_noted);
  std::string text;
  for (const ProcessRef& process : *locked_processes) text += fmt::format("{} {}\n", process.pid, process.start_ticks);
  return text;
}

bool decode_touched(std::string_view text, std::optional<std::vector<ProcessRef>>& locked_processes) {
  locked_processes.reset();
  if (text == not_noted) return true;
  locked_processes.emplace();
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    if (!decode_process(line, locked_processes->emplace_back())) return false;
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return true;
}

// Format: "all kept on_top tops beside[ pid start_ticks bytes]…" for each device
std::string encode_yielded(const std::vector<core::HeldWhenPaused>& held_when_paused) {
  std::string text;
  for (const auto& [all, of, kept, on_top, tops, beside] : held_when_paused) {
    text += fmt::format("{} {} {} {} {}", all.count, kept.count, on_top.count, tops.count, beside.count);
    for (const auto& [process, bytes] : of)
      text += fmt::format(" {} {} {}", process.pid, process.start_ticks, bytes.count);
    text += '\n';
  }
  return text;
}

bool decode_yielded(std::string_view text, std::vector<core::HeldWhenPaused>& held_when_paused) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    core::HeldWhenPaused& its = held_when_paused.emplace_back();
    for (Bytes* bytes : {&its.all, &its.kept, &its.on_top, &its.tops, &its.beside}) {
      if (line.empty() || !take_bytes(line, *bytes)) return false;
    }
    while (!line.empty()) {
      auto& [process, bytes] = its.of.emplace_back();
      if (!take_number(line, process.pid) || !take_number(line, process.start_ticks)) return false;
      if (line.empty() || !take_bytes(line, bytes)) return false;
    }
  }
  return true;
}

std::vector<std::string> decode_devices(std::string_view text) {
  std::vector<std::string> devices;
  while (!text.empty()) {
    devices.emplace_back(text.substr(0, text.find('\n')));
    text.remove_prefix(std::min(devices.back().size() + 1, text.size()));
  }
  return devices;
}

const core::Parking no_parking;
const core::Cooperation no_cooperation;

// Reads columns from left to right, and notes a column that bind_lease cannot have written.
struct Decoder {
  Statement& row;
  bool good = true;

  template <typename Integer>
  Integer integer() {
    const std::int64_t value = row.integer();
    if constexpr (sizeof(Integer) < sizeof(value)) {
      if (value < std::numeric_limits<Integer>::min() || value > std::numeric_limits<Integer>::max()) good = false;
    }
    return static_cast<Integer>(value);
  }

  bool boolean() {
    const std::int64_t value = row.integer();
    if (value != 0 && value != 1) good = false;
    return value != 0;
  }

  template <typename Enum>
  Enum word(std::optional<Enum> (*parse)(std::string_view)) {
    const std::optional<Enum> value = parse(row.text());
    if (!value) good = false;
    return value.value_or(Enum{});
  }

  Bytes bytes() {
    const std::int64_t value = row.integer();
    if (value < 0 || value > (1LL << 62)) good = false;
    return {value};
  }

  // Reads a Time, which is never negative, so that no difference of two overflows.
  Time time() {
    const std::int64_t ns = row.integer();
    if (ns < 0) good = false;
    return {good ? ns : 0};
  }

  std::optional<Time> maybe_time() {
    const auto ns = row.maybe_integer();
    if (ns && *ns < 0) good = false;
    return ns && good ? std::optional(Time{*ns}) : std::nullopt;
  }
};

std::optional<core::Parking> read_parking(Decoder& column) {
  const std::string method = column.row.text();
  core::Parking parking;
  parking.since = column.time();
  const std::string cause = column.row.text();
  parking.host_bytes = column.bytes();
  parking.measured = column.boolean();
  parking.residue = column.bytes();
  parking.resume_requested = column.boolean();
  parking.then_stop = column.boolean();
  parking.told = column.boolean();
  if (method.empty()) return std::nullopt;
  const auto known = core::parse_pause_method(method);
  if (!known) column.good = false;
  parking.method = known.value_or(core::PauseMethod::driver);
  auto why = decode_cause(cause);
  if (!why) column.good = false;
  else parking.cause = std::move(*why);
  return parking;
}

std::optional<core::Cooperation> read_cooperation(Decoder& column) {
  const std::string way = column.row.text();
  core::Cooperation how;
  how.residue = column.bytes();
  how.process.pid = column.integer<std::int32_t>();
  how.process.start_ticks = column.integer<std::uint64_t>();
  how.address = column.row.text();
  how.pause_signal = column.integer<int>();
  how.resume_signal = column.integer<int>();
  if (way.empty()) return std::nullopt;
  const auto known = core::parse_cooperation_way(way);
  if (!known) column.good = false;
  how.way = known.value_or(core::CooperationWay::poll);
  return how;
}

// An earlier version did not store these bytes. They may be all memory that the lease gets back.
void read_yielded(Decoder& column, core::Lease& lease) {
  std::vector<core::HeldWhenPaused> held_when_paused;
  if (!decode_yielded(column.row.text(), held_when_paused)) column.good = false;
  const std::string method = column.row.text();
  core::Entered before;
  before.bytes = column.bytes();
  before.measured = column.boolean();
  if (!lease.parking) return;
  if (held_when_paused.empty()) held_when_paused.assign(lease.devices.size(), {.all = lease.vram});
  if (held_when_paused.size() != lease.devices.size()) column.good = false;
  lease.parking->held_when_paused = std::move(held_when_paused);
  if (method.empty()) return;
  const auto known = core::parse_pause_method(method);
  if (!known) column.good = false;
  before.method = known.value_or(core::PauseMethod::driver);
  lease.parking->before_top = before;
}

std::optional<core::Upgrade> read_resize(Decoder& column) {
  const auto vram = column.row.maybe_integer();
  const auto since = column.maybe_time();
  if (!vram || !since) return std::nullopt;
  if (*vram < 0 || *vram > (1LL << 62)) column.good = false;
  return core::Upgrade{{*vram}, *since};
}

std::optional<core::Sized> read_sized(Decoder& column) {
  const auto mean = column.row.maybe_integer();
  const auto until = column.maybe_time();
  const auto parked = column.maybe_time();
  if (!mean || !until || !parked) return std::nullopt;
  if (*mean < 0 || *mean > (1LL << 62)) column.good = false;
  return core::Sized{{*mean}, *until, Duration(parked->ns)};
}

std::optional<core::PreemptionRequest> read_preemption_request(Decoder& column) {
  const auto uid = column.row.maybe_integer();
  const bool any_user = column.boolean();
  if (!uid) return std::nullopt;
  if (*uid < 0 || *uid > std::numeric_limits<std::uint32_t>::max()) column.good = false;
  return core::PreemptionRequest{static_cast<std::uint32_t>(*uid), any_user};
}

std::optional<core::UnfitFor> read_unfit(Decoder& column) {
  const std::string kind = column.row.text();
  const std::string why = column.row.text();
  if (kind.empty()) return std::nullopt;
  const auto known = core::parse_unfit(kind);
  if (!known) column.good = false;
  return core::UnfitFor{known.value_or(core::Unfit::never), why};
}

}  // namespace

const std::string& lease_columns() {
  static const std::string list = fmt::format("{}", fmt::join(columns, ", "));
  return list;
}

std::string upsert_lease_sql() {
  std::string places, updates;
  for (const char* column : columns) {
    places += "?, ";
    updates += fmt::format("{0} = excluded.{0}, ", column);
  }
  return fmt::format(
      "INSERT INTO leases ({}, run_ns, settled) VALUES ({}?, ?) ON CONFLICT (id) DO UPDATE SET {}"
      "run_ns = excluded.run_ns, settled = max(settled, excluded.settled)",
      lease_columns(), places, updates);
}

std::string update_living_sql() {
  std::string updates;
  for (std::size_t i = 1; i < columns.size(); ++i) {
    // An index depends on this column, so the update would rewrite the index. The value does not change while the lease
    // lives.
    if (std::string_view(columns[i]) == "ended_at") continue;
    updates += fmt::format("{}{} = ?{}", updates.empty() ? "" : ", ", columns[i], i + 1);
  }
  return fmt::format("UPDATE leases SET {} WHERE id = ?1 AND state <> 'ended' AND ?{} = 0", updates,
                     columns.size() + 2);
}

void bind_lease(Statement& statement, const core::Lease& lease) {
  // Names every field. So a new field does not compile until it has a column and a migration.
  const auto& [id, generation, state, end_reason, uid, user, tenant, consumer, nameless, tag, command, tier, priority,
               pausable, vram, min_vram, ceiling, soft_limit, device_count, wanted_device, ttl, owner, token,
               asked_vram, devices, resize, sized, parking, cooperation, unfit, request, had_process, lapsed_offers,
               exit_status, stop_requested, created_at, queued_at, granted_at, resumed_at, parked_for, parked_at,
               offer_ends_at, expires_at, unheld_since, stop_at, ended_at, kept_until, peak_used, booked] = lease;
  const auto& [owner_kind, process, keeper, exit_record, inode] = owner;
  statement << number(id.number) << number(generation) << to_string(state) << to_string(end_reason) << std::int64_t{uid}
            << user << tenant << consumer << tag << command << to_string(tier) << std::int64_t{priority}
            << to_string(pausable) << vram.count << wanted_device << number(ttl) << to_string(owner_kind)
            << std::int64_t{process.pid} << number(process.start_ticks) << std::int64_t{keeper.pid}
            << number(keeper.start_ticks) << exit_record << token;
  statement.copy(fmt::format("{}", fmt::join(devices, "\n")));
  statement << std::int64_t{had_process} << std::int64_t{lapsed_offers}
            << (exit_status ? std::optional(std::int64_t{*exit_status}) : std::nullopt) << std::int64_t{stop_requested}
            << created_at.ns << queued_at.ns << number(granted_at) << number(offer_ends_at) << number(expires_at)
            << number(unheld_since) << number(stop_at) << number(ended_at) << peak_used.count;
  statement.copy(encode_booked(booked));
  statement << std::int64_t{device_count} << asked_vram.count << min_vram.count
            << (resize ? std::optional(resize->vram.count) : std::nullopt)
            << (resize ? std::optional(resize->queued_at.ns) : std::nullopt) << number(inode);
  const core::Parking& parked = parking ? *parking : no_parking;
  statement << (parking ? to_string(parked.method) : std::string_view()) << parked.since.ns;
  statement.copy(parking ? encode_cause(parked.cause) : std::string());
  statement << parked.host_bytes.count << std::int64_t{parked.measured} << parked.residue.count
            << std::int64_t{parked.resume_requested} << std::int64_t{parked.then_stop} << std::int64_t{parked.told};
  const core::Cooperation& how = cooperation ? *cooperation : no_cooperation;
  statement << (cooperation ? to_string(how.way) : std::string_view()) << how.residue.count
            << std::int64_t{how.process.pid} << number(how.process.start_ticks) << how.address
            << std::int64_t{how.pause_signal} << std::int64_t{how.resume_signal} << number(resumed_at)
            << (request ? std::optional(std::int64_t{request->uid}) : std::nullopt)
            << std::int64_t{request && request->any_user};
  statement.copy(encode_touched(parked.locked_processes));
  statement.copy(encode_yielded(parked.held_when_paused));
  const auto& top = parked.before_top;
  statement << (top ? to_string(top->method) : std::string_view()) << (top ? top->bytes.count : std::int64_t{0})
            << std::int64_t{top && top->measured} << (request ? number(request->given_at) : std::nullopt);
  statement << (unfit ? to_string(unfit->kind) : std::string_view())
            << (unfit ? std::string_view(unfit->why) : std::string_view()) << std::int64_t{parked_for.count()}
            << number(parked_at) << std::int64_t{nameless} << (sized ? std::optional(sized->mean.count) : std::nullopt)
            << (sized ? std::optional(sized->until.ns) : std::nullopt)
            << (sized ? std::optional(std::int64_t{sized->parked.count()}) : std::nullopt)
            << number(parked.orphaned_since) << ceiling.count << soft_limit.count << number(kept_until);
  statement << number(run_of(lease))
            // Without a process there is nothing to measure: settled at once.
            << std::int64_t{lease.ended() && !had_process};
}

std::optional<core::Lease> read_lease(Statement& row) {
  Decoder column{row};
  core::Lease lease;
  lease.id.number = column.integer<std::uint64_t>();
  lease.generation = column.integer<std::uint64_t>();
  lease.state = column.word(core::parse_lease_state);
  lease.end_reason = column.word(core::parse_end_reason);
  lease.uid = column.integer<std::uint32_t>();
  lease.user = row.text();
  lease.tenant = row.text();
  lease.consumer = row.text();
  lease.tag = row.text();
  lease.command = row.text();
  lease.tier = column.word(core::parse_tier);
  lease.priority = column.integer<int>();
  lease.pausable = column.word(core::parse_pausable);
  lease.vram = column.bytes();
  lease.wanted_device = row.text();
  if (const auto ttl = column.maybe_time()) lease.ttl = Duration(ttl->ns);
  lease.owner.kind = column.word(core::parse_owner_kind);
  lease.owner.process.pid = column.integer<std::int32_t>();
  lease.owner.process.start_ticks = column.integer<std::uint64_t>();
  lease.owner.keeper.pid = column.integer<std::int32_t>();
  lease.owner.keeper.start_ticks = column.integer<std::uint64_t>();
  lease.owner.exit_record = row.text();
  lease.token = row.text();
  lease.devices = decode_devices(row.text());
  lease.had_process = column.boolean();
  lease.lapsed_offers = column.integer<int>();
  if (const auto status = row.maybe_integer()) lease.exit_status = static_cast<int>(*status);
  lease.stop_requested = column.boolean();
  lease.created_at = column.time();
  lease.queued_at = column.time();
  lease.granted_at = column.maybe_time();
  lease.offer_ends_at = column.maybe_time();
  lease.expires_at = column.maybe_time();
  lease.unheld_since = column.maybe_time();
  lease.stop_at = column.maybe_time();
  lease.ended_at = column.maybe_time();
  lease.peak_used = column.bytes();
  if (!decode_booked(row.text(), lease.booked)) column.good = false;
  lease.device_count = column.integer<int>();
  lease.asked_vram = column.bytes();
  lease.min_vram = column.bytes();
  lease.resize = read_resize(column);
  lease.owner.inode = column.integer<std::uint64_t>();
  lease.parking = read_parking(column);
  lease.cooperation = read_cooperation(column);
  lease.resumed_at = column.maybe_time();
  lease.preemption_request = read_preemption_request(column);
  std::optional<std::vector<ProcessRef>> locked_processes;
  if (!decode_touched(row.text(), locked_processes)) column.good = false;
  if (lease.parking) lease.parking->locked_processes = std::move(locked_processes);
  read_yielded(column, lease);
  const auto ordered_at = column.maybe_time();
  if (lease.preemption_request) lease.preemption_request->given_at = ordered_at;
  lease.unfit = read_unfit(column);
  lease.parked_for = Duration(column.time().ns);
  lease.parked_at = column.maybe_time();
  lease.nameless = column.boolean();
  lease.sized = read_sized(column);
  const auto orphaned_since = column.maybe_time();
  if (lease.parking) lease.parking->orphaned_since = orphaned_since;
  lease.ceiling = column.bytes();
  lease.soft_limit = column.bytes();
  lease.kept_until = column.maybe_time();
  const bool away =
      lease.parked() || lease.state == core::LeaseState::pausing || lease.state == core::LeaseState::resuming;
  if (away && !lease.parking) return std::nullopt;
  if (!lease.id || !column.good) return std::nullopt;
  return lease;
}

}  // namespace sublet::store
