// SPDX-License-Identifier: Apache-2.0
#include "engine/supervised_run.h"

#include "base/log.h"
#include "base/text.h"

#include <fmt/format.h>

namespace sublet::engine {
namespace {

constexpr Duration look_at_keeper = std::chrono::seconds(10);
// How often the reader of the output is ordered again, in case it was killed too. It ends at once if there is one.
constexpr Duration drain_again = std::chrono::seconds(10);

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
  const auto last = drained_.find(lease.id);
  if (last != drained_.end() && now - last->second < drain_again) return last->second + drain_again;
  if (last == drained_.end()) {
    std::erase_if(drained_, [this](const auto& entry) { return engine_.find(entry.first) == nullptr; });
    log::warn({.lease = lease.id, .program = fmt::format("{}/{}", run.user, printable(run.tag))},
              "its keeper (pid {}) is gone: the exit status will stay unknown", lease.owner.keeper.pid);
  }
  drained_[lease.id] = now;
  nlohmann::json document = begin_document(run);
  document["drain"] = {{"pid", lease.owner.process.pid}, {"start_ticks", lease.owner.process.start_ticks}};
  start(run, document, [](const Result<ProcessRef>& started) {
    if (!started) log::error("the output of a program without a keeper is not read: {}", started.error().detail);
  });
  return now + drain_again;
}

}  // namespace sublet::engine
