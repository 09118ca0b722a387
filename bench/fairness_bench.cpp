// SPDX-License-Identifier: Apache-2.0
// The rotation of tenants that each want a whole device: the core of Sublet, and beside it the formula of fair shares
// over time that cluster schedulers use. The formula runs in cycles of one unit; the core runs by its own clock, with
// programs that move 2 GiB a second. Prints a table; asserts nothing. `--svg FILE` draws who holds the device, with
// cycles of one second.
#include "core/step.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace {

using namespace sublet;
using namespace sublet::core;
using namespace std::chrono_literals;

// A tenant that wants the whole device, and its parent; "": none.
struct Wisher {
  std::string name, parent;
};

struct Scenario {
  const char* name;
  const char* shown;  // in the picture
  std::vector<Wisher> tenants;
};

const std::vector<Scenario> scenarios{
    {"two equal tenants", "two", {{"a", ""}, {"b", ""}}},
    {"three equal tenants", "three", {{"a", ""}, {"b", ""}, {"c", ""}}},
    {"eight equal tenants",
     "eight",
     {{"a", ""}, {"b", ""}, {"c", ""}, {"d", ""}, {"e", ""}, {"f", ""}, {"g", ""}, {"h", ""}}},
    {"two below one parent, and one beside it",
     "two below one, and one beside",
     {{"a", "org"}, {"b", "org"}, {"lab", ""}}},
};

struct Outcome {
  int changes = 0;
  double slice = 0;                         // length of a slice: cycles, or seconds
  std::map<std::string, double> held = {};  // part of the time of each tenant
  struct Holding {
    double from, until;  // cycles, or seconds
    std::string tenant;
  };
  std::vector<Holding> holdings = {};

  void hold(const std::string& tenant, double from, double until) {
    if (!holdings.empty() && holdings.back().tenant == tenant) holdings.back().until = until;
    else holdings.push_back({from, until, tenant});
  }
};

// The formula: a share of 16 units over a level is w' + k (w' - u'), u' being the use in a window of 256 cycles with a
// half-life of 128. A waiting tenant takes all units once its share, and that of each parent, is all of them.
class Formula {
 public:
  Formula(const Scenario& scenario, double k) : scenario_(scenario), k_(k) {}

  Outcome run(int cycles) {
    Outcome outcome;
    int last = 0;
    for (int cycle = 0; cycle < cycles; ++cycle) {
      holders_.push_front(holder_);
      if (holders_.size() > window) holders_.pop_back();
      used_.clear();
      capacity_ = 0;
      double weight = 1;
      for (const std::size_t holder : holders_) {
        add(scenario_.tenants[holder], weight);
        capacity_ += weight;
        weight *= decay;
      }
      outcome.held[scenario_.tenants[holder_].name] += 1.0 / cycles;
      outcome.hold(scenario_.tenants[holder_].name, cycle, cycle + 1);
      for (std::size_t i = 0; i < scenario_.tenants.size(); ++i) {
        if (i == holder_ || !takes_all(scenario_.tenants[i])) continue;
        holder_ = i;
        ++outcome.changes;
        outcome.slice = cycle - last;
        last = cycle;
        break;
      }
    }
    return outcome;
  }

 private:
  static constexpr double units = 16;
  static constexpr double half_life = 128;
  static constexpr std::size_t window = 256;
  inline static const double decay = std::exp2(-1 / half_life);

  void add(const Wisher& wisher, double use) {
    used_[wisher.name] += use;
    if (!wisher.parent.empty()) used_[wisher.parent] += use;
  }
  double used(const std::string& name) const {
    const auto found = used_.find(name);
    return found == used_.end() ? 0 : found->second / capacity_;
  }
  std::string top(const Wisher& wisher) const { return wisher.parent.empty() ? wisher.name : wisher.parent; }

  // The share of one name among its siblings, of this amount.
  double share(const std::vector<std::string>& siblings, const std::string& name, double amount) const {
    double sum = 0, own = 0;
    for (const std::string& sibling : siblings) {
      const double weight = 1.0 / static_cast<double>(siblings.size());
      const double points = std::max(0.0, weight + k_ * (weight - used(sibling)));
      sum += points;
      if (sibling == name) own = points;
    }
    return sum > 0 ? std::floor(amount * own / sum + 0.5) : 0;
  }
  bool takes_all(const Wisher& wisher) const {
    std::vector<std::string> tops, siblings;
    for (const Wisher& other : scenario_.tenants) {
      if (std::ranges::find(tops, top(other)) == tops.end()) tops.push_back(top(other));
      if (!wisher.parent.empty() && other.parent == wisher.parent) siblings.push_back(other.name);
    }
    double amount = share(tops, top(wisher), units);
    if (!wisher.parent.empty()) amount = share(siblings, wisher.name, amount);
    return amount >= units;
  }

