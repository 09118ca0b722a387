// SPDX-License-Identifier: Apache-2.0
#include "simulate/history.h"

#include "base/moment.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace sublet::simulate {
namespace {

using Json = nlohmann::json;

std::optional<Time> time_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) return std::nullopt;
  const auto moment = parse_moment(found->get_ref<const std::string&>(), Time{}, Tense::past, Zone::utc);
  return moment ? std::optional(moment->at) : std::nullopt;
}

std::string text_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::optional<std::int64_t> number_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? std::optional(found->get<std::int64_t>()) : std::nullopt;
}

std::optional<int> small_at(const Json& object, const char* key) {
  const auto number = number_at(object, key);
  return number ? std::optional(static_cast<int>(std::clamp<std::int64_t>(*number, INT32_MIN, INT32_MAX)))
                : std::nullopt;
}

std::optional<int> thousandths_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return static_cast<int>(std::lround(found->get<double>() * 1000));
}

const Json& list_at(const Json& object, const char* key) {
  static const Json empty = Json::array();
  const auto found = object.find(key);
  return found != object.end() && found->is_array() ? *found : empty;
}

core::Tenant read_tenant(const Json& row) {
  core::Tenant tenant;
  tenant.name = text_at(row, "name");
  tenant.parent = text_at(row, "parent");
  const auto bytes = [&row](const char* key) {
    const auto number = number_at(row, key);
    return number ? std::optional(Bytes{*number}) : std::nullopt;
  };
  tenant.quota = {bytes("quota_bytes"), thousandths_at(row, "quota_devices")};
  tenant.limit = {bytes("limit_bytes"), thousandths_at(row, "limit_devices")};
  tenant.live_leases = small_at(row, "live_leases");
  tenant.queued_leases = small_at(row, "queued_leases");
  if (const auto longest = number_at(row, "longest_lease_seconds"))
    tenant.longest_lease = std::chrono::seconds(*longest);
  if (text_at(row, "on_limit") == "refuse") tenant.on_limit = core::OnLimit::refuse;
  tenant.weight = thousandths_at(row, "weight").value_or(core::usual_weight);
  for (const Json& tier : list_at(row, "tiers"))
    if (const auto known = tier.is_string() ? core::parse_tier(tier.get_ref<const std::string&>()) : std::nullopt)
      tenant.tiers.push_back(*known);
  tenant.highest_priority = small_at(row, "highest_priority");
  tenant.park_share = thousandths_at(row, "park_share");
  return tenant;
}

// Leases that count otherwise than they were, by the reason.
struct Counts {
  std::size_t never_started = 0, running = 0, earlier = 0;
};

class Reader {
 public:
  explicit Reader(const Json& past) : past_(past) {}

  Result<History> read() {
    const auto from = time_at(past_, "from"), to = time_at(past_, "to");
    if (!from || !to || *from >= *to) return bad_request("the history has no period", "name one: --from-history 7d");
    history_.from = *from, history_.to = *to;
    find_begin();
    read_devices();
    for (const Json& row : list_at(past_, "tenants"))
      if (row.is_object() && row.value("entry", true)) history_.tenants.push_back(read_tenant(row));
    if (!past_.value("all_tenants", true))
      history_.notes.emplace_back("only an admin sees all tenants: those of other users have no quota here");
    for (const Json& lease : list_at(past_, "leases")) read_lease(lease);
    std::ranges::stable_sort(history_.jobs, {}, &Job::arrives);
    tell_gaps();
    tell_counts();
    return std::move(history_);
  }

 private:
  // Nothing is known of the time before the first lease that has ended: leases that live are always known, and tell
  // nothing of ended ones that the store no longer has.
  void find_begin() {
    if (!past_.value("whole", false)) return;
    std::optional<Time> first, first_ended;
    for (const Json& lease : list_at(past_, "leases")) {
      const auto created = time_at(lease, "created_at");
      if (!created) continue;
      first = std::min(first.value_or(*created), *created);
      if (time_at(lease, "ended_at")) first_ended = std::min(first_ended.value_or(*created), *created);
    }
    const Time begin =
        std::clamp(first_ended.value_or(first.value_or(history_.to)), history_.from, history_.to);
    if (begin == history_.from) return;
    history_.notes.push_back(
        fmt::format("the first ended lease that the daemon knows is of {}: nothing is known of the {} before",
                    format_rfc3339(begin), format_duration(begin - history_.from)));
    history_.from = begin;
  }

