// SPDX-License-Identifier: Apache-2.0
#include "simulate/point_in_time.h"

#include "simulate/devices.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

namespace sublet::simulate {
namespace {

class Scheduler {
 public:
  Scheduler(const std::vector<Job>& jobs, const Setting& setting, const PointInTime& how)
      : jobs_(jobs),
        setting_(setting),
        how_(how),
        capacity_(sum_of(setting.devices)),
        tenants_(setting.tenants, capacity_, setting.devices.size()),
        running_(jobs.size()) {
    for (const Bytes device : setting.devices) free_.push_back((device - setting.rules.headroom).count);
    outcome_.jobs.resize(jobs.size());
    outcome_.capacity = capacity_;
    std::vector<placement::Request> requests;
    for (const Job& job : jobs) {
      requests.push_back({job.devices, job.vram.count});
      (void)waiting_[job.whose()], (void)tenants_.of(job.whose());
    }
    if (!requests.empty() && !setting.devices.empty())
      mix_ = placement::mix_of(requests, std::ranges::max_element(setting.devices)->count);
  }

  Outcome play() {
    for (std::uint64_t round = 0;; ++round) {
      if (round % 512 == 0 && setting_.goes_on && !setting_.goes_on(arrived_)) {
        outcome_.partial = true;
        break;
      }
      const bool more = arrived_ < jobs_.size();
      if (!more && ends_.empty()) {
        if (setting_.until) pass_until(std::max(now_, *setting_.until));
        break;
      }
      const Duration arrives = more ? jobs_[arrived_].arrives : Duration::max();
      const Duration ends = ends_.empty() ? Duration::max() : ends_.top().at;
      const Duration next = std::min(arrives, ends);
      if (setting_.until && next > *setting_.until) {
        pass_until(*setting_.until);
        break;
      }
      pass_until(next);
      while (!ends_.empty() && ends_.top().at <= now_) take_end();
      while (arrived_ < jobs_.size() && jobs_[arrived_].arrives <= now_) take_arrival(arrived_++);
      schedule();
    }
    return finish();
  }

 private:
  struct Run {
    std::vector<std::size_t> devices;  // empty: it does not run
    Duration since{}, got{};           // since when it runs; what it had before
    Duration stopped{};                // when it was ended
    std::uint64_t stamp = 0;
  };
  struct End {
    Duration at{};
    std::size_t job = 0;
    std::uint64_t stamp = 0;
    bool operator>(const End& other) const { return std::tie(at, job) > std::tie(other.at, other.job); }
  };
  // More urgent first, then in the order of arrival.
  using Place = std::tuple<int, int, std::size_t>;
  using Queue = std::set<Place>;

  using Size = std::pair<int, std::int64_t>;  // number of devices, bytes on each

  static std::int64_t bytes_of(const Job& job) { return job.devices * job.vram.count; }
  static Size size_of(const Job& job) { return {job.devices, job.vram.count}; }
  Place place_of(std::size_t at) const { return {-static_cast<int>(jobs_[at].tier), -jobs_[at].priority, at}; }

  Bytes fragmented() const {
    double sum = 0;
    for (std::size_t i = 0; i < free_.size(); ++i)
      sum += placement::fragmented({.free = {free_[i]}, .whole = setting_.devices[i].count}, mix_);
    return {std::llround(sum)};
  }

  void pass_until(Duration at) {
    while (samples_.ends() <= at) sample(samples_.ends());
    outcome_.used += held_until(at);
    waited_ += waits_until(at);
    now_ = at;
  }

  double held_until(Duration at) const {
    return static_cast<double>(held_.count) * static_cast<double>((at - now_).count());
  }
  double waits_until(Duration at) const {
    return static_cast<double>(waits_) * static_cast<double>((at - now_).count());
  }

  void sample(Duration at) {
    tenants_.entitle(at - samples_.begun());
    samples_.add(at,
                 {(outcome_.used + held_until(at)) / 1e9, (waited_ + waits_until(at)) / 1e9,
                  tenants_.held(at, most_drawn_tenants)},
                 fragmented());
  }

  void take_arrival(std::size_t at) {
    const Job& job = jobs_[at];
    ++outcome_.events;
    if (job.devices == 0) {
      outcome_.jobs[at] = {Ran::How::done, job.arrives, job.arrives + job.runs};
      return;
    }
    std::size_t able = 0;
    for (const Bytes device : setting_.devices) able += device - setting_.rules.headroom >= job.vram;
    if (able < static_cast<std::size_t>(job.devices)) {
      outcome_.jobs[at].how = Ran::How::refused;
      return;
    }
    TenantSums::Sum& tenant = tenants_.of(job.whose());
    if (tenants_.within(job.whose(), bytes_of(job))) ++tenant.asked, guaranteed_.insert(at);
    tenant.wants += bytes_of(job);
    waiting_[job.whose()].insert(place_of(at));
    ++waits_;
  }