  const Scenario& scenario_;
  double k_;
  std::size_t holder_ = 0;
  std::deque<std::size_t> holders_;  // of the last cycles, the newest first
  double capacity_ = 0;
  std::map<std::string, double> used_;
};

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// One device of 24 GiB, and programs that obey all orders.
class Machine {
 public:
  explicit Machine(const Scenario& scenario) {
    rules_.ledger_limit = 1024 * GiB;
    rules_.ledger_user_share = 1;
    step(reading());
    std::vector<Tenant> tree;
    for (const Wisher& wisher : scenario.tenants) {
      if (!wisher.parent.empty() && std::ranges::find(tree, wisher.parent, &Tenant::name) == tree.end())
        tree.emplace_back().name = wisher.parent;
      Tenant& tenant = tree.emplace_back();
      tenant.name = wisher.name;
      tenant.parent = wisher.parent;
    }
    step(SetTenants{tree});
    for (const Wisher& wisher : scenario.tenants) start(wisher.name);
  }

  Outcome run(Duration length) {
    Outcome outcome;
    const Time began = now_, until = now_ + length;
    Time last = now_;
    LeaseId held;
    while (now_ < until) {
      const Time before = now_;
      now_ = now_ + 1s;
      step(reading());
      obey();
      for (const auto& [id, tenant] : tenants_) {
        if (core::find(state_, id)->state != LeaseState::active) continue;
        outcome.held[tenant] += static_cast<double>((now_ - before).count()) / static_cast<double>(length.count());
        outcome.hold(tenant, seconds(before - began), seconds(now_ - began));
        if (id == held) continue;
        ++outcome.changes;
        outcome.slice = static_cast<double>((now_ - last).count()) / 1e9;
        last = now_;
        held = id;
      }
    }
    return outcome;
  }

  // The predicted pause, and the time from the request to the memory.
  std::pair<Duration, Duration> serve_guarantee(Duration later) {
    std::vector<Tenant> tree(1);
    tree.front().name = "lender";
    tree.front().quota.bytes = size;
    step(SetTenants{tree});
    for (const Time until = now_ + later; now_ < until; now_ = now_ + 250ms) step(reading());
    const Time asked = now_;
    start("lender");
    const LeaseId id{state_.leases.last_id};
    Duration predicted{};
    for (const PreemptionPlan& plan : state_.preemption.plans) {
      for (const Victim& victim : plan.victims) predicted += victim.pause.likely;
      for (const LeaseId victim : plan.asked)
        predicted += state_.learned.costs
                         .predict(core::find(state_, victim)->whose(), {"GPU-0"}, PauseMethod::driver,
                                  Move::pause, size)
                         .likely;
    }
    while (core::find(state_, id)->state != LeaseState::active && now_ < asked + 300s) {
      obey();
      now_ = now_ + 20ms;
      step(reading());
    }
    return {predicted, now_ - asked};
  }

 private:
  static constexpr Bytes size = 20 * GiB;
  static constexpr Duration moving = 10s;

  void step(const Fact& fact) {
    const Plan plan = core::step(state_, rules_, fact, now_);
    orders_.insert(orders_.end(), plan.actions.begin(), plan.actions.end());
    for (const Lease& lease : plan.changed)
      if (lease.state == LeaseState::offered) claims_.push_back(lease.id);
  }
  Snapshot reading() {
    Snapshot snapshot{.began = now_, .host = {.available = 2048 * GiB}};
    DeviceReading& reading = snapshot.devices.emplace_back();
    reading.uuid = "GPU-0";
    reading.name = "Card";
    reading.total = 24 * GiB;
    for (const auto& [id, pid] : programs_) {
      if (away_.contains(id)) continue;
      reading.used += size;
      reading.processes.push_back({{pid, 1}, size, id});
    }
    return snapshot;
  }
  void start(const std::string& tenant) {
    Lease lease;
    lease.uid = 1000;
    lease.user = "user";
    lease.tenant = lease.consumer = tenant;
    lease.vram = size;
    lease.owner.kind = OwnerKind::connection;
    step(Submit{lease, true, true});
    const LeaseId id{state_.leases.last_id};
    tenants_[id] = tenant;
    if (core::find(state_, id)->state == LeaseState::active) attach(id);
  }
  void attach(LeaseId id) {
    const std::int32_t pid = 100 + 2 * static_cast<std::int32_t>(id.number);
    programs_[id] = pid;
    step(Attach{id, 0, {OwnerKind::process, {pid, 1}, {pid - 1, 1}, "/run/exit"}, true, {}});
    now_ = now_ + 20ms;
    step(reading());
  }
  void obey() {
    while (!orders_.empty() || !claims_.empty()) {
      if (!claims_.empty()) {
        const LeaseId id = claims_.back();
        claims_.pop_back();
        step(Claim{id});
        attach(id);
        continue;
      }
      const Action action = orders_.front();
      orders_.pop_front();
      if (const auto* park = std::get_if<Park>(&action)) {
        now_ = now_ + moving;
        away_[park->lease] = true;
        step(AttemptEvent{park->lease, Parked{true, {}, size}});
        for (int i = 0; i < 2; ++i) now_ = now_ + 20ms, step(reading());
      } else if (const auto* unpark = std::get_if<Unpark>(&action)) {
        now_ = now_ + moving;
        away_.erase(unpark->lease);
        step(AttemptEvent{unpark->lease, Unparked{Unparked::How::runs, {}, HostMemory{.available = 2048 * GiB}}});
        now_ = now_ + 20ms;
        step(reading());
      }
    }
  }

