// SPDX-License-Identifier: Apache-2.0
// The helper of the plugin: takes the lease of a task. The plugin writes lines on stdin, ended by "go", and reads lines
// on stdout: "say TEXT", "env NAME=VALUE", then "ok" or "fail TEXT". Empty lines tell that the helper lives. Stdin ends
// with the task.
#include "base/clock.h"
#include "base/number.h"
#include "cli/fetch.h"
#include "cli/scontrol.h"
#include "cli/slurm.h"
#include "cli/wait_line.h"
#include "client/lease.h"
#include "keep/environment.h"
#include "proc/cgroup.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <thread>

namespace sublet::cli {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

using Told = std::map<std::string, std::string, std::less<>>;

std::mutex telling;  // of stdout: one line at a time

void tell(std::string_view kind, std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  const std::scoped_lock lock(telling);
  (void)write_all(STDOUT_FILENO, fmt::format("{}{}{}\n", kind, text.empty() ? "" : " ", text));
}

int refuse(std::string text, const std::string& hint = {}) {
  if (!hint.empty()) text += fmt::format("; {}", hint);
  tell("fail", std::move(text));
  return kFailed;
}

int refuse(const client::Failure& failure) { return refuse(failure.error.detail, failure.error.hint); }

// Writes an empty line every two seconds, in a thread of its own. A task whose helper is silent gives up.
class Beats {
 public:
  Beats() : thread_([this](const std::stop_token& stop) { run(stop); }) {}

 private:
  std::condition_variable_any woken_;
  std::jthread thread_;