  void read_devices() {
    std::map<std::int64_t, Bytes> by_index;
    for (const Json& device : list_at(past_, "devices")) {
      const Bytes size{number_at(device, "total_bytes").value_or(0) -
                       number_at(device, "driver_reserved_bytes").value_or(0)};
      const std::int64_t index =
          number_at(device, "index").value_or(0) * 64 + number_at(device, "slice").value_or(-1) + 1;
      if (text_at(device, "state") == "lost" || size <= Bytes{})
        history_.notes.push_back(fmt::format("{} is lost, and is left out", text_at(device, "id")));
      else by_index[index] = size;
    }
    for (const auto& [index, size] : by_index) history_.devices.push_back(size);
  }

  void read_lease(const Json& lease) {
    const auto created = time_at(lease, "created_at"), granted = time_at(lease, "granted_at"),
               ended = time_at(lease, "ended_at");
    if (!created || *created >= history_.to || (ended && *ended <= history_.from)) return;
    if (!granted || *granted >= history_.to) return void(++counts_.never_started);
    const Time end = std::min(ended.value_or(history_.to), history_.to);
    const Duration paused = std::chrono::seconds(number_at(lease, "paused_seconds").value_or(0));
    if (!ended) ++counts_.running;
    if (*created < history_.from) ++counts_.earlier;
    Job& job = history_.jobs.emplace_back();
    const bool remembered = lease.value("remembered", false);
    if (remembered) job.name = text_at(lease, "consumer");
    job.user = text_at(lease, "user");
    job.tenant = text_at(lease, "tenant");
    job.arrives = std::max(*created, history_.from) - history_.from;
    job.runs = std::max(end - *granted - paused, Duration());
    if (*granted < history_.from) job.runs = std::min(job.runs, end - history_.from);
    job.vram = {number_at(lease, "vram_bytes").value_or(0)};
    job.devices = small_at(lease, "device_count").value_or(1);
    job.tier = core::parse_tier(text_at(lease, "tier")).value_or(core::Tier::standard);
    job.priority = small_at(lease, "priority").value_or(0);
    job.pausable = text_at(lease, "pausable") != "no";
  }

  // Overlapping gaps count once.
  void tell_gaps() {
    const auto found = past_.find("gaps");
    if (found == past_.end() || !found->is_array()) {
      history_.notes.emplace_back("gaps are not known: the meter is switched off, or does not answer");
      return;
    }
    std::vector<std::pair<Time, Time>> gaps;
    std::string why;
    for (const Json& gap : *found) {
      const auto begin = time_at(gap, "from"), end = time_at(gap, "to");
      if (!begin || !end || *end <= history_.from || *begin >= history_.to) continue;
      gaps.emplace_back(std::max(*begin, history_.from), std::min(*end, history_.to));
      why = text_at(gap, "why");
    }
    std::ranges::sort(gaps);
    Time counted = history_.from;
    for (const auto& [begin, end] : gaps) {
      history_.gaps += std::max(end - std::max(begin, counted), Duration());
      counted = std::max(counted, end);
    }
    if (history_.gaps < std::chrono::seconds(1)) return;
    history_.notes.push_back(fmt::format(
        "the history has {} gap{} of {} in all ({}): requests that were not made for that reason are not known",
        gaps.size(), gaps.size() == 1 ? "" : "s", format_duration(history_.gaps), why));
  }

  void tell_counts() {
    const auto tell = [this](std::size_t count, std::string_view one, std::string_view several) {
      if (count > 0) history_.notes.push_back(fmt::format("{} {}", count, count == 1 ? one : several));
    };
    tell(counts_.never_started, "lease never got memory: its run is not known, and it is left out",
         "leases never got memory: their runs are not known, and they are left out");
    tell(counts_.running, "lease has not ended: its run counts up to now",
         "leases have not ended: their runs count up to now");
    tell(counts_.earlier, "lease is older than the period: it arrives at its begin",
         "leases are older than the period: they arrive at its begin");
  }

  const Json& past_;
  History history_;
  Counts counts_;
};

}  // namespace

Result<History> read_history(const Json& past) { return Reader(past).read(); }

}  // namespace sublet::simulate
