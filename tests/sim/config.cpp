// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include <fmt/format.h>

#include <array>

namespace sublet::sim {

using namespace std::chrono_literals;

Config::Config(std::uint64_t with) : seed(with) {
  Random random(seed * 0x2545f4914f6cdd1dULL + 17);
  const auto count = 1 + random.below(3);
  for (std::uint64_t i = 0; i < count; ++i) cards.push_back(random.between(12, 40) * GiB);
  driver_reserved = random.below(2) * 400 * MiB;
  host_memory = random.between(20, 120) * GiB;
  headroom_known = random.chance(20);
  sqlite = random.chance(5);
  honest = random.chance(40);

  rules.headroom = random.below(2) * 256 * MiB;
  rules.reserve_after = std::array<Duration, 3>{0s, 10s, 60s}[random.below(3)];
  rules.aging_per_minute = std::array{1.0, 0.0, 5.0}[random.below(3)];
  rules.ledger_limit = random.between(16, 64) * GiB;
  rules.host_memory = host_memory;
  rules.verify_timeout = random.time(2s, 20s);
  rules.forget_after = 2min;
  rules.grace = random.time(5s, 30s);
  rules.spot_unused_after = 30s;

  const auto some = [&random](double likely, double most) {
    return random.chance(likely) ? most * static_cast<double>(random.between(1, 10)) / 10 : 0.0;
  };
  if (!honest) {
    unleased_processes = some(60, 3);
    over_use = some(40, 10);
    lies = some(40, 15);
    missing = some(40, 10);
    liars = some(50, 40);
    final_faults = some(40, 20);
  }
  lost_cards = honest ? 0 : some(30, 1);
  ghosts = some(40, 30);
  refusals = some(50, 30);
  unknowns = some(50, 20);
  stuck = some(40, 10);
  short_host = some(40, 20);
  store_faults = some(50, 3);
  crashes = some(60, 1);
  stalls = some(40, 0.5);
  dumb_clients = some(70, 20);
  deaf_programs = some(50, 40);
  cooperative = some(60, 60);
  rude = some(60, 60);
  // Unlisted bytes can be told from freed bytes only where nothing else is hidden.
  if (missing > 0 && random.chance(60)) lies = lost_cards = ghosts = 0, liars = std::max(liars, 20.0);
  slowest_commit = std::array<Duration, 3>{0ms, 20ms, 3s}[random.below(3)];
  crowd = random.chance(25);
  draw_limits();
  draw_tenants();
}

// Ana and ben below one organisation, where there is a tree: quotas, limits and weights of some of them.
void Config::draw_tenants() {
  Random random(seed * 0xd1342543de82ef95ULL + 3);
  if (!random.chance(35)) return;
  const auto some = [&random](Bytes least, Bytes most) {
    return random.chance(50) ? std::optional(random.between(least.count / GiB.count, most.count / GiB.count) * GiB)
                             : std::nullopt;
  };
  for (const char* name : {"org", "ana", "ben"}) {
    core::Tenant& tenant = tenants.emplace_back();
    tenant.name = name;
    if (tenant.name != "org") tenant.parent = "org", tenant.quota.bytes = some(2 * GiB, 12 * GiB);
    tenant.limit.bytes = some(8 * GiB, 30 * GiB);
    if (random.chance(20)) tenant.live_leases = static_cast<int>(random.between(2, 6));
    tenant.on_limit = random.chance(30) ? core::OnLimit::refuse : core::OnLimit::queue;
    tenant.weight = static_cast<int>(random.between(1, 4)) * 500;
    if (random.chance(20)) tenant.park_share = 500;
  }
  crowd = false;  // its promises are about leases without limits
}

// Draws the rules that limit pauses, and the properties of the machine that these rules are about. Most often both are
// as they were before such rules existed.
void Config::draw_limits() {
  Random random(seed * 0x9e6c63d0876a9a35ULL + 5);
  const auto some = [&random](double likely, double most) {
    return random.chance(likely) ? most * static_cast<double>(random.between(1, 10)) / 10 : 0.0;
  };
  if (random.chance(70)) rules.orphan_after = random.time(10s, 2min);
  if (random.chance(30)) rules.ledger_user_share = std::array{0.25, 0.5, 1.0}[random.below(3)];
  if (random.chance(40)) rules.ledger_max_pressure = std::array{0.0, 0.02, 0.3, 1.0}[random.below(4)];
  if (random.chance(30)) rules.slice_overhead = std::array{0.03, 0.05, 0.2, 0.5}[random.below(4)];
  rules.automatic = !random.chance(10);
  pressed = some(30, 40);
  swap = random.chance(20);
  rules.allow_swap = random.chance(30);
  actor = random.chance(60);
  actor_is_root = random.chance(80);
  actor_faults = some(50, 10);
  booked = some(50, 100);
  forkers = some(20, 100);
  if (!honest && random.chance(15)) relapses = 100, cooperative = rude = std::max({cooperative, rude, 60.0});
  if (booked > 0) cooperative = std::max(cooperative, 40.0);
  late_words = some(40, 100);
  old_driver = random.chance(8);
  slow_commits = some(20, 5);
  // Promises about time slices hold for programs that can be paused, and where time slices are taken. A disk that
  // stands still explains much of what happens to slices.
  if (!rules.automatic || keeps_from_swap() || old_driver || slow_commits > 0) crowd = false;
}

void Config::calm() {
  was_slow |= slow_commits > 0;
  for (double* rate : {&unleased_processes, &over_use, &lies,  &missing,      &lost_cards, &ghosts,  &refusals,
                       &unknowns,           &stuck,    &liars, &final_faults, &short_host, &pressed, &relapses,
                       &actor_faults,       &forkers,  &rude,  &store_faults, &crashes,    &stalls,  &dumb_clients,
                       &slow_commits})
    *rate = 0;
  quiet = true;
}

std::string Config::text() const {
  return fmt::format(
      "{} cards, {}, {} store, unleased processes {} over_use {} lies {} missing {} lost {} ghosts {} refusals {} "
      "unknowns {} "
      "stuck {} liars {} final {} short {} store_faults {} slow {} crashes {} stalls {} dumb {} deaf {} cooperative {} "
      "rude {} "
      "late words {} booked {} relapses {} forkers {} pressed {} actor {} ({}) {}{}{}orphans {:.0f} s share {} "
      "pressure {} overhead "
      "{}{}{}",
      cards.size(), honest ? "honest" : "faulty", sqlite ? "sqlite" : "memory", unleased_processes, over_use, lies,
      missing, lost_cards, ghosts, refusals, unknowns, stuck, liars, final_faults, short_host, store_faults,
      slow_commits, crashes, stalls, dumb_clients, deaf_programs, cooperative, rude, late_words, booked, relapses,
      forkers, pressed, actor ? "lives" : "none", actor_faults,
      swap ? rules.allow_swap ? "swap allowed, " : "swap, " : "", old_driver ? "old driver, " : "",
      rules.automatic ? "" : "nothing automatic, ", std::chrono::duration<double>(rules.orphan_after).count(),
      rules.ledger_user_share, rules.ledger_max_pressure, rules.slice_overhead, crowd ? ", then a crowd" : "",
      tenants.empty() ? "" : ", tenants");
}

}  // namespace sublet::sim