  State state_;
  Rules rules_;
  Time now_{1'800'000'000'000'000'000};
  std::deque<Action> orders_;
  std::vector<LeaseId> claims_;
  std::map<LeaseId, std::string> tenants_;
  std::map<LeaseId, std::int32_t> programs_;
  std::map<LeaseId, bool> away_;
};

// A lease within the quota of its tenant asks for memory that another tenant borrowed, `tries` times. Prints the
// longest time until it has the memory beyond the predicted pause.
void show_guarantees(int tries) {
  Duration most{}, predicted{}, took{};
  for (int i = 0; i < tries; ++i) {
    Machine machine(Scenario{"", "", {{"borrower", ""}}});
    const auto [expected, had] = machine.serve_guarantee(5s + i * 370ms);
    most = std::max(most, had - expected);
    predicted += expected / tries, took += had / tries;
  }
  fmt::print("\na guarantee, {} times: pause predicted {:.2f} s, served in {:.2f} s, at most {:.2f} s beyond\n", tries,
             seconds(predicted), seconds(took), seconds(most));
}

void show(const char* scenario, const char* by, const Outcome& outcome, const char* unit) {
  double least = 1, most = 0;
  std::string held;
  for (const auto& [tenant, part] : outcome.held) {
    least = std::min(least, part), most = std::max(most, part);
    held += fmt::format(" {} {:.1f} %", tenant, part * 100);
  }
  fmt::print("{:<40} {:<16} {:>8} {:>9.0f} {:<8}{}\n", scenario, by, outcome.changes, outcome.slice, unit, held);
}

// The picture: a row for each outcome, with a rectangle for each time slice.
class Picture {
 public:
  void add(const std::string& row, const Outcome& outcome) {
    const int y = 10 + 30 * rows_++;
    body_ += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", left - 8, y + 15, row);
    for (const auto& [from, until, tenant] : outcome.holdings) {
      if (from >= shown) break;
      const auto colour = colours_.try_emplace(tenant, colours_.size() % palette.size()).first->second;
      body_ += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"22\" fill=\"{}\">"
          "<title>{}: {:.0f} s to {:.0f} s</title></rect>\n",
          x(from), y, x(std::min(until, shown)) - x(from), palette[colour], tenant, from, until);
    }
  }
  void next_scenario() { colours_.clear(); }
  std::string svg() const {
    const int height = 10 + 30 * rows_;
    std::string axis;
    for (int at = 0; at <= static_cast<int>(shown); at += 500)
      axis += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{} s</text>\n", x(at), height + 14, at);
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" "
        "font-size=\"12\" role=\"img\">\n<title>Tenants that each want the whole device</title>\n"
        "<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n{2}{3}</svg>\n",
        width, height + 24, body_, axis);
  }

 private:
  static constexpr int width = 900, left = 270;
  static constexpr double shown = 2000;  // s
  static constexpr std::array palette{"#1b6ca8", "#d1495b", "#2e8b57", "#c98a00",
                                      "#8d5a97", "#5aa9c9", "#7a7a7a", "#e08e79"};

  static double x(double at) { return left + at / shown * (width - left - 20); }

  int rows_ = 0;
  std::string body_;
  std::map<std::string, std::size_t> colours_;  // of the tenants of a scenario, in the order of their first slices
};

}  // namespace

int main(int argc, char** argv) {
  Picture picture;
  fmt::print("{:<40} {:<16} {:>8} {:>9} {:<8} time of each tenant\n", "", "", "changes", "slice", "");
  for (const Scenario& scenario : scenarios) {
    const Outcome formula = Formula(scenario, 1).run(10'000), sublet = Machine(scenario).run(20'000s);
    show(scenario.name, "formula, k = 1", formula, "cycles");
    show(scenario.name, "formula, k = 0.5", Formula(scenario, 0.5).run(10'000), "cycles");
    show(scenario.name, "Sublet", sublet, "s");
    picture.next_scenario();
    picture.add(fmt::format("{}: formula", scenario.shown), formula);
    picture.add("Sublet", sublet);
  }
  show_guarantees(50);
  if (argc == 3 && std::string(argv[1]) == "--svg") std::ofstream(argv[2]) << picture.svg();
}
