// SPDX-License-Identifier: Apache-2.0
#include "state/methods.h"
#include "state/tenant_rights.h"

#include "base/mutants.h"
#include "base/size_bounds.h"
#include "lease/stack_lease.h"
#include "state/format.h"

#include <algorithm>
#include <array>
#include <utility>

namespace sublet::core {
namespace {

// Bytes that the driver, whatever its version, may leave on a device of a parked program: a kept context costs more
// than was measured.
constexpr Bytes driver_residue = 64 * MiB;

// A cooperative program yields better than the driver can park it, unless it fails as often as not.
constexpr double trusted = 0.5;

// Used bytes of a device without a listed process may belong to an unlisted process; below this limit they count as
// nobody's.
constexpr Bytes unlisted_slack = 64 * MiB;

// Whether the driver can be asked to park processes of the lease. Without a process as its owner, the booked
// processes are its program.
bool has_program(const Lease& lease) {
  return lease.owner.kind == OwnerKind::process || lease.owner.kind == OwnerKind::group || !lease.booked.empty();
}

bool is_automatic(const Lease& lease) {
  return lease.pausable == Pausable::automatic || (lease.pausable == Pausable::no && mutant(Mutant::pins_do_not_hold));
}

// Why the owner's choice excludes the method; none: it does not.
ObstacleCode refused_by_owner(const Lease& lease, Pausable method) {
  if (is_automatic(lease) || lease.pausable == method) return ObstacleCode::none;
  return lease.pausable == Pausable::no ? ObstacleCode::pinned : ObstacleCode::other_method;
}

// ------------------------------------------------------------------------------------------------ the methods

ObstacleCode refused_by_program(const State&, const Lease& lease) {
  if (const auto code = refused_by_owner(lease, Pausable::cooperative); code != ObstacleCode::none) return code;
  return lease.cooperation ? ObstacleCode::none : ObstacleCode::not_cooperative;
}

Bytes residue_declared(const State&, const Lease& lease) {
  return std::min(lease.cooperation ? lease.cooperation->residue : lease.vram, lease.vram);
}

// The bytes that cooperative programs save in host memory are not known.
Bytes parked_by_program(const State&, const Lease&, Bytes enters) { return enters; }

ObstacleCode refused_by_version(const State&, const Lease&) { return ObstacleCode::no_interposer; }

// A user who starts a program with `sublet run` agrees to all methods by that. Sublet starts the programs of stacks,
// too. The agent that named a control group speaks for its user.
bool has_consent(const State& state, const Lease& lease) {
  const bool ours = lease.owner.keeper || !stack_of(lease).empty() || lease.owner.kind == OwnerKind::group;
  return ours || is_granted(state, lease.whose()) || mutant(Mutant::grants_do_not_matter);
}

ObstacleCode refused_by_driver(const State& state, const Lease& lease) {
  if (const auto code = refused_by_owner(lease, Pausable::driver); code != ObstacleCode::none) return code;
  if (!has_program(lease)) return ObstacleCode::no_program;
  if (unified_device(state, lease) != nullptr) return ObstacleCode::unified_device;
  if (lease.unfit) return lease.unfit->code;
  return has_consent(state, lease) ? ObstacleCode::none : ObstacleCode::no_consent;
}

Bytes residue_of_driver(const State& state, const Lease& lease) {
  std::int64_t processes = 0;
  for (const std::string& device : lease.devices)
    processes = std::max<std::int64_t>(processes, charge_on(state, lease.id, device).processes);
  return std::min(std::max(driver_residue, processes * driver_keeps), lease.vram);
}

Bytes parked_by_driver(const State& state, const Lease& lease, Bytes enters) {
  const Use use = use_of(state, lease.id);
  if (use.untold) return enters;
  return std::min(enters, std::max(use.used, standing_of(state, lease.id).parked));
}

// A pause method, as far as decisions go. Readings verify a pause by any method alike. The executor has a part for each
// method, too: how it is ordered and undone.
struct Method {
  PauseMethod method;
  // Why it can never pause the lease as things are; none: it can. Its state and lasting obstacles do not count.
  ObstacleCode (*never)(const State&, const Lease&);
  Bytes (*residue)(const State&, const Lease&);               // what it leaves on each of the devices
  Bytes (*parked)(const State&, const Lease&, Bytes enters);  // what it leaves in host memory, of what is entered
};

// The best first, as long as nothing is known of the program.
constexpr std::array<Method, 3> all_methods{{
    {PauseMethod::cooperative, refused_by_program, residue_declared, parked_by_program},
    {PauseMethod::interposer, refused_by_version, residue_of_driver, parked_by_program},
    {PauseMethod::driver, refused_by_driver, residue_of_driver, parked_by_driver},
}};

const Method& method_of(PauseMethod method) { return *std::ranges::find(all_methods, method, &Method::method); }

// ------------------------------------------------------------------------------------------------ in words

// One clause, and what can be done about it.
std::pair<std::string, std::string> refusal_text(const State& state, const Lease& lease, ObstacleCode code) {
  constexpr auto cooperate = "make the program cooperative: see `sublet cooperate --help`";
  switch (code) {
    case ObstacleCode::pinned:
      if (const std::string stack(stack_of(lease)); !stack.empty())
        return {"stack " + stack + " is released, or it is not pausable (pausable: false)",
                "`sublet stack release " + stack + " --down` brings it down"};
      return {"its owner pinned it (--pausable no)", "`sublet stop` ends it"};
    case ObstacleCode::other_method:
      return {"its owner allows the method " + std::string(to_string(lease.pausable)) + " only",
              "start it with --pausable auto"};
    case ObstacleCode::no_interposer:
      return {"it asked for the method interposer, which this version does not have",
              "start it with --pausable auto or driver"};
    case ObstacleCode::not_cooperative:
      return {"it asked for the method cooperative, but its program has not registered",
              "register with `sublet cooperate`, the C library or POST /v1/leases/{id}/cooperate"};
    case ObstacleCode::no_program:
      return {"it has no program that the driver could park, and no cooperative program has registered",
              "start the program with `sublet run`, attach it with `sublet attach`, or register it with `sublet "
              "cooperate`"};
    case ObstacleCode::unified_device:
      return {name_of(*unified_device(state, lease)) +
                  " uses the memory of the machine, so that parking in host memory would free nothing there",
              "make the program cooperative, so that it frees its memory itself: see `sublet cooperate --help`"};
    case ObstacleCode::owner_must_vouch:
      return {"the driver parks it only if its owner vouches for it: " + lease.unfit->detail,
              "if it uses none of these: sublet pause --grant " + lease.consumer +
                  " (or start it with --pausable driver); else make it cooperative (`sublet cooperate`)"};
    case ObstacleCode::no_consent:
      return {"Sublet did not start its program, and its owner has not allowed to park it",
              "its owner allows it with: sublet pause --grant " + lease.consumer};
    default: return {"the driver cannot park it: " + (lease.unfit ? lease.unfit->detail : std::string()), cooperate};
  }
}

// Why no method can pause the lease, by the method that its owner chose, or that most can be done about.
Error no_method(const State& state, const Lease& lease) {
  const PauseMethod closest = lease.pausable == Pausable::cooperative  ? PauseMethod::cooperative
                              : lease.pausable == Pausable::interposer ? PauseMethod::interposer
                                                                       : PauseMethod::driver;
  auto [why, hint] = refusal_text(state, lease, method_of(closest).never(state, lease));
  return {Code::PauseUnsafe, name_of(lease) + " cannot be paused: " + why, std::move(hint)};
}

}  // namespace

bool lacks_a_grant(const State& state, const Lease& lease) {
  const ObstacleCode code = refused_by_driver(state, lease);
  const bool lacks = code == ObstacleCode::no_consent || code == ObstacleCode::owner_must_vouch;
  return lacks && pause_methods_of(state, lease).empty();
}

PauseMethods pause_methods_of(const State& state, const Lease& lease) {
  PauseMethods methods;
  for (const Method& its : all_methods)
    if (its.never(state, lease) == ObstacleCode::none) methods.push_back(its.method);
  if (methods.size() == 2) {
    const MethodRecord* own = record_of(state, lease.whose(), PauseMethod::cooperative);
    const MethodRecord* drivers = record_of(state, lease.whose(), PauseMethod::driver);
    const double other = drivers == nullptr ? 1.0 : drivers->reliability();
    if (own != nullptr && own->reliability() < std::min(trusted, other)) std::swap(methods[0], methods[1]);
  }
  return methods;
}

std::vector<MethodChoice> method_choices(const State& state, const Lease& lease, Time now) {
  const PauseMethods open = open_methods_of(state, lease, now);
  const Attempt* attempt = attempt_of(state, lease.id);
  const bool runs = attempt != nullptr || lease.parked();
  const auto chosen = runs           ? std::optional(lease.parking->method)
                      : open.empty() ? std::nullopt
                                     : std::optional(open.front());
  std::vector<MethodChoice> all;
  for (const Method& its : all_methods) {
    const ObstacleCode never = its.never(state, lease);
    if (never == ObstacleCode::no_interposer) continue;
    MethodChoice& choice = all.emplace_back(MethodChoice{its.method, chosen == its.method});
    const Obstacle* bar = bar_of(state, lease.id, its.method, now);
    if (choice.chosen) continue;
    if (never == ObstacleCode::not_cooperative) choice.why_not = "its program has not registered as cooperative";
    else if (never != ObstacleCode::none) choice.why_not = refusal_text(state, lease, never).first;
    else if (bar != nullptr) choice.why_not = bar->detail;
    else if (lease.parked()) choice.why_not = "the lease is paused by the method " + std::string(to_string(*chosen));
    else if (attempt != nullptr && (attempt->tried & bit_of(its.method)) != 0) choice.why_not = "it has just failed";
    else choice.why_not = "it is tried if the method " + std::string(to_string(*chosen)) + " fails";
  }
  return all;
}

PauseMethods open_methods_of(const State& state, const Lease& lease, Time now) {
  PauseMethods open;
  for (const PauseMethod method : pause_methods_of(state, lease))
    if (bar_of(state, lease.id, method, now) == nullptr) open.push_back(method);
  return open;
}

Result<PauseMethod> pause_method_of(const State& state, const Lease& lease) {
  const auto methods = pause_methods_of(state, lease);
  if (methods.empty()) return no_method(state, lease);
  return methods.front();
}

Bytes residue_of(const State& state, const Lease& lease, PauseMethod method) {
  return method_of(method).residue(state, lease);
}

Bytes headroom_share(const State& state, const Device& device) {
  const Bytes all = in_headroom(state, Bytes{std::int64_t{1} << 61});
  const Bytes left = all - in_headroom(state, device.residues + device.residues_to_come);
  const auto sharing = static_cast<std::int64_t>(device.leases.size()) - device.parked - device.pausing;
  return {left.count / std::max(sharing, std::int64_t{1})};
}

Bytes held_by(const State& state, const Lease& lease) {
  Bytes bytes;
  for (const std::string& device : lease.devices) bytes += charged_on(state, lease, device);
  return bytes;
}

Bytes enters_host(const State& state, const Lease& lease) {
  Bytes bytes;
  for (const std::string& device : lease.devices)
    if (!state.devices.by_uuid.at(device).reading.unified) bytes += charged_on(state, lease, device);
  return bytes;
}

const Device* unified_device(const State& state, const Lease& lease) {
  for (const std::string& uuid : lease.devices) {
    const auto device = state.devices.by_uuid.find(uuid);
    if (device != state.devices.by_uuid.end() && device->second.reading.unified) return &device->second;
  }
  return nullptr;
}

Bytes stays_parked(const State& state, const Lease& lease, PauseMethod method, Bytes enters) {
  return method_of(method).parked(state, lease, enters);
}

namespace {

// So much is entered of those whom the driver is parking beyond what they are expected to leave there.
Bytes to_settle(const State& state, std::optional<std::uint32_t> uid) {
  Bytes bytes;
  if (state.host.unsettled <= Bytes{}) return bytes;
  for (const LeaseId id : state.pauses.pausing) {
    const Lease& lease = *find(state, id);
    const auto moving = move_of(state, id);
    if (!moving || lease.parking->measured || is_stuck(state, id) || (uid && lease.uid != *uid)) continue;
    const Bytes stays = stays_parked(state, lease, lease.parking->method, lease.parking->host_bytes);
    bytes += lease.parking->host_bytes - std::min(std::max(stays, moving->bytes), lease.parking->host_bytes);
  }
  return bytes;
}

Bytes share_left(const State& state, const Rules& rules, std::uint32_t uid) {
  return ledger_share(rules) - ledger_of(state, uid) + to_settle(state, uid);
}

}  // namespace

Bytes ledger_left(const State& state, const Rules& rules, std::optional<std::uint32_t> uid) {
  Bytes left = rules.ledger_limit - state.host.entries + to_settle(state, {});
  if (uid && !is_alone(state, *uid)) left = std::min(left, share_left(state, rules, *uid));
  return std::max(left, Bytes{});
}

// The user of a preview has no lease yet, and counts as a user who has one.
Bytes ledger_left_for(const State& state, const Rules& rules, std::uint32_t uid, std::uint32_t preemptor) {
  const Bytes left = ledger_left(state, rules, uid);
  return preemptor == uid ? left : std::max(std::min(left, share_left(state, rules, uid)), Bytes{});
}

namespace {

// True for a spot lease if Sublet can end its program, or if it has no program whose bytes would stay.
bool may_be_ended(const Lease& lease) {
  const bool ours = lease.owner.kind == OwnerKind::process && lease.owner.keeper;
  return lease.tier == Tier::spot && (ours || !lease.had_process);
}

// Host memory could never take the lease, whatever part of it is paused. Only its reserved bytes count: no lease is
// ended for bytes beyond its size, because it may give them back.
bool is_too_large(const State& state, const Rules& rules, const Lease& lease, std::uint32_t preemptor) {
  return !lease.parking && unified_device(state, lease) == nullptr &&
         lease.reserved() > most_parkable(rules, lease, preemptor).bytes;
}

// Counts from the grant, or from the end of the process that had registered. Use of the card does not prolong the time.
Time registers_until(const State& state, const Rules& rules, const Lease& lease) {
  return std::max(lease.granted_at.value_or(Time{}), standing_of(state, lease.id).silent_since) +
         rules.spot_unused_after;
}

constexpr Duration next_reading = std::chrono::seconds(1);

// Since anything was seen of it, or could be: what its next program registers is waited for too.
Time idles_until(const State& state, const Rules& rules, const Lease& lease) {
  const Standing standing = standing_of(state, lease.id);
  const Time seen = std::max(standing.used_until, standing.silent_since);
  const Time granted = lease.granted_at.value_or(Time{}), resumed = lease.resumed_at.value_or(Time{});
  return std::max({granted, resumed, seen}) + rules.spot_unused_after;
}

// A reading from before `at` says nothing about `at`: after a clock gap the daemon catches up with older readings.
bool is_read_since(const State& state, const Lease& lease, Time at) {
  return std::ranges::all_of(lease.devices, [&](const std::string& uuid) {
    const std::optional<Time>& read = state.devices.by_uuid.at(uuid).read_at;
    return read && *read >= at;
  });
}

bool nothing_on_card(const State& state, const Lease& lease, const PauseMethods& methods) {
  if (lease.state != LeaseState::active || methods.size() != 1 || methods[0] != PauseMethod::driver) return false;
  const Use use = use_of(state, lease.id);
  return use.used == Bytes{} && !use.untold;
}

// True if no hidden or unlisted bytes on its devices may belong to the lease. A lease with such bytes is not ended:
// nobody could be asked to free them, and their process keeps them for as long as it likes.
bool idles(const State& state, const Lease& lease) {
  return std::none_of(lease.devices.begin(), lease.devices.end(), [&](const std::string& uuid) {
    return charge_on(state, lease.id, uuid).hidden > Bytes{} ||
           state.devices.by_uuid.at(uuid).unlisted > unlisted_slack;
  });
}

}  // namespace

bool does_not_go_on(const State& state, const Rules& rules, const Lease& lease, Time now) {
  return may_be_ended(lease) && unanswered_for(state, lease, now) >= rules.spot_unused_after;
}

// The lasting obstacle to the first of its methods that has one; null: none.
static const Obstacle* barred_by(const State& state, const Lease& lease, Time now) {
  for (const PauseMethod method : pause_methods_of(state, lease))
    if (const Obstacle* its = bar_of(state, lease.id, method, now)) return its;
  return nullptr;
}

WayToYield way_to_yield(const State& state, const Rules& rules, const Lease& lease, std::uint32_t preemptor, Time now) {
  const PauseMethods methods = open_methods_of(state, lease, now);
  const auto hindered = [&methods](ObstacleCode by) {
    WayToYield way;
    if (!methods.empty()) way.method = methods.front();
    way.obstacle = by;
    return way;
  };
  if (may_be_ended(lease) && is_too_large(state, rules, lease, preemptor)) return {WayToYield::Kind::end};
  if (does_not_go_on(state, rules, lease, now)) return {WayToYield::Kind::end};
  if (methods.empty()) {
    const Obstacle* barred = barred_by(state, lease, now);
    if (!may_be_ended(lease)) return hindered(barred == nullptr ? ObstacleCode::no_method : barred->code);
    WayToYield way = hindered(ObstacleCode::unregistered);
    const bool would_help = bar_of(state, lease.id, PauseMethod::cooperative, now) == nullptr;
    way.until = may_register(lease) && would_help ? registers_until(state, rules, lease) : Time{};
    return now < way.until ? way : WayToYield{WayToYield::Kind::end};
  }
  if (nothing_on_card(state, lease, methods)) {
    WayToYield way = hindered(ObstacleCode::nothing_on_card);
    if (!may_be_ended(lease) || !idles(state, lease)) return way;
    way.until = idles_until(state, rules, lease);
    if (now >= way.until && is_read_since(state, lease, way.until)) return {WayToYield::Kind::end};
    way.until = std::max(way.until, now + next_reading);
    return way;
  }
  if (!lease.parking) {  // else the ledger has entered it already
    Bytes takes = ledger_left_for(state, rules, lease.uid, preemptor);
    if (const auto of_tenant = park_left(state, rules, lease)) takes = std::max(std::min(takes, *of_tenant), Bytes{});
    if (enters_host(state, lease) > takes) {
      WayToYield way = hindered(ObstacleCode::ledger_full);
      way.takes = takes;
      return way;
    }
  }
  return {WayToYield::Kind::park, methods.front()};
}

std::string obstacle_text(const State& state, const Lease& lease, const WayToYield& way, Time now) {
  const std::string ends = "; it may be ended in about " + format_duration(way.until - now);
  switch (way.obstacle) {
    case ObstacleCode::unregistered:
      return (lease.pausable == Pausable::driver ? "its program has not started yet, and still may"
                                                 : "its program has not registered as cooperative yet, and still may") +
             ends;
    case ObstacleCode::nothing_on_card:
      return "its program holds no memory on a card that could be parked" +
             (way.until == Time::never() ? "" : ", and it still has time to take some" + ends);
    case ObstacleCode::ledger_full: {
      const auto [holds, takes] = format_sizes_apart(enters_host(state, lease), way.takes);
      return "host memory takes no more than " + takes +
             " of parked bytes now (`sublet status` shows its limits), and it holds " + holds;
    }
    default: break;
  }
  const Obstacle* barred = barred_by(state, lease, now);
  return barred == nullptr ? no_method(state, lease).detail : "it cannot be paused: " + barred->detail;
}

MostParkable most_parkable(const Rules& rules, const Lease& lease, std::uint32_t preemptor) {
  MostParkable most{rules.ledger_limit, "`ledger.limit`"};
  if (preemptor != lease.uid) most = {ledger_share(rules), "`ledger.user_share` of `ledger.limit`"};
  if (rules.host_memory && *rules.host_memory - rules.ledger_reserve < most.bytes)
    most = {std::max(*rules.host_memory - rules.ledger_reserve, Bytes{}),
            "the machine's memory without `ledger.reserve`"};
  return most;
}

// A lease whose program the driver was tried on has had that program on a card, so that nothing more is waited for.
bool may_register(const Lease& lease) {
  const bool comes = lease.owner.kind != OwnerKind::process && !lease.had_process;
  const bool by_itself = lease.pausable == Pausable::automatic || lease.pausable == Pausable::cooperative;
  return (by_itself && !lease.cooperation && !lease.unfit) || (lease.pausable == Pausable::driver && comes);
}

bool might_yield(const Lease& lease) {
  if (!lease.reserves() || lease.parked()) return false;
  if (lease.tier == Tier::spot) return true;
  return lease.pausable != Pausable::no && (has_program(lease) || lease.cooperation);
}

}  // namespace sublet::core
