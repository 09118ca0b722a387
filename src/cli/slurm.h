// SPDX-License-Identifier: Apache-2.0
// The parts of `sublet slurm`, which is beside a Slurm cluster. One thread.
#pragma once

#include "cli/verb.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::cli {

// The lines of gres.conf for this node.
struct GresFlags {
  std::string factor = "1";                   // declared memory by the memory of a card
  std::string node;                           // "": this machine's name
  std::string device_file = "/dev/nvidia%d";  // "%d": the number of the card
  std::string out;                            // file that is written; "": stdout
  bool force = false;                         // also if leases hold more than the factor declares
};
int write_gres(const Common& common, const GresFlags& flags);
// The text, of a reply of /v1/devices. `card_file`: one file for each card, in their order.
std::string gres_text(const nlohmann::json& devices, const std::string& node, double factor,
                      const std::vector<std::string>& card_files);
// The shards that a card declares: whole GiB.
std::int64_t shards_of(Bytes capacity, double factor);

// A task's lease: asks for it, waits, and talks to the plugin on stdin and stdout.
struct JobLeaseFlags {
  std::string job, uid, node;
  std::string scontrol = "scontrol";
  std::string vram;  // as the plugin's option; "": by the shards of the job
  std::string tier = "standard", pausable = "auto";
  std::string accounts;             // as tenant_of_account() reads it
  std::optional<Duration> timeout;  // longest time in which daemon or controller does not answer
};
int take_job_lease(const Common& common, const JobLeaseFlags& flags);

struct AgentFlags {
  std::optional<Duration> every;  // time between two rounds
  std::string scontrol = "scontrol";
  std::string accounts;  // as tenant_of_account() reads it
  bool once = false;     // one round
};
int run_agent(const Common& common, const AgentFlags& flags);

// The job to which a control group belongs: the last part of the path that is "job_NUMBER". Unset: none.
std::optional<std::uint64_t> job_of_group(std::string_view path);
// The path up to that part. "": none.
std::string group_of_job(std::string_view path, std::uint64_t job);
// The size that the plugin's option means. Unset: no size.
std::optional<Bytes> parse_vram(const std::string& text);

// The tenant of an account of Slurm. `accounts`: "lab:vision,prod:ml"; the tenant of another account has its name.
// Unset: that is no such list.
std::optional<std::string> tenant_of_account(std::string_view accounts, std::string_view account);

// The part of a job on one node, as Slurm's controller tells it.
struct NodeShare {
  std::int64_t shards = 0;
  std::vector<int> cards;  // numbers of the cards that the shards are on
};
// `text`: the output of `scontrol show job -d -o`. Unset: the job is not on this node. A list of nodes is a name, or
// has been expanded by `expand`.
// A user chose the job's name and paths, which stand in the same text. Two shares on the node are none, too.
using Expand = std::function<std::vector<std::string>(const std::string& list)>;
std::optional<NodeShare> share_of(std::string_view text, const std::string& node, const Expand& expand);
// The line of this job among those of its array; "": there is none, or its user has written another.
std::string line_of_job(std::string_view text, std::uint64_t job);
// The name of this job alone: "23", or "20_3" for a task of an array, whose number may mean the whole array.
std::string address_of_job(std::string_view line, std::uint64_t job);
// A field of the job that stands there twice, because its user has written it into a name or path; "": none does.
std::string word_of_user(std::string_view text);
NodeShare parse_gres(std::string_view gres);  // "gpu:1(IDX:0),shard:4(IDX:0-1,3)"

// A job on this node, as the agent knows it.
struct JobState {
  std::uint64_t job = 0;
  Duration lost{};      // time in which its program was parked, or waited for memory
  std::string comment;  // "paused for lease-9, back about 14:05"; "" while it runs
  std::string tenant;
};
// The jobs of a reply of /v1/leases. `clock`: text of a time for a comment.
std::vector<JobState> jobs_of(const nlohmann::json& leases, Time now, const std::function<std::string(Time)>& clock);

// The part of the comment that belongs to Sublet.
struct AdminComment {
  std::string others;              // the text of others, before ours
  std::int64_t given_minutes = 0;  // minutes given back so far
  std::string text;                // our text, without the minutes
};
AdminComment parse_comment(std::string_view comment);
std::string to_text(const AdminComment& comment);
// The minutes of a time limit as scontrol shows it: "1-02:30:00". Unset: unlimited, or not known.
std::optional<std::int64_t> minutes_of_limit(std::string_view limit);
// The minutes that a job should have got back so far.
std::int64_t minutes_due(Duration lost, Duration ahead);

}  // namespace sublet::cli
