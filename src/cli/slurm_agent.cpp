// SPDX-License-Identifier: Apache-2.0
// The agent: gives lost time back to the time limits of jobs, and tells in their comments why they stand still. The
// comment also holds the minutes given so far, so that a restarted agent and the agents of other nodes give no time
// twice. A limit is set to its new value and not raised by minutes: two agents at the same time may do the same.
#include "base/clock.h"
#include "cli/fetch.h"
#include "cli/scontrol.h"
#include "cli/slurm.h"

#include <fmt/format.h>

#include <ctime>
#include <map>
#include <set>

namespace sublet::cli {
namespace {

using namespace std::chrono_literals;

constexpr Duration longest_question = 20s;  // of one call of scontrol

std::string hours_and_minutes(Time at) {
  const std::time_t seconds = at.ns / 1'000'000'000;
  std::tm local{};
  char text[8] = "";
  ::localtime_r(&seconds, &local);
  std::strftime(text, sizeof text, "%H:%M", &local);
  return text;
}

class Agent {
 public:
  Agent(const Common& common, const AgentFlags& flags) : common_(common), flags_(flags) {}

  // False: the daemon or the controller did not answer, and the next round tries again.
  bool round(client::Client& client) {
    const auto leases = ask_pages(client, "/v1/leases", "leases");
    if (!leases) {
      complain(leases.error().error.detail);
      return false;
    }
    bool all = true;
    std::map<std::uint64_t, std::string> seen;
    for (const JobState& job : jobs_of(leases->body, wall_time(), hours_and_minutes)) {
      seen[job.job];
      all &= tell(job, seen);
    }
    told_ = std::move(seen);
    std::erase_if(shared_, [this](std::uint64_t job) { return !told_.contains(job); });
    first_round_ = first_round_ && !all;
    if (all) complained_.clear();
    return all;
  }

 private:
  const Common& common_;
  const AgentFlags& flags_;
  std::map<std::uint64_t, std::string> told_;  // the last comment of each job with a lease
  std::set<std::uint64_t> shared_;             // jobs on several nodes: another agent may have put a lower limit
  std::string complained_;
  bool first_round_ = true;

  Duration every() const { return flags_.every.value_or(30s); }
  Scontrol scontrol() const { return {flags_.scontrol, longest_question}; }

  void complain(const std::string& problem) {
    if (problem != complained_) print_error(problem);
    complained_ = problem;
  }

  bool tell(const JobState& job, std::map<std::uint64_t, std::string>& seen) {
    // A job that stands still must not reach its limit before the next round.
    const std::int64_t due = minutes_due(job.lost, job.comment.empty() ? 0s : 2 * every());
    AdminComment next{.others = {}, .given_minutes = due, .text = job.comment.empty() ? "runs" : job.comment};
    const std::string mark = fmt::format("{} {}", due, next.text);
    const auto before = told_.find(job.job);
    const bool is_new = before == told_.end(), tells = due > 0 || !job.comment.empty();
    // An earlier agent may have left a comment: the first round looks at all jobs.
    if (is_new ? !tells && !first_round_ : before->second == mark && !shared_.contains(job.job)) {
      seen[job.job] = mark;
      return true;
    }
    const auto shown = show_job(scontrol(), job.job);
    if (!shown) {
      complain(shown.error().detail);
      return false;
    }
    const auto value = [&](const char* name) {
      const auto found = shown->fields.find(name);
      return found == shown->fields.end() ? std::string() : found->second;
    };
    const AdminComment now = parse_comment(value("AdminComment"));
    const bool limited = value("TimeLimit") != "UNLIMITED" && value("JobState") == "RUNNING";
    if (!tells && now.text.empty()) {
      seen[job.job] = mark;
      return true;
    }
    if (!value("NumNodes").empty() && value("NumNodes") != "1") shared_.insert(job.job);
    next.others = now.others;
    next.given_minutes = std::max(now.given_minutes, limited ? due : std::int64_t{0});
    const bool told = !is_new && before->second == mark;  // of a job on several nodes
    if (told && next.given_minutes == now.given_minutes) {
      seen[job.job] = mark;
      return true;
    }
    std::vector<std::string> words{"update", "JobId=" + shown->address};
    if (const std::int64_t more = next.given_minutes - now.given_minutes; more > 0) {
      const auto limit = minutes_of_limit(value("TimeLimit"));
      words.push_back(limit ? fmt::format("TimeLimit={}", *limit + more) : fmt::format("TimeLimit=+{}", more));
    }
    words.push_back(fmt::format("AdminComment={}", to_text(next)));
    if (const auto done = run_scontrol(scontrol(), words); !done) {
      complain(done.error().detail);
      return false;
    }
    const std::string account = value("Account");
    const auto tenant = tenant_of_account(flags_.accounts, account);
    if (!account.empty() && account != "(null)" && tenant && *tenant != job.tenant)
      complain(
          fmt::format("job {} has account {}, and its lease is charged to tenant {}", job.job, account, job.tenant));
    seen[job.job] = mark;
    say(common_, fmt::format("job {}: {}", job.job, to_text(next)));
    return true;
  }
};

}  // namespace

int run_agent(const Common& common, const AgentFlags& flags) {
  if (!tenant_of_account(flags.accounts, ""))
    return usage_error(fmt::format("--accounts: '{}' is no list of accounts and tenants", printable(flags.accounts)),
                       "for example --accounts lab:vision,prod:ml");
  auto client = connect(common);
  if (!client) return fail(common, client.error());
  Agent agent(common, flags);
  for (;;) {
    const bool good = agent.round(*client);
    if (flags.once) return good ? kOk : kFailed;
    if (!client->pause(flags.every.value_or(30s))) return kOk;
  }
}

}  // namespace sublet::cli
