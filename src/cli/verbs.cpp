// SPDX-License-Identifier: Apache-2.0
// The table of verbs: one line each, in the order in which --help shows them.
#include "cli/verb.h"

#include <array>

namespace sublet::cli {

#define SUBLET_VERB(name) Action add_##name(CLI::App& app, Common& common)
#ifdef SUBLET_VERB_run
SUBLET_VERB(run);
#endif
#ifdef SUBLET_VERB_hold
SUBLET_VERB(hold);
#endif
#ifdef SUBLET_VERB_attach
SUBLET_VERB(attach);
#endif
#ifdef SUBLET_VERB_claim
SUBLET_VERB(claim);
#endif
#ifdef SUBLET_VERB_release
SUBLET_VERB(release);
#endif
#ifdef SUBLET_VERB_renew
SUBLET_VERB(renew);
#endif
#ifdef SUBLET_VERB_wait
SUBLET_VERB(wait);
#endif
#ifdef SUBLET_VERB_stop
SUBLET_VERB(stop);
#endif
SUBLET_VERB(status);
SUBLET_VERB(ps);
SUBLET_VERB(queue);
SUBLET_VERB(why);
SUBLET_VERB(gpus);
SUBLET_VERB(proclist);
SUBLET_VERB(doctor);
SUBLET_VERB(config);
SUBLET_VERB(completion);

namespace {

constexpr Verb kVerbs[] = {
#ifdef SUBLET_VERB_run
    {"run", "Work", "Run a program under a lease: wait for the memory, start it, end with it", add_run},
#endif
#ifdef SUBLET_VERB_hold
    {"hold", "Work", "Hold a lease without a program, for as long as this command or a process lives", add_hold},
#endif
#ifdef SUBLET_VERB_attach
    {"attach", "Work", "Book processes that run already to a lease", add_attach},
#endif
#ifdef SUBLET_VERB_claim
    {"claim", "Work", "Take the place that a lease was offered", add_claim},
#endif
#ifdef SUBLET_VERB_release
    {"release", "Work", "End a lease", add_release},
#endif
#ifdef SUBLET_VERB_renew
    {"renew", "Work", "Prolong a lease that has a time to live", add_renew},
#endif
#ifdef SUBLET_VERB_stop
    {"stop", "Work", "End a lease's program: asked first, killed after a grace", add_stop},
#endif
#ifdef SUBLET_VERB_wait
    {"wait", "Work", "Wait until a lease has ended; exits with its program's status", add_wait},
#endif
    {"status", "Look", "The whole at a glance: daemon, devices, leases, warnings", add_status},
    {"ps", "Look", "List leases", add_ps},
    {"queue", "Look", "List those that wait, in order, with what they wait for", add_queue},
    {"why", "Look", "Say why a lease waits, runs or ended, and what would help", add_why},
    {"gpus", "Look", "List devices and their memory", add_gpus},
    {"proclist", "Look", "List the processes that hold memory of a GPU, leased or not", add_proclist},
    {"doctor", "Look", "Check what works here and say what would help", add_doctor},
    {"config", "Govern", "Check or show the daemon's configuration", add_config},
    {"completion", "Govern", "Print what makes a shell complete verbs, flags and leases", add_completion},
};

constexpr std::string_view kNotYet[] = {
    "resize", "pause",  "resume",  "preempt", "free",    "logs",  "top",    "events",   "report", "tenant", "session",
    "stack",  "shim",   "adapter", "enforce", "approve", "update", "restart", "remove", "token",  "simulate", "plan",
};

}  // namespace

std::span<const Verb> verbs() { return kVerbs; }
std::span<const std::string_view> verbs_not_yet() { return kNotYet; }

}  // namespace sublet::cli