  void run(const std::stop_token& stop) {
    std::unique_lock lock(telling);
    while (!woken_.wait_for(lock, stop, 2s, [] { return false; }) && !stop.stop_requested())
      (void)::send(STDOUT_FILENO, "\n", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
};

// The lines of the plugin. Nothing if the task ended before.
std::optional<Told> hear() {
  Told told;
  std::string line;
  char c = 0;
  while (::read(STDIN_FILENO, &c, 1) == 1) {
    if (c != '\n') {
      line += c;
      continue;
    }
    if (line == "go") return told;
    const auto space = line.find(' ');
    if (space != std::string::npos) told[line.substr(0, space)] = line.substr(space + 1);
    line.clear();
  }
  return std::nullopt;
}

std::string value_of(const Told& told, std::string_view name) {
  const auto found = told.find(name);
  return found == told.end() ? std::string() : found->second;
}

std::optional<std::int64_t> number_of(std::string_view text) {
  const auto number = parse_number<std::int64_t>(text);
  return number && *number >= 0 ? number : std::nullopt;
}

// A word for a consumer, a tag or a tenant. "": nothing is left.
std::string plain(std::string text) {
  std::erase_if(text, [](unsigned char c) { return std::isalnum(c) == 0 && c != '.' && c != '_' && c != '-'; });
  return text.substr(0, 64);
}

// "gpu0,gpu2"
std::string devices_of(const NodeShare& share) {
  std::string devices;
  for (const int card : share.cards) devices += fmt::format("{}gpu{}", devices.empty() ? "" : ",", card);
  return devices;
}

// The directory of the group of the whole job. "": the tasks of Slurm have no groups here.
std::string group_of(std::int32_t pid, std::uint64_t job) {
  const auto root = proc::ProcRoot::open();
  if (!root) return {};
  const auto groups = proc::cgroups_of(*root, pid);
  const auto mounted = proc::find_hierarchies(*root);
  if (!groups || !mounted) return {};
  // Groups of the same name in other hierarchies may be of others, or empty.
  const auto directory = [job](const proc::CgroupMount* mount, const std::string& path) {
    const std::string group = group_of_job(path, job);
    const std::string found = mount == nullptr || group.empty() ? std::string() : proc::directory_of(*mount, group);
    return found.empty() ? group : found;
  };
  if (std::string group = directory(mounted->v2(), groups->v2); !group.empty()) return group;
  for (const auto& [controller, path] : groups->v1)
    if (std::string group = directory(mounted->v1(controller), path); !group.empty()) return group;
  return {};
}

// Leaves the group of the job. Slurm kills only the group of a step, and the lease lasts as long as a process is in the
// job's group.
void leave_group_of(std::uint64_t job) {
  const auto root = proc::ProcRoot::open();
  if (!root) return;
  const auto groups = proc::cgroups_of(*root, ::getpid());
  const auto mounted = proc::find_hierarchies(*root);
  if (!groups || !mounted) return;
  const auto leave = [job](const proc::CgroupMount* mount, const std::string& path) {
    if (mount == nullptr || group_of_job(path, job).empty()) return;
    const Fd processes(::open((mount->path + "/cgroup.procs").c_str(), O_WRONLY | O_CLOEXEC));
    if (processes) (void)write_all(processes.get(), "0");
  };
  leave(mounted->v2(), groups->v2);
  for (const auto& [controller, path] : groups->v1) leave(mounted->v1(controller), path);
}

std::int32_t parent_of(std::int32_t pid) {
  const auto root = proc::ProcRoot::open();
  const auto process = root ? root->read(pid) : Result<proc::ProcessInfo>(root.error());
  return process ? process->ppid : 0;
}

class JobLease {
 public:
  JobLease(const Common& common, const JobLeaseFlags& flags, client::Client& client)
      : common_(common), flags_(flags), client_(client) {
    tag_ = fmt::format("slurm-{}-{}", flags_.job, node());
  }

  // While the task gets ready, unless another task of the job has a lease: the controller needs longer than all else.
  void ask_controller_early() {
    const auto known =
        client_.call({"GET", "/v1/leases/" + client::encode(tag_), {}, {}, {}}, std::min<Duration>(1s, left()));
    const json lease = known ? json::parse(known->text, nullptr, false) : json();
    if (lease.is_object() && text_at(lease, "state") != "ended") return;
    early_ = std::async(std::launch::async, [this] { return ask_controller(); });
  }

  int run(Told told) {
    told_ = std::move(told);
    if (const Status named = name_owner(); !named) return refuse(named.error().detail, named.error().hint);
    // The task is gone once the plugin's socket is closed.
    client_.set_interrupt({STDIN_FILENO, [] { return false; }});
    const auto status = meet_daemon();
    if (!status) return refuse(status.error());
    status_ = client::parse(*status).value();
    learn_devices(status_, look_);
    client::Answer<client::Reply> answer = client::Failure{};
    if (auto other = of_another_task()) {
      answer = std::move(*other);
    } else {
      json body;
      if (const Status known = learn_share(); !known) return refuse(known.error().detail, known.error().hint);
      if (const Status made = make_request(body); !made) return refuse(made.error().detail, made.error().hint);
      answer = ask(body);
    }
    if (!answer) return refuse(answer.error());
    for (;;) {
      const auto lease = client::parse_lease(answer->text);
      if (!lease) return refuse(lease.error());
      if (lease->state == "active") return grant(*lease);
      if (lease->ended())
        return refuse(fmt::format("{} ended before it was granted: {}", lease->id, lease->end_reason),
                      fmt::format("see: sublet why {}", lease->id));
      show(*lease);
      const std::string path = fmt::format("/v1/leases/{}", client::encode(lease->id));
      if (lease->state == "offered") (void)client_.call({"POST", path + "/claim", "{}", {}, {}});
      answer = client_.insist(
          {"GET",
           fmt::format("{}?wait={}s&since={}", path, lease->state == "offered" ? 1 : 5, client::encode(lease->state)),
           {},
           {},
           {}},
          patience(), 40s);
      if (!answer) return refuse(answer.error());
    }
  }

 private:
  const Common& common_;
  const JobLeaseFlags& flags_;
  client::Client& client_;
  Told told_;
  std::int64_t deadline_ns_ = monotonic_ns() + timeout().count();  // until all have answered
  std::future<Result<std::string>> early_;
  json status_;
  Look look_;
  std::string shown_;
  bool waited_ = false;
  std::uint64_t job_ = 0;
  std::int64_t uid_ = 0;
  std::string group_, tag_;  // "": the tasks of Slurm have no groups here
  std::int64_t step_ = 0;    // without a group: slurmstepd
  NodeShare share_;
  std::string tenant_;  // by the account of the job; "": Slurm keeps no accounts

  std::string node() const { return plain(flags_.node); }
  client::Patience patience() const { return patience(timeout()); }
  client::Patience patience(Duration limit) const { return {.say = {}, .limit = limit, .refused_limit = limit}; }
  Duration timeout() const { return flags_.timeout.value_or(60s); }
  Duration left() const { return std::max<Duration>(Duration(deadline_ns_ - monotonic_ns()), 100ms); }
  Scontrol scontrol() const { return {flags_.scontrol, left(), STDIN_FILENO}; }
  Result<std::string> ask_controller() const {
    return show_job_in_detail(scontrol(), static_cast<std::uint64_t>(number_of(flags_.job).value_or(0)));
  }

  client::Answer<client::Reply> meet_daemon() {
    auto status = client_.call({"GET", "/v1/status", {}, {}, {}}, left());
    if (status || !status.error().passing()) return status;
    tell("say", fmt::format("Sublet's daemon on {} does not answer; the task waits for it up to {}", node(),
                            format_duration(timeout())));
    return client_.insist({"GET", "/v1/status", {}, {}, {}}, patience(left()), left());
  }

  // The share and the account of the job, by Slurm's controller: the environment of a task belongs to its user.
  Status learn_share() {
    auto shown = early_.valid() ? early_.get() : ask_controller();
    for (bool told = false; !shown && monotonic_ns() < deadline_ns_; told = true) {
      if (!told) tell("say", fmt::format("Slurm's controller does not answer: {}", shown.error().detail));
      if (!client_.pause(std::min<Duration>(1s, left()))) return shown.error();
      shown = ask_controller();
    }
    if (!shown) return shown.error();
    const std::string line = line_of_job(*shown, job_);
    const auto share =
        share_of(line, node(), [this](const std::string& list) { return names_of_nodes(scontrol(), list); });
    if (!share || !word_of_user(line).empty())
      return bad_request(fmt::format("Slurm names no single share of job {} on node {}", job_, node()),
                         "a name or path of the job may have words of scontrol, such as Account= or GRES=: change it");
    share_ = *share;
    const auto fields = parse_job(line);
    const auto account = fields.find("Account");
    if (account == fields.end() || account->second == "(null)") return {};
    const auto tenant = tenant_of_account(flags_.accounts, plain(account->second));
    if (!tenant)
      return bad_request(fmt::format("'{}' is no list of accounts and tenants", printable(flags_.accounts)),
                         "the admin writes accounts=ACCOUNT:TENANT,... into plugstack.conf");
    tenant_ = *tenant;
    return {};
  }

  Status name_owner() {
    const auto job = number_of(flags_.job), uid = number_of(flags_.uid), pid = number_of(value_of(told_, "pid"));
    if (!job || !uid || !pid) return bad_request("the plugin named no job, user or process");
    job_ = static_cast<std::uint64_t>(*job), uid_ = *uid;
    group_ = group_of(static_cast<std::int32_t>(*pid), job_);
    if (!group_.empty()) return {};
    step_ = parent_of(static_cast<std::int32_t>(*pid));  // the tasks of a step share slurmstepd, their parent
    tag_ += fmt::format("-{}", step_);
    return {};
  }

  // A lease with this job's tag lives, or several do.
  bool is_tag_taken() {
    const auto reply = client_.call({"GET", "/v1/leases/" + client::encode(tag_), {}, {}, {}});
    if (!reply)
      return reply.error().kind == client::FailureKind::answered && reply.error().error.code != Code::NotFound;
    const json lease = json::parse(reply->text, nullptr, false);
    return lease.is_object() && text_at(lease, "state") != "ended";
  }

  // The lease that another task of the job has got. Unset: there is none.
  std::optional<client::Reply> of_another_task() {
    auto reply = client_.call({"GET", "/v1/leases/" + client::encode(tag_), {}, {}, {}});
    const json lease = reply ? json::parse(reply->text, nullptr, false) : json();
    if (!lease.is_object() || text_at(lease, "state") == "ended" || number_at(lease, "uid") != uid_)
      return std::nullopt;
    const json& owner = member(lease, "owner");
    const bool same = group_.empty() ? number_at(owner, "pid") == step_ : text_at(owner, "cgroup").ends_with(group_);
    return same ? std::optional(std::move(*reply)) : std::nullopt;
  }

  // Fills the body of the request.
  Status make_request(json& body) const {
    const std::string devices = devices_of(share_);
    const auto count = std::max<std::int64_t>(std::ssize(share_.cards), 1);
    std::optional<Bytes> vram = parse_vram(flags_.vram);
    if (!flags_.vram.empty() && !vram)
      return bad_request(fmt::format("--vram: '{}' is no size", printable(flags_.vram)), "for example --vram=6GiB");
    if (!vram && share_.shards == 0) return bad_request("the job has neither --vram nor shards");
    if (!vram) vram = ((share_.shards + count - 1) / count) * GiB;
    if (count * *vram > share_.shards * GiB)  // Slurm has not counted it
      return bad_request(fmt::format("the task asks for {}, and Slurm gave the job {} shards of 1 GiB on this node",
                                     format_size(count * *vram), share_.shards),
                         "give the size to sbatch or salloc, and ask the admin whether job_submit.lua is in use");
    const std::string name = plain(value_of(told_, "SLURM_JOB_NAME"));
    body = {{"vram_bytes", vram->count},
            {"devices", count},
            {"tier", flags_.tier},
            {"pausable", flags_.pausable},
            {"consumer", name.empty() ? "slurm" : name},
            {"tag", tag_},
            {"on_behalf", {{"user", uid_}}}};
    if (!devices.empty()) body["device"] = devices;
    if (!tenant_.empty()) body["on_behalf"]["tenant"] = tenant_;
    body["owner"] = group_.empty() ? json{{"pid", step_}} : json{{"cgroup", group_}};
    return {};
  }

  client::Answer<client::Reply> ask(json body) {
    const std::int64_t until = monotonic_ns() + timeout().count();
    for (std::string said;;) {
      auto answer =
          client_.insist({"POST", "/v1/leases", client::to_text(body), client::new_idempotency_key(), {}}, patience());
      const bool taken =
          !answer && answer.error().kind == client::FailureKind::answered && answer.error().error.code == Code::InUse;
      if (!taken || monotonic_ns() >= until) return answer;
      if (auto other = of_another_task()) return std::move(*other);
      if (body.contains("tag") && is_tag_taken()) {  // the user gave this name to a lease of another kind
        body.erase("tag");
        continue;
      }
      // An earlier lease of the group may not be settled yet.
      if (said != answer.error().error.detail) tell("say", said = answer.error().error.detail);
      if (!client_.pause(1s)) return answer;
    }
  }

  void show(const client::Lease& lease) {
    waited_ = true;
    if (lease.state == "offered") return;
    const bool waits = lease.state == "queued";
    const std::string key = waits ? wait_text(lease, look_, false) : lease.state;
    if (key == std::exchange(shown_, key)) return;
    tell("say", waits ? wait_text(lease, look_)
                      : fmt::format("{} is {}; the task starts once it runs", lease.id, lease.state));
  }

  int grant(const client::Lease& lease) {
    if (waited_) tell("say", fmt::format("{}: {} on {}", lease.id, format_size(lease.vram), names(lease)));
    static const char* const none[] = {nullptr};
    for (const std::string& entry : keep::program_environment(none, client_.endpoint(), lease, status_))
      if (entry.starts_with("CUDA_") || entry.starts_with("SUBLET_")) tell("env", entry);
    tell("ok", "");
    return kOk;
  }

  std::string names(const client::Lease& lease) const {
    std::string all;
    for (const std::string& device : lease.devices) all += (all.empty() ? "" : ", ") + device_name(device, look_);
    return all;
  }
};

}  // namespace

int take_job_lease(const Common& common, const JobLeaseFlags& flags) {
  leave_group_of(static_cast<std::uint64_t>(number_of(flags.job).value_or(0)));
  const Beats beats;
  Common here = common;  // where several nodes are on one machine, each has its own daemon
  if (const auto at = here.host.find("%n"); at != std::string::npos) here.host.replace(at, 2, plain(flags.node));
  auto client = connect(here);
  if (!client) return refuse(client.error().detail, client.error().hint);
  JobLease lease(common, flags, *client);
  lease.ask_controller_early();
  auto told = hear();
  return told ? lease.run(std::move(*told)) : kFailed;
}

}  // namespace sublet::cli
