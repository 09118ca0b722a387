// SPDX-License-Identifier: Apache-2.0
// The pure part of `doctor`: judging what the daemon and sublet-gpu said, and showing it.
#include "cli/checks.h"

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
  if (state == "ok")
    return {"device", Level::ok, text + fmt::format(", {} free", size_at_most(device, "effective_free_bytes")), {}};
  if (!problem.empty()) text += ": " + problem;
  return {"device", Level::fail, text + fmt::format(" [{}]: nothing is granted on it", state),
          state == "lost" ? "look into the kernel's log for Xid messages" : "see: sublet status"};
}

Check actor_check(const json& actor) {
  const auto& groups = member(actor, "groups");
  std::string text = "the actor may signal ";
  text += flag_at(actor, "signals_others") ? "every user's programs" : "the programs of its own user";
  if (!groups.is_string()) {
    return {"actor", Level::note, text + "; no unified control group hierarchy is mounted, so none is made for them",
            "what a program leaves behind when its keeper is killed may then not be found: mount -t cgroup2 none "
            "/sys/fs/cgroup"};
  }
  return {"actor", Level::ok, text + "; control groups for them are made below " + groups.get<std::string>(), {}};
}

// Whose programs can be parked, as far as rights go.
Check parking_check(const json& daemon) {
  const auto& actor = member(daemon, "actor");
  const bool service = !text_at(actor, "socket").empty();
  if (text_at(daemon, "mode") != "system" && !service)
    return {"parking", Level::ok, "the daemon parks programs of its own user, with its rights", {}};
  if (!flag_at(actor, "ready")) {
    return {"parking", Level::note,
            "whose programs can be parked is known when the actor is there, which starts what parks them",
            service ? "its socket starts it when the daemon connects, which is tried again and again: systemctl status "
                      "sublet-actor.socket sublet-actor.service"
                    : "the daemon starts it again and again; its log says more"};
  }
  const auto again = [&](std::string_view what) {
    if (!service) return fmt::format("start subletd with {}", what);
    return fmt::format(
        "put {} into CapabilityBoundingSet= (systemctl edit sublet-actor.service), then: systemctl try-restart "
        "sublet-actor.service; where it does not run, it is started with them when it is needed",
        what);
  };
  if (const auto uid = number_at(actor, "uid").value_or(0); uid != 0) {
    return {"parking",
            Level::note,
            fmt::format("the actor is uid {}, not root: it parks programs of that user only", uid),
            {}};
  }
  if (!flag_at(actor, "parks_others")) {
    return {"parking", Level::warn,
            "the actor may not park other users' programs: it lacks the capabilities CAP_SETUID and CAP_SETGID",
            again("CAP_SETUID and CAP_SETGID")};
  }
  const std::string text = "programs of any user can be parked, each by a helper with that user's rights";
  if (flag_at(actor, "parks_roots")) return {"parking", Level::ok, text, {}};
  return {"parking", Level::note, text + "; root's own cannot: the actor lacks the capability CAP_SYS_PTRACE",
          "if programs of root (of containers, say) are leased: " + again("CAP_SYS_PTRACE")};
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
    checks.push_back({"version", Level::ok, fmt::format("daemon and command line are both {}", version), {}});
  } else {
    checks.push_back({"version", Level::warn,
                      fmt::format("the daemon is {}, this command line {}",
                                  version.empty() ? "of an unknown version" : version, our_version),
                      "restart the daemon after an upgrade"});
  }
  const std::string store = text_at(daemon, "store");
  if (store == "ok") checks.push_back({"store", Level::ok, "the daemon's store is usable", {}});
  else
    checks.push_back({"store", Level::fail, "the daemon's store: " + (store.empty() ? "unknown" : store),
                      "nothing is granted until it works; look into the daemon's log"});
  // One that is not there is warned of below.
  if (const auto& actor = member(daemon, "actor"); actor.is_object()) {
    if (flag_at(actor, "ready")) checks.push_back(actor_check(actor));
    checks.push_back(parking_check(daemon));
  }
  const auto& devices = list_at(status, "devices");
  if (devices.empty()) {
    checks.push_back({"device", Level::fail, "the daemon knows no device", "see what is said of NVML below"});
  }
  for (const auto& device : devices) checks.push_back(device_check(device));
  for (const auto& warning : list_at(status, "warnings")) {
    const std::string code = text_at(warning, "code");
    if (code == "store" || code.starts_with("device")) continue;  // said above
    checks.push_back({"daemon-warning", Level::warn, fmt::format("{}: {}", code, text_at(warning, "text")),
                      text_at(warning, "hint")});
  }
  return checks;
}

