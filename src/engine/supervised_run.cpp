// SPDX-License-Identifier: Apache-2.0
#include "engine/supervised_run.h"

#include "base/log.h"
#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::engine {
namespace {

constexpr Duration look_at_keeper = std::chrono::seconds(10);
// When a reader of the output that has ended is ordered again. It may have been killed. It ends at once if there is no
// output to read, or if an earlier daemon has ordered one: so it is ordered less and less often.
constexpr Duration drain_again = std::chrono::seconds(10);
constexpr Duration rarely = std::chrono::minutes(10);

}  // namespace

std::string SupervisedRuns::log_path(std::uint32_t uid, const std::string& log) const {
  return fmt::format("{}/{}/{}", options_.log_dir, uid, log);
}

nlohmann::json SupervisedRuns::begin_document(const Run& run) const {
  return {{"host", options_.host},
          {run.kind, run.name},
          {"log",
           {{"path", log_path(run.uid, run.log)},
            {"max_bytes", options_.log_max_size.count},
            {"keep", options_.log_keep},
            {"user_max_bytes", options_.log_user_max.count}}}};
}

void SupervisedRuns::start(const Run& run, const nlohmann::json& document, machine::Keepers::Done done) {
  keepers_.start({run.uid, run.user, run.tag, options_.host,
                  document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                  fmt::format("{}/{}", options_.log_dir, run.uid)},
                 std::move(done));
}

bool SupervisedRuns::has_lost_keeper(const core::Lease& lease) const {
  return lease.owner.keeper && !engine_.programs().keeper_alive(lease.id);
}

Time SupervisedRuns::watch_keeper(const Run& run, const core::Lease& lease, Time now) {
  if (!has_lost_keeper(lease)) return now + look_at_keeper;
  const auto last = readers_.find(lease.id);
  if (last != readers_.end()) {
    Reader& reader = last->second;
    if (reader.process && engine_.programs().lives(reader.process)) return now + look_at_keeper;
    if (now - reader.ordered_at < reader.again) return reader.ordered_at + reader.again;
    reader.again = std::min<Duration>(2 * reader.again, rarely);
  } else {
    std::erase_if(readers_, [this](const auto& entry) { return engine_.find(entry.first) == nullptr; });
    log::warn({.lease = lease.id, .program = fmt::format("{}/{}", run.user, printable(run.tag))},
              "its keeper (pid {}) is gone: the exit status will stay unknown", lease.owner.keeper.pid);
  }
  Reader& reader = readers_.try_emplace(lease.id, Reader{.again = drain_again}).first->second;
  reader.ordered_at = now;
  reader.process = {};
  nlohmann::json document = begin_document(run);
  document["drain"] = {{"pid", lease.owner.process.pid}, {"start_ticks", lease.owner.process.start_ticks}};
  start(run, document, [this, id = lease.id](const Result<ProcessRef>& started) {
    if (!started) log::error("the output of a program without a keeper is not read: {}", started.error().detail);
    else if (const auto known = readers_.find(id); known != readers_.end()) known->second.process = *started;
  });
  return now + reader.again;
}

}  // namespace sublet::engine
