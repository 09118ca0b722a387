// SPDX-License-Identifier: Apache-2.0
// The pure part of `doctor`: judges the replies of the daemon and of sublet-gpu, and renders the findings.
#include "cli/checks.h"

#include "cli/render.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::cli {

using nlohmann::json;
using Level = Check::Level;

namespace {

Check device_check(const json& device) {
  const std::string id = text_at(device, "id");
  const std::string state = text_at(device, "state");
  const std::string problem = text_at(device, "problem");
  std::string text = fmt::format("{} {}, {}", id, text_at(device, "name"), size_at(device, "total_bytes"));
  if (flag_at(device, "simulated")) text += " (simulated)";
  if (flag_at(device, "unified")) text += " (unified)";
  if (const std::string service = service_text(device); state == "ok" && !service.empty())
    return {"device", text_at(member(device, "service"), "by") == "Sublet" ? Level::warn : Level::note,
            text + ": " + service,
            "no lease is granted on it; `sublet gpu uncordon " + id + "` takes it back into service"};
  if (state == "ok")
    return {"device", Level::ok, text + fmt::format(", {} free", size_at_most(device, "effective_free_bytes")), {}};
  if (!problem.empty()) text += ": " + problem;
  return {"device", Level::fail, text + fmt::format(" [{}]: no lease is granted on it", state),
          state == "lost" ? "look for Xid messages in the kernel's log" : "sublet status shows the cause"};
}

// The health of a device, as its driver tells it.
void add_condition_checks(Checks& checks, const json& device) {
  const json& condition = member(device, "condition");
  const std::string id = text_at(device, "id");
  const auto add = [&](Level level, const std::string& text, const char* hint) {
    checks.push_back({"condition", level, id + ": " + text, hint});
  };
  if (const auto errors = number_at(condition, "ecc_uncorrected").value_or(0); errors > 0)
    add(Level::warn,
        fmt::format("{} double-bit memory error{} since the driver was loaded", errors, errors == 1 ? "" : "s"),
        "programs that met an error failed; reset the card (nvidia-smi --gpu-reset) and test its memory");
  if (flag_at(condition, "retirement_pending"))
    add(Level::warn, "pages of its memory are to be retired",
        "drain the card (sublet gpu drain), then load the driver again or reboot");
  if (flag_at(condition, "remapping_pending"))
    add(Level::warn, "rows of its memory are to be remapped",
        "drain the card (sublet gpu drain), then reset it: nvidia-smi --gpu-reset");
  if (flag_at(condition, "remapping_failed"))
    add(Level::warn, "a row of its memory could not be remapped", "the card needs a repair: see the vendor's manual");
  const auto lanes = number_at(condition, "pcie_lanes"), most_lanes = number_at(condition, "pcie_max_lanes");
  if (lanes && most_lanes && *lanes < *most_lanes)
    add(Level::note, fmt::format("its PCIe link has {} of {} lanes, so pauses take longer", *lanes, *most_lanes),
        "seat the card anew, or look whether the slot shares its lanes");
  // A card at rest lowers the generation of its link.
  const auto generation = number_at(condition, "pcie_generation"), most = number_at(condition, "pcie_max_generation");
  if (number_at(device, "busy_percent").value_or(0) > 0 && generation && most && *generation < *most)
    add(Level::note, fmt::format("its PCIe link runs as generation {} of {} under load", *generation, *most),
        "look for PCIe errors in the kernel's log, and seat the card anew");
}

Check actor_check(const json& actor) {
  const auto& groups = member(actor, "groups");
  std::string text = "the actor may signal ";
  text += flag_at(actor, "signals_others") ? "every user's programs" : "the programs of its own user";
  if (!groups.is_string()) {
    return {"actor", Level::note, text + "; programs get no control groups: no unified hierarchy is mounted",
            "when a keeper is killed, processes of its program may not be found; mount the hierarchy: mount -t cgroup2 "
            "none /sys/fs/cgroup"};
  }
  return {"actor", Level::ok, text + "; control groups for programs are made below " + groups.get<std::string>(), {}};
}

// Checks whose programs can be parked, as far as rights go.
Check parking_check(const json& daemon) {
  const auto& actor = member(daemon, "actor");
  const bool service = !text_at(actor, "socket").empty();
  if (text_at(daemon, "mode") != "system" && !service)
    return {"parking", Level::ok, "the daemon parks programs of its own user only", {}};
  if (!flag_at(actor, "ready")) {
    return {"parking", Level::note,
            "it is unknown whose programs can be parked: the actor, which starts the parking helpers, does not run",
            service ? "the daemon retries, and the socket starts the actor; check: systemctl status "
                      "sublet-actor.socket sublet-actor.service"
                    : "the daemon retries to start the actor; the daemon's log says why that fails"};
  }
  const auto again = [&](std::string_view what) {
    if (!service) return fmt::format("start subletd with {}", what);
    return fmt::format(
        "add {} to CapabilityBoundingSet= (systemctl edit sublet-actor.service), then: systemctl try-restart "
        "sublet-actor.service",
        what);
  };
  if (const auto uid = number_at(actor, "uid").value_or(0); uid != 0) {
    return {"parking",
            Level::note,
            fmt::format("the actor runs as uid {}, not as root: it parks programs of that user only", uid),
            {}};
  }
  if (!flag_at(actor, "parks_others")) {
    return {"parking", Level::warn,
            "the actor cannot park other users' programs: it lacks the capabilities CAP_SETUID and CAP_SETGID",
            again("CAP_SETUID and CAP_SETGID")};
  }
  const std::string text = "programs of every user can be parked, each by a helper with that user's rights";
  if (flag_at(actor, "parks_roots")) return {"parking", Level::ok, text, {}};
  return {"parking", Level::note, text + ", but root's programs cannot: the actor lacks the capability CAP_SYS_PTRACE",
          "needed only if root runs programs under leases, such as containers: " + again("CAP_SYS_PTRACE")};
}

int count(const Checks& checks, Level level) {
  return static_cast<int>(
      std::count_if(checks.begin(), checks.end(), [&](const Check& c) { return c.level == level; }));
}

}  // namespace

