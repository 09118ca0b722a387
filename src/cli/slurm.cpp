// SPDX-License-Identifier: Apache-2.0
#include "cli/slurm.h"

#include <memory>

namespace sublet::cli {
namespace {

void add_gres(const Command& verb, GresFlags& flags) {
  verb.option("--factor", flags.factor, "Declared memory by the memory of the cards: 2 declares twice of it")
      .type("NUMBER")
      .show_default();
  verb.option("--node", flags.node, "Name of this node in slurm.conf (default: this machine's name)").type("NAME");
  verb.option("--device-file", flags.device_file, "Device file of a card; %d is its number")
      .type("PATH")
      .show_default();
  verb.option("--out", flags.out, "Write this file, such as /etc/slurm/gres.conf")
      .type("FILE")
      .offers(Offer::Of::files);
  verb.flag("--force", flags.force, "Although jobs hold more memory than the factor declares");
}

void add_accounts(const Command& verb, std::string& accounts) {
  verb.option("--accounts", accounts, "Tenants of accounts, such as lab:vision,prod:ml; others have the account's name")
      .type("LIST");
}

void add_agent(const Command& verb, AgentFlags& flags) {
  add_accounts(verb, flags.accounts);
  verb.duration("--every", flags.every, "Time between two rounds (default: 30s)");
  verb.option("--scontrol", flags.scontrol, "Slurm's scontrol").type("PATH").show_default();
  verb.flag("--once", flags.once, "Do one round");
}

// For the plugin.
void add_lease(const Command& verb, JobLeaseFlags& flags) {
  verb.option("--job", flags.job, "Number of the job").required().type("NUMBER");
  verb.option("--uid", flags.uid, "User of the job").required().type("NUMBER");
  verb.option("--node", flags.node, "Name of this node in slurm.conf").required().type("NAME");
  verb.option("--scontrol", flags.scontrol, "Slurm's scontrol").type("PATH").show_default();
  verb.option("--vram", flags.vram, "Memory on the card; without it the shards of the job count").type("SIZE");
  add_accounts(verb, flags.accounts);
  verb.option("--tier", flags.tier, "Tier of the lease").type("TIER").show_default();
  verb.option("--pausable", flags.pausable, "How the job may be paused").type("HOW").show_default();
  verb.duration("--timeout", flags.timeout, "Longest time without an answer of daemon and controller (default: 60s)");
}

}  // namespace

Action add_slurm(Command command, Common& common) {
  const auto gres_flags = std::make_shared<GresFlags>();
  const auto agent_flags = std::make_shared<AgentFlags>();
  const auto lease_flags = std::make_shared<JobLeaseFlags>();
  const Command gres = command.verb("gres", "Print gres.conf for the cards of this node, one shard for each GiB");
  const Command agent = command.verb("agent", "Give paused time back to jobs, and tell in their comments what goes on");
  const Command lease = command.verb("lease", "Take the lease of a task; for the plugin, which talks on stdin");
  add_gres(gres, *gres_flags);
  add_agent(agent, *agent_flags);
  add_lease(lease, *lease_flags);
  for (const Command& sub : {gres, agent, lease}) add_common(sub, common);
  command.footer(
      "Slurm places jobs by shards of one GiB, and Sublet decides which job is on the\n"
      "card. The agent and the plugin run as root, or as a user of api.agents.");
  return [&common, gres_flags, agent_flags, lease_flags, gres, agent, lease] {
    if (gres.parsed()) return write_gres(common, *gres_flags);
    if (agent.parsed()) return run_agent(common, *agent_flags);
    if (lease.parsed()) return take_job_lease(common, *lease_flags);
    return usage_error("slurm needs a verb: gres, agent or lease", "for example: sublet slurm gres --factor 2");
  };
}

}  // namespace sublet::cli
