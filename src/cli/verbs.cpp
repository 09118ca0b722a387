// SPDX-License-Identifier: Apache-2.0
// The table of verbs: one line each, in the order in which --help shows them.
#include "cli/verb.h"

#include <array>

namespace sublet::cli {

Action add_run(Command command, Common& common);
Action add_hold(Command command, Common& common);
Action add_attach(Command command, Common& common);
Action add_claim(Command command, Common& common);
Action add_release(Command command, Common& common);
Action add_resize(Command command, Common& common);
Action add_renew(Command command, Common& common);
Action add_pause(Command command, Common& common);
Action add_resume(Command command, Common& common);
Action add_preempt(Command command, Common& common);
Action add_free(Command command, Common& common);
Action add_cooperate(Command command, Common& common);
Action add_wait(Command command, Common& common);
Action add_stop(Command command, Common& common);
Action add_status(Command command, Common& common);
Action add_ps(Command command, Common& common);
Action add_queue(Command command, Common& common);
Action add_why(Command command, Common& common);
Action add_top(Command command, Common& common);
Action add_gpus(Command command, Common& common);
Action add_proclist(Command command, Common& common);
Action add_events(Command command, Common& common);
Action add_report(Command command, Common& common);
Action add_doctor(Command command, Common& common);
Action add_token(Command command, Common& common);
Action add_config(Command command, Common& common);
Action add_completion(Command command, Common& common);

namespace {

constexpr Verb kVerbs[] = {
    {"run", "Work", "Run a program under a lease: wait for the memory, start it, end with it", add_run},
    {"hold", "Work", "Hold a lease without a program, for as long as this command or a process lives", add_hold},
    {"attach", "Work", "Book processes that run already to a lease", add_attach},
    {"claim", "Work", "Take the place that a lease was offered", add_claim},
    {"release", "Work", "End a lease", add_release},
    {"renew", "Work", "Prolong a lease that has a time to live", add_renew},
    {"resize", "Work", "Change how much a lease has", add_resize},
    {"pause", "Work", "Park a program in host memory and give its VRAM to others", add_pause},
    {"resume", "Work", "Bring a paused program back", add_resume},
    {"preempt", "Work", "Have others yield now for a lease that waits", add_preempt},
    {"free", "Work", "Have others yield for something outside, and keep the room for a while", add_free},
    {"cooperate", "Work", "Say how a program yields its VRAM by itself when it is paused", add_cooperate},
    {"stop", "Work", "End a lease's program: asked first, killed after a grace", add_stop},
    {"wait", "Work", "Wait until a lease has ended; exits with its program's status", add_wait},
    {"status", "Look", "The whole at a glance: daemon, devices, leases, warnings", add_status},
    {"ps", "Look", "List leases", add_ps},
    {"queue", "Look", "List those that wait, in order, with what they wait for", add_queue},
    {"why", "Look", "Say why a lease waits, runs or ended, and what would help", add_why},
    {"top", "Look", "Watch devices, leases and the queue on the whole terminal", add_top},
    {"gpus", "Look", "List devices and their memory", add_gpus},
    {"proclist", "Look", "List the processes that hold memory of a GPU, leased or not", add_proclist},
    {"events", "Look", "Follow what happens: leases, devices, warnings", add_events},
    {"report", "Look", "Say who held what and who waited how long", add_report},
    {"doctor", "Look", "Check what works here and say what would help", add_doctor},
    {"token", "Govern", "Make, list and revoke access tokens for callers over TCP", add_token},
    {"config", "Govern", "Check or show the daemon's configuration", add_config},
    {"completion", "Govern", "Print what makes a shell complete verbs, flags and leases", add_completion},
};

constexpr std::string_view kNotYet[] = {
    "logs",    "tenant", "session", "stack",  "shim",     "adapter", "enforce",
    "approve", "update", "restart", "remove", "simulate", "plan",
};

}  // namespace

std::span<const Verb> verbs() { return kVerbs; }
std::span<const std::string_view> verbs_not_yet() { return kNotYet; }

}  // namespace sublet::cli