  void take_end() {
    const End end = ends_.top();
    ends_.pop();
    if (running_[end.job].stamp != end.stamp) return;
    ++outcome_.events;
    leave(end.job);
    Ran& ran = outcome_.jobs[end.job];
    ran.how = Ran::How::done, ran.ended = now_, ran.got = jobs_[end.job].runs;
    tenants_.of(jobs_[end.job].whose()).wants -= bytes_of(jobs_[end.job]);
  }

  // Its memory is free again.
  void leave(std::size_t at) {
    Run& run = running_[at];
    for (const std::size_t device : run.devices) free_[device] += jobs_[at].vram.count;
    run.devices.clear();
    ++run.stamp;
    held_ -= {bytes_of(jobs_[at])};
    TenantSums::hold(tenants_.of(jobs_[at].whose()), -bytes_of(jobs_[at]), now_);
    active_.erase(at);
  }

  // It loses what it did since its last checkpoint, and waits again.
  void evict(std::size_t at) {
    Run& run = running_[at];
    const Duration ran = std::max(now_ - run.since, Duration());
    if (how_.checkpoint > Duration()) run.got += ran / how_.checkpoint * how_.checkpoint;
    leave(at);
    run.stopped = now_;
    ++outcome_.jobs[at].pauses, ++outcome_.pauses;
    waiting_[jobs_[at].whose()].insert(place_of(at));
    ++waits_;
  }

  // The fullest devices that are enough; none: they are too few.
  std::vector<std::size_t> devices_for(const Job& job, const std::vector<std::int64_t>& free) const {
    std::vector<std::size_t> able;
    for (std::size_t i = 0; i < free.size(); ++i)
      if (free[i] >= job.vram.count) able.push_back(i);
    const auto count = static_cast<std::size_t>(job.devices);
    if (able.size() < count) return {};
    std::ranges::stable_sort(able, {}, [&free](std::size_t i) { return free[i]; });
    able.resize(count);
    return able;
  }

  // `after`: the time that ended jobs have to leave its devices.
  void start(std::size_t at, std::vector<std::size_t> devices, Duration after = {}) {
    const Job& job = jobs_[at];
    Run& run = running_[at];
    for (const std::size_t device : devices) free_[device] -= job.vram.count;
    run.devices = std::move(devices);
    run.since = now_ + after;
    ends_.push({run.since + job.runs - run.got, at, run.stamp});
    held_ += {bytes_of(job)};
    TenantSums::Sum& tenant = tenants_.of(job.whose());
    TenantSums::hold(tenant, bytes_of(job), now_);
    waiting_[job.whose()].erase(place_of(at));
    --waits_;
    active_.insert(at);
    Ran& ran = outcome_.jobs[at];
    if (ran.pauses > 0) ran.parked += run.since - run.stopped;
    if (ran.started) return;
    ran.started = run.since;
    if (!guaranteed_.contains(at)) return;
    const Duration late = now_ - job.arrives;  // the time to leave is foreseen
    tenant.served += late <= std::chrono::seconds(1);
    tenant.latest = std::max(tenant.latest, late);
  }

  std::map<std::string, double> parts() const {
    std::vector<Wish> wishes;
    for (const auto& [name, sum] : tenants_.all())
      wishes.push_back({sum.guarantee, sum.weight, static_cast<double>(sum.wants)});
    const std::vector<double> parts = divide(static_cast<double>(capacity_.count), wishes);
    std::map<std::string, double> by_name;
    std::size_t i = 0;
    for (const auto& [name, sum] : tenants_.all()) by_name[name] = parts[i++];
    return by_name;
  }

  // The tenant that holds least of its part is next; its first job that fits starts. Memory is taken back only when no
  // job fits, and what is left of it is given away before more is taken.
  void schedule() {
    const std::map<std::string, double> entitled = parts();
    while (start_next(entitled) || reclaim_next(entitled)) {
    }
  }

  std::vector<std::string> order(const std::map<std::string, double>& entitled) {
    std::vector<std::pair<double, std::string>> all;
    for (const auto& [name, queue] : waiting_)
      if (!queue.empty())
        all.emplace_back(static_cast<double>(tenants_.of(name).holds) / std::max(entitled.at(name), 1.0), name);
    std::ranges::sort(all);
    std::vector<std::string> names;
    for (auto& [part, name] : all) names.push_back(std::move(name));
    return names;
  }