Checks judge_snapshot(std::string_view output, int exit_status) {
  const auto body = json::parse(output, nullptr, false);
  const auto& snapshot = member(body, "snapshot").is_object() ? member(body, "snapshot") : body;
  if (!snapshot.is_object() || !member(snapshot, "devices").is_array()) {
    return {{"nvml", Level::fail, fmt::format("sublet-gpu said nothing that can be read (exit status {})", exit_status),
             "run it by hand: sublet-gpu snapshot"}};
  }
  const std::string problem = text_at(snapshot, "problem");
  if (!problem.empty()) {
    return {{"nvml", Level::fail, "NVML: " + problem,
             "install the vendor's driver (nvidia-smi must work), or look around without a GPU: subletd --dir DIR "
             "--sim 1x24GiB"}};
  }
  Checks checks;
  const auto& devices = list_at(snapshot, "devices");
  const bool simulated =
      std::any_of(devices.begin(), devices.end(), [](const json& d) { return flag_at(d, "simulated"); });
  std::string text = fmt::format("NVML sees {} device{}", devices.size(), devices.size() == 1 ? "" : "s");
  if (const auto driver = text_at(snapshot, "driver_version"); !driver.empty()) text += ", driver " + driver;
  if (const auto library = text_at(snapshot, "library"); !library.empty()) text += ", by " + library;
  if (simulated) text += ": SIMULATED, no real GPU is behind it";
  checks.push_back({"nvml",
                    devices.empty() ? Level::fail
                    : simulated     ? Level::note
                                    : Level::ok,
                    text, devices.empty() ? "is a card in this machine, and visible here? (nvidia-smi -L)" : ""});
  if (const auto driver = text_at(snapshot, "driver_version"); !simulated && driver.starts_with("595.71"))
    checks.push_back({"checkpoint", Level::warn,
                      fmt::format("driver {}: to end a process that it had restored has hung whole hosts", driver),
                      "another driver, or have programs yield by themselves: sublet cooperate, sublet run --pausable "
                      "cooperative (docs/decisions/0029)"});
  for (const auto& device : devices) {
    std::string trouble = text_at(device, "problem"), hint;
    const Bytes used{number_at(device, "used_bytes").value_or(0)}, total{number_at(device, "total_bytes").value_or(0)};
    if (trouble.empty() && list_at(device, "processes").empty() && used.count > total.count / 2) {
      trouble = fmt::format("{} of {} are used and no process is listed", format_size(used), format_size(total));
      hint = "a container sees only its own processes: run it on the host; while a program is brought back this passes";
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
            fmt::format("sublet-gpu said nothing of the driver that can be read (exit status {})", exit_status),
            "run it by hand: sublet-gpu support"};
  }
  if (!flag_at(body, "supported")) {
    return {"checkpoint", Level::warn, "no program can be parked by the driver: " + text_at(body, "problem"),
            "install the vendor's driver 570 or newer; programs that yield by themselves need none of this: sublet "
            "cooperate"};
  }
  const auto version = member(body, "version").is_number_integer() ? member(body, "version").get<int>() : 0;
  const std::string driver =
      fmt::format("CUDA {}.{}, {}", version / 1000, version % 1000 / 10, text_at(body, "library"));
  if (version < 13000) {
    return {"checkpoint", Level::note,
            fmt::format("the driver ({}) destroys by trying what it cannot park: only programs whose owner answers for "
                        "them are parked by it, and none on several devices",
                        driver),
            "answer for one that uses no managed memory, no CUDA IPC and no NCCL: sublet run --pausable driver, or "
            "sublet pause --grant CONSUMER; drivers from 580 on (CUDA 13.0) need no such word"};
  }
  return {"checkpoint", Level::ok, fmt::format("the driver can park programs ({})", driver), {}};
}

Check judge_ptrace_scope(std::string_view text) {
  static constexpr std::string_view scopes[] = {"any process of the same user", "only processes below the tracer",
                                                "only who has CAP_SYS_PTRACE", "nobody"};
  const int scope = text.empty() ? 0 : text[0] - '0';
  if (scope <= 0 || scope > 3) {
    return {"ptrace", Level::ok, "ptrace scope 0: processes may look into others of their user", {}};
  }
  return {"ptrace", Level::note,
          fmt::format("ptrace scope {}: {} may attach as a debugger; as far as is known, parking needs no more than to "
                      "look into /proc/PID, which this does not forbid",
                      scope, scopes[scope]),
          "should the driver refuse to park all the same (OPERATING_SYSTEM): sysctl kernel.yama.ptrace_scope=0"};
}

Check judge_swap(const json& ledger, bool kept, const std::string& where) {
  if (!flag_at(ledger, "may_swap"))
    return {"swap", Level::ok, "no swap device is in use: what is parked stays in memory", {}};
  if (flag_at(ledger, "allow_swap")) {
    return {"swap", Level::note, "swap is on, and ledger.allow_swap lets what is parked be written there",
            "what was swapped out takes minutes and more to come back; sublet why says how much of a program is"};
  }
  if (kept) {
    return {"swap",
            Level::ok,
            fmt::format("swap is on; a program that is started from here is kept from it while it is parked ({}/"
                        "memory.swap.max)",
                        where),
            {}};
  }
  return {"swap", Level::warn,
          "swap is on, and a program that is started from here cannot be kept from it: it is never paused" +
              (where.empty() ? std::string("; no control group with memory.swap.max is here")
                             : fmt::format("; others are in {}, or it may not be written", where)),
          "turn swap off (swapoff -a); or start programs in a group of their own (systemd-run --user --scope -p "
          "MemorySwapMax=0 sublet run …); or let it be: ledger.allow_swap = true"};
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