std::string_view to_string(Level level) {
  switch (level) {
    case Level::ok: return "ok";
    case Level::note: return "note";
    case Level::warn: return "warn";
    case Level::fail: return "fail";
  }
  return "fail";
}

Checks judge_status(const json& status, std::string_view our_version) {
  Checks checks;
  const auto& daemon = member(status, "daemon");
  const std::string version = text_at(daemon, "version");
  if (version == our_version) {
    checks.push_back({"version", Level::ok, fmt::format("daemon and command line both have version {}", version), {}});
  } else {
    checks.push_back({"version", Level::warn,
                      fmt::format("the daemon has version {}, this command line {}",
                                  version.empty() ? "unknown" : version, our_version),
                      "restart the daemon after an upgrade"});
  }
  const std::string store = text_at(daemon, "store");
  if (store == "ok") checks.push_back({"store", Level::ok, "the daemon's store is usable", {}});
  else
    checks.push_back({"store", Level::fail, "the daemon's store: " + (store.empty() ? "unknown" : store),
                      "no lease is granted until the store works; the daemon's log says what failed"});
  // One that is not there is warned of below.
  if (const auto& actor = member(daemon, "actor"); actor.is_object()) {
    if (flag_at(actor, "ready")) checks.push_back(actor_check(actor));
    checks.push_back(parking_check(daemon));
  }
  const auto& devices = list_at(status, "devices");
  if (devices.empty()) {
    checks.push_back({"device", Level::fail, "the daemon knows no device", "the NVML check below says why"});
  }
  for (const auto& device : devices) {
    checks.push_back(device_check(device));
    add_condition_checks(checks, device);
  }
  for (const auto& warning : list_at(status, "warnings")) {
    const std::string code = text_at(warning, "code");
    if (code == "store" || code.starts_with("device")) continue;  // said above
    checks.push_back({"daemon-warning", Level::warn, fmt::format("{}: {}", code, text_at(warning, "text")),
                      text_at(warning, "hint")});
  }
  return checks;
}

Checks judge_enforcer(const json& enforcer, const json& status) {
  if (!enforcer.is_object())
    return {{"enforcer", Level::note, "the enforcer is switched off: no records about processes without a lease",
             "an admin can set enforcer.enabled = true and restart the daemon"}};
  const auto& actor = member(member(status, "daemon"), "actor");
  const bool groups = member(actor, "groups").is_string();
  const std::string text = fmt::format(
      "the policy for processes without a lease is {}, with {} exceptions and {} approvals",
      text_at(enforcer, "policy"), list_at(enforcer, "policies").size(), list_at(enforcer, "approvals").size());
  Checks checks{{"enforcer", Level::ok, text, {}}};
  checks.push_back({"links", groups ? Level::ok : Level::note,
                    fmt::format("links of processes to leases: {}keepers, ancestry, sessions and process groups",
                                groups ? "control groups, " : ""),
                    groups ? ""
                           : "without control groups, a process that detached itself completely counts as one "
                             "without a lease"});
  for (const json& source : list_at(enforcer, "sources")) {
    const std::string name = text_at(source, "name"), said = text_at(source, "text");
    const bool connector = name == "connector";
    const std::string what = connector ? "fork records of the kernel (process connector)" : "process accounting";
    if (flag_at(source, "works")) {
      checks.push_back({"links", Level::ok, fmt::format("{}: {}", what, said), {}});
      continue;
    }
    checks.push_back({"links", Level::note, fmt::format("{}: not read: {}", what, said),
                      connector ? "without them, a parent that ended before it was seen is missing in a verdict, and a "
                                  "process below it may count as one without a lease"
                                : "without it, parents that were dead before the daemon's start have no name: turn it "
                                  "on (package acct) and set enforcer.accounting"});
  }
  return checks;
}