  bool start_next(const std::map<std::string, double>& entitled) {
    for (const std::string& name : order(entitled)) {
      std::set<Size> tried;  // sizes that do not fit
      for (const Place& place : waiting_.at(name)) {
        const std::size_t at = std::get<2>(place);
        if (!tried.insert(size_of(jobs_[at])).second) continue;
        std::vector<std::size_t> devices = devices_for(jobs_[at], free_);
        if (devices.empty()) continue;
        start(at, std::move(devices));
        return true;
      }
    }
    return false;
  }

  // The first job that stays within the part of its tenant, and for which this is enough, ends jobs of tenants above
  // theirs, the newest first.
  bool reclaim_next(const std::map<std::string, double>& entitled) {
    for (const std::string& name : order(entitled)) {
      const TenantSums::Sum& tenant = tenants_.of(name);
      std::set<Size> tried;
      for (const Place& place : waiting_.at(name)) {
        const std::size_t at = std::get<2>(place);
        if (!tried.insert(size_of(jobs_[at])).second) continue;
        if (static_cast<double>(tenant.holds + bytes_of(jobs_[at])) > entitled.at(name) * (1 + 1e-9)) continue;
        const std::vector<std::size_t> victims = victims_for(jobs_[at], name, entitled);
        if (victims.empty()) continue;
        for (const std::size_t victim : victims) evict(victim);
        start(at, devices_for(jobs_[at], free_), how_.grace);
        return true;
      }
    }
    return false;
  }

  // The job fits nowhere now. A victim that turns out not to be needed is spared.
  std::vector<std::size_t> victims_for(const Job& job, const std::string& name,
                                       const std::map<std::string, double>& entitled) const {
    std::vector<std::size_t> newest(active_.begin(), active_.end());
    std::ranges::stable_sort(newest, std::greater{}, [this](std::size_t at) { return running_[at].since; });
    std::vector<std::int64_t> free = free_;
    std::map<std::string, std::int64_t> taken;
    std::vector<std::size_t> victims;
    for (const std::size_t at : newest) {
      const std::string& owner = jobs_[at].whose();
      const auto holds = static_cast<double>(tenants_.all().at(owner).holds - taken[owner]);
      if (owner == name || !jobs_[at].pausable || holds <= entitled.at(owner) * (1 + 1e-9)) continue;
      victims.push_back(at);
      taken[owner] += bytes_of(jobs_[at]);
      give(free, at, 1);
      if (!devices_for(job, free).empty()) return needed(job, std::move(victims), std::move(free));
    }
    return {};
  }

  // The oldest are spared first.
  std::vector<std::size_t> needed(const Job& job, std::vector<std::size_t> victims,
                                  std::vector<std::int64_t> free) const {
    std::ranges::stable_sort(victims, {}, [this](std::size_t at) { return running_[at].since; });
    std::erase_if(victims, [&](std::size_t at) {
      give(free, at, -1);
      if (!devices_for(job, free).empty()) return true;
      give(free, at, 1);
      return false;
    });
    return victims;
  }

  void give(std::vector<std::int64_t>& free, std::size_t at, int sign) const {
    for (const std::size_t device : running_[at].devices) free[device] += sign * jobs_[at].vram.count;
  }

  Outcome finish() {
    for (const std::size_t at : active_)
      outcome_.jobs[at].got = running_[at].got + std::max(now_ - running_[at].since, Duration());
    for (std::size_t at = 0; at < jobs_.size(); ++at)
      if (outcome_.jobs[at].how == Ran::How::unfinished && !active_.contains(at))
        outcome_.jobs[at].got = running_[at].got;
    sample(now_);
    outcome_.samples = samples_.take();
    outcome_.tenants = tenants_.all();
    outcome_.lasted = now_;
    if (now_ > Duration()) outcome_.used /= static_cast<double>(now_.count());
    return std::move(outcome_);
  }

  const std::vector<Job>& jobs_;
  const Setting& setting_;
  const PointInTime how_;
  const Bytes capacity_;
  TenantSums tenants_;
  std::vector<Run> running_;
  std::vector<std::int64_t> free_;        // bytes of each device
  std::map<std::string, Queue> waiting_;  // by tenant
  std::set<std::size_t> active_;
  std::set<std::size_t> guaranteed_;  // arrived within the guarantee
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;
  std::size_t arrived_ = 0, waits_ = 0;
  Bytes held_;
  placement::Mix mix_;
  Duration now_{};
  Samples samples_;
  double waited_ = 0;  // jobs × nanoseconds without memory
  Outcome outcome_;
};

}  // namespace

Outcome run_point_in_time(const std::vector<Job>& jobs, const Setting& setting, const PointInTime& how) {
  return Scheduler(jobs, setting, how).play();
}

}  // namespace sublet::simulate
