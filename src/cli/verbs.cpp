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
Action add_touch(Command command, Common& common);
Action add_pause(Command command, Common& common);
Action add_resume(Command command, Common& common);
Action add_preempt(Command command, Common& common);
Action add_free(Command command, Common& common);
Action add_cooperate(Command command, Common& common);
Action add_wait(Command command, Common& common);
Action add_stop(Command command, Common& common);
Action add_logs(Command command, Common& common);
Action add_programs(Command command, Common& common);
Action add_remove(Command command, Common& common);
Action add_restart(Command command, Common& common);
Action add_start(Command command, Common& common);
Action add_update(Command command, Common& common);
Action add_status(Command command, Common& common);
Action add_ps(Command command, Common& common);
Action add_queue(Command command, Common& common);
Action add_why(Command command, Common& common);
Action add_top(Command command, Common& common);
Action add_web(Command command, Common& common);
Action add_gpu(Command command, Common& common);
Action add_gpus(Command command, Common& common);
Action add_proclist(Command command, Common& common);
Action add_events(Command command, Common& common);
Action add_report(Command command, Common& common);
Action add_plan(Command command, Common& common);
Action add_simulate(Command command, Common& common);
Action add_doctor(Command command, Common& common);
Action add_verdicts(Command command, Common& common);
Action add_enforce(Command command, Common& common);
Action add_approve(Command command, Common& common);
Action add_tenant(Command command, Common& common);
Action add_token(Command command, Common& common);
Action add_config(Command command, Common& common);
Action add_stack(Command command, Common& common);
Action add_session(Command command, Common& common);
Action add_shim(Command command, Common& common);
Action add_completion(Command command, Common& common);
Action add_slurm(Command command, Common& common);

namespace {

constexpr Verb kVerbs[] = {
    {"run", "Work", "Run a program under a lease, once its memory is free", add_run},
    {"hold", "Work", "Hold a lease while this command or a process lives", add_hold},
    {"attach", "Work", "Add running processes to a lease", add_attach},
    {"claim", "Work", "Take the memory that the daemon offers to a waiting lease", add_claim},
    {"release", "Work", "End a lease", add_release},
    {"renew", "Work", "Extend a lease that has a time to live", add_renew},
    {"touch", "Work", "Tell that a lease is in use, and bring it back if it was paused as idle", add_touch},
    {"resize", "Work", "Change the size of a lease", add_resize},
    {"pause", "Work", "Pause a lease: park its program in host memory and free its VRAM", add_pause},
    {"resume", "Work", "Resume a paused lease", add_resume},
    {"preempt", "Work", "Pause other leases now for a lease that waits", add_preempt},
    {"free", "Work", "Pause leases to free memory for a program without a lease", add_free},
    {"cooperate", "Work", "Register a program as cooperative: it frees its VRAM itself when it is paused",
     add_cooperate},
    {"stop", "Work", "End the program of a lease or tag: SIGTERM, then SIGKILL after a grace period", add_stop},
    {"start", "Work", "Start supervised programs that do not run", add_start},
    {"restart", "Work", "End supervised programs and start them again", add_restart},
    {"update", "Work", "Change the limits, tier or restart policy of a supervised program", add_update},
    {"remove", "Work", "End supervised programs and forget them", add_remove},
    {"wait", "Work", "Wait until a lease has ended, and exit with its program's status", add_wait},
    {"stack", "Work", "Start Docker Compose projects under leases, in turn", add_stack},
    {"session", "Work", "Hold GPU memory for as long as it is used: a lease that activity renews", add_session},
    {"status", "Look", "Show daemon, devices, leases and warnings, or one program or lease", add_status},
    {"programs", "Look", "List supervised programs", add_programs},
    {"logs", "Look", "Print the output of a supervised program", add_logs},
    {"ps", "Look", "List leases", add_ps},
    {"queue", "Look", "List waiting leases in order, and what each of them waits for", add_queue},
    {"why", "Look", "Explain why a lease waits, runs or ended, and what would help", add_why},
    {"top", "Look", "Watch devices, leases and the queue in the terminal", add_top},
    {"web", "Look", "Show devices, queue and leases in a browser, and act on them", add_web},
    {"gpus", "Look", "List devices and their memory", add_gpus},
    {"proclist", "Look", "List the processes that hold GPU memory, leased or unleased", add_proclist},
    {"verdicts", "Look", "List processes that hold GPU memory without a lease, and what was done about them",
     add_verdicts},
    {"events", "Look", "Follow events of leases, devices and warnings", add_events},
    {"report", "Look", "Report held memory and waiting times by user, consumer or tenant", add_report},
    {"plan", "Look", "Tell when leases would start, and who would be paused for them", add_plan},
    {"simulate", "Look", "Run a trace of jobs through the scheduler in virtual time", add_simulate},
    {"doctor", "Look", "Check this machine and say what to do", add_doctor},
    {"enforce", "Set up", "Set what happens to processes that hold GPU memory without a lease", add_enforce},
    {"approve", "Set up", "Allow processes to hold GPU memory without a lease", add_approve},
    {"gpu", "Set up", "Take a device out of service, drain it, and take it back", add_gpu},
    {"tenant", "Set up", "Guarantee memory to teams and users, limit it, and share the rest by weight", add_tenant},
    {"token", "Set up", "Create, list and revoke access tokens for callers over TCP", add_token},
    {"config", "Set up", "Check or show the daemon's configuration", add_config},
    {"shim", "Set up", "Make a program take a lease whenever anybody calls it by its name", add_shim},
    {"slurm", "Set up", "Let jobs of Slurm share cards by their memory", add_slurm},
    {"completion", "Set up", "Print a script that makes a shell complete verbs, flags and leases", add_completion},
};

constexpr std::string_view kNotYet[] = {
    "adapter",
};

}  // namespace

std::span<const Verb> verbs() { return kVerbs; }
std::span<const std::string_view> verbs_not_yet() { return kNotYet; }

}  // namespace sublet::cli