namespace {

// Explains a card in MIG mode, and a device without memory of its own.
void explain_mode(const json& device, const json& devices, Checks& checks) {
  const std::int64_t index = number_at(device, "index").value_or(-1);
  if (flag_at(device, "mig")) {
    const auto slices = std::ranges::count_if(devices, [&](const json& other) {
      return !text_at(other, "parent").empty() && text_at(other, "parent") == text_at(device, "uuid");
    });
    checks.push_back(
        {"mig", slices == 0 ? Level::warn : Level::note,
         fmt::format("gpu{} is in MIG mode with {} slice{}: each slice is leased on its own, the card is "
                     "not",
                     index, slices, slices == 1 ? "" : "s"),
         slices == 0 ? "`nvidia-smi mig -cgi PROFILE -C` makes a slice; `nvidia-smi -mig 0` ends the mode" : ""});
  }
  if (flag_at(device, "unified"))
    checks.push_back({"unified", Level::note,
                      fmt::format("gpu{} has no memory of its own: Sublet leases memory of the machine there", index),
                      "device.unified_headroom stays free for the system; only cooperative programs can be paused"});
}

}  // namespace

Checks judge_snapshot(std::string_view output, int exit_status) {
  const auto body = json::parse(output, nullptr, false);
  const auto& snapshot = member(body, "snapshot").is_object() ? member(body, "snapshot") : body;
  if (!snapshot.is_object() || !member(snapshot, "devices").is_array()) {
    return {{"nvml", Level::fail, fmt::format("sublet-gpu printed no readable answer (exit status {})", exit_status),
             "run it by hand to see why: sublet-gpu snapshot"}};
  }
  const std::string problem = text_at(snapshot, "problem");
  if (!problem.empty()) {
    return {{"nvml", Level::fail, "NVML: " + problem,
             "install the vendor's driver (nvidia-smi must work), or try Sublet without a GPU: subletd --dir DIR --sim "
             "1x24GiB"}};
  }
  Checks checks;
  const auto& devices = list_at(snapshot, "devices");
  const bool simulated =
      std::any_of(devices.begin(), devices.end(), [](const json& d) { return flag_at(d, "simulated"); });
  const auto cards =
      std::ranges::count_if(devices, [](const json& device) { return text_at(device, "parent").empty(); });
  std::string text = fmt::format("NVML sees {} device{}", cards, cards == 1 ? "" : "s");
  if (const auto driver = text_at(snapshot, "driver_version"); !driver.empty()) text += ", driver " + driver;
  if (const auto library = text_at(snapshot, "library"); !library.empty()) text += ", by " + library;
  if (simulated) text += ": SIMULATED, not a real GPU";
  checks.push_back({"nvml",
                    devices.empty() ? Level::fail
                    : simulated     ? Level::note
                                    : Level::ok,
                    text,
                    devices.empty() ? "check that the machine has a GPU which is visible here: nvidia-smi -L" : ""});
  if (const auto driver = text_at(snapshot, "driver_version"); !simulated && driver.starts_with("595.71"))
    checks.push_back(
        {"checkpoint", Level::warn,
         fmt::format("driver {} has a known fault: ending a restored process can hang the whole host", driver),
         "install another driver, or pause cooperative programs only: sublet run --pausable cooperative "
         "(docs/decisions/0029)"});
  for (const auto& device : devices) {
    explain_mode(device, devices, checks);
    std::string trouble = text_at(device, "problem"), hint;
    const Bytes used{number_at(device, "used_bytes").value_or(0)}, total{number_at(device, "total_bytes").value_or(0)};
    if (trouble.empty() && !flag_at(device, "unified") && list_at(device, "processes").empty() &&
        used.count > total.count / 2) {
      trouble =
          fmt::format("{} of {} are used, but the driver lists no process", format_size(used), format_size(total));
      hint = "in a container, run sublet doctor on the host instead; while a program is being resumed, this passes";
    }
    if (!trouble.empty())
      checks.push_back({"nvml", Level::warn, fmt::format("{}: {}", text_at(device, "name"), trouble), hint});
  }
  return checks;
}

