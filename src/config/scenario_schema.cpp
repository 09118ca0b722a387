// SPDX-License-Identifier: Apache-2.0
// The keys of a scenario for `sublet simulate`.
#include "config/schema.h"

#include <algorithm>
#include <vector>

namespace sublet::config {
namespace {

using Stream = Config::Stream;

std::vector<Stream>& streams(Config& config) { return config.scenario.streams; }

constexpr Key own_keys[] = {
    {"scenario.checkpoint", "0s", "365d",
     "Time between two checkpoints of a job, for the point-in-time scheduler, which ends jobs. 0s: they have none.",
     +[](Config& c) -> Duration& { return c.scenario.checkpoint; }},
    {"scenario.devices", "", "", "Devices of the machine, such as 4x24GiB.",
     +[](Config& c) -> Text& { return c.scenario.devices; }},
    {"scenario.grace", "0s", "1h",
     "Time that the point-in-time scheduler gives a job to end. Its memory is taken for so long.",
     +[](Config& c) -> Duration& { return c.scenario.grace; }},
    {"scenario.length", "1m", "3650d", "Time in which jobs arrive. The figures count up to its end.",
     +[](Config& c) -> Duration& { return c.scenario.length; }},
    {"scenario.seed", "0", "2147483647", "Seed of what `spread` changes.",
     +[](Config& c) -> std::int64_t& { return c.scenario.seed; }},
};

constexpr Field stream_fields[] = {
    {"at_once", "1", "100000", "Number of jobs that arrive together.", field<&Stream::at_once>()},
    {"devices", "1", "1024", "Number of devices of each job.", field<&Stream::devices>()},
    {"every", "0s", "3650d", "Time between two arrivals. 0s: there is one arrival.", field<&Stream::every>()},
    {"first", "0s", "3650d", "Time of the first arrival.", field<&Stream::first>()},
    {"name", "1", "", "Name of the jobs, unique in the file.", field<&Stream::name>(), true},
    {"pausable", "", "", "The jobs may be paused.", field<&Stream::pausable>()},
    {"priority", "-1000000", "1000000", "Priority of the jobs.", field<&Stream::priority>()},
    {"runs", "1s", "3650d", "Time that a job needs its memory.", field<&Stream::runs>(), true},
    {"spread", "0", "0.99", "Part by which `runs` and `every` differ, up or down.", field<&Stream::spread>()},
    {"tenant", "", "", "Tenant of the jobs. Empty: the user.", field<&Stream::tenant>()},
    {"tier", "critical interactive standard batch spot", "", "Tier of the jobs.", field<&Stream::tier>()},
    {"until", "0s", "3650d", "End of the arrivals. 0s: the end of the scenario.", field<&Stream::until>()},
    {"user", "", "", "User of the jobs. Empty: the name.", field<&Stream::user>()},
    {"vram", "0", "1024TiB", "Memory on each device. 0: all of it.", field<&Stream::vram>()},
};

}  // namespace

const Schema& scenario_schema() {
  static const std::vector<Key> all_keys = [] {
    std::vector<Key> all(keys().begin(), keys().end());
    all.insert(all.end(), std::begin(own_keys), std::end(own_keys));
    std::ranges::sort(all, {}, &Key::name);
    return all;
  }();
  static const List lists[] = {
      {"stream", "Jobs that arrive in turn.", "name", stream_fields, rows<streams>()},
      tenant_schema().lists.front(),
  };
  static const Schema ours{all_keys, lists};
  return ours;
}

}  // namespace sublet::config