Check judge_support(std::string_view output, int exit_status) {
  const auto body = json::parse(output, nullptr, false);
  if (!body.is_object() || !member(body, "supported").is_boolean()) {
    return {"checkpoint", Level::warn,
            fmt::format("sublet-gpu printed no readable answer about the driver (exit status {})", exit_status),
            "run it by hand to see why: sublet-gpu support"};
  }
  if (!flag_at(body, "supported")) {
    return {"checkpoint", Level::warn, "the driver cannot park programs: " + text_at(body, "problem"),
            "install the vendor's driver 570 or newer; cooperative programs need no such driver: sublet cooperate"};
  }
  const auto version = member(body, "version").is_number_integer() ? member(body, "version").get<int>() : 0;
  const std::string driver =
      fmt::format("CUDA {}.{}, {}", version / 1000, version % 1000 / 10, text_at(body, "library"));
  if (version < 13000) {
    return {"checkpoint", Level::note,
            fmt::format("the driver ({}) kills a program that it tries and fails to park; so it parks only programs "
                        "that their owner vouches for, on one device each",
                        driver),
            "vouch for a program without managed memory, CUDA IPC and NCCL: sublet run --pausable driver, or sublet "
            "pause --grant CONSUMER; from driver 580 on (CUDA 13.0) this is not needed"};
  }
  return {"checkpoint", Level::ok, fmt::format("the driver can park programs ({})", driver), {}};
}

Check judge_ptrace_scope(std::string_view text) {
  static constexpr std::string_view scopes[] = {"any process of the same user", "only processes below the tracer",
                                                "only processes with CAP_SYS_PTRACE", "no process"};
  const int scope = text.empty() ? 0 : text[0] - '0';
  if (scope <= 0 || scope > 3) {
    return {"ptrace", Level::ok, "ptrace scope 0: a process may inspect other processes of its user", {}};
  }
  return {
      "ptrace", Level::note,
      fmt::format(
          "ptrace scope {}: {} may attach as a debugger; parking is expected to work, since it only reads /proc/PID",
          scope, scopes[scope]),
      "if the driver still refuses to park (OPERATING_SYSTEM): sysctl kernel.yama.ptrace_scope=0"};
}

Check judge_swap(const json& ledger, bool kept, const std::string& where) {
  if (!flag_at(ledger, "may_swap"))
    return {"swap", Level::ok, "no swap device is in use: parked memory stays in RAM", {}};
  if (flag_at(ledger, "allow_swap")) {
    return {"swap", Level::note, "swap is on, and ledger.allow_swap lets the kernel swap parked memory out",
            "swapped memory takes minutes to come back; sublet why shows how much of a program is swapped"};
  }
  if (kept) {
    return {"swap",
            Level::ok,
            fmt::format("swap is on; programs started from this shell are kept out of swap while they are parked "
                        "({}/memory.swap.max)",
                        where),
            {}};
  }
  return {"swap", Level::warn,
          "swap is on, and programs started from this shell cannot be kept out of it, so they are never paused" +
              (where.empty() ? std::string(": no control group here has memory.swap.max")
                             : fmt::format(": {} holds other processes too, or is not writable", where)),
          "turn swap off (swapoff -a), or start programs in their own group (systemd-run --user --scope -p "
          "MemorySwapMax=0 sublet run …), or accept swap (ledger.allow_swap = true)"};
}

int failures(const Checks& checks) { return count(checks, Level::fail); }

std::string render_checks(const Checks& checks, const Look& look) {
  std::string out;
  for (const Check& check : checks) {
    static constexpr Paint colors[] = {Paint::green, Paint::cyan, Paint::yellow, Paint::red};
    const std::string level = fmt::format("{:<4}", to_string(check.level));
    out += fmt::format("{}  {}\n", paint(level, colors[static_cast<int>(check.level)], look), visible(check.text));
    if (!check.hint.empty()) out += fmt::format("      hint: {}\n", visible(check.hint));
  }
  const int failed = failures(checks);
  const int warned = count(checks, Level::warn);
  const auto plural = [](int n, const char* word) { return fmt::format("{} {}{}", n, word, n == 1 ? "" : "s"); };
  if (failed == 0 && warned == 0) return out + "all is well\n";
  return out + fmt::format("{}, {}\n", plural(failed, "failure"), plural(warned, "warning"));
}

json checks_json(const Checks& checks) {
  json list = json::array();
  for (const Check& check : checks) {
    list.push_back({{"name", check.name},
                    {"level", to_string(check.level)},
                    {"text", visible(check.text)},
                    {"hint", visible(check.hint)}});
  }
  return {{"checks", std::move(list)}, {"failures", failures(checks)}, {"warnings", count(checks, Level::warn)}};
}

}  // namespace sublet::cli
