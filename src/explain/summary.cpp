// SPDX-License-Identifier: Apache-2.0
#include "explain/summary.h"

#include "explain/over_limit.h"
#include "state/format.h"

#include <fmt/format.h>

namespace sublet::explain {
namespace {

using core::LeaseState;

std::string estimate_of(const QueueInfo& queue) {
  if (!queue.eta) return {};
  if (*queue.eta < std::chrono::seconds(1)) return ", and should have it at once";
  return fmt::format(", and should have it in about {}", format_duration(*queue.eta));
}

// "waits at place 2: 4.0 GiB short on gpu0, and should have it in about 5 min"
std::string wait_of(const core::State& state, const core::Lease& lease, const std::optional<core::Blocked>& blocked,
                    const QueueInfo* queue) {
  std::string text = fmt::format("waits at place {}", state.queue.place_of(lease));
  if (blocked) return text + ": " + blocked->text;
  if (queue == nullptr) return text;
  if (queue->reserved_for) text += ": memory is reserved for " + to_string(queue->reserved_for);
  else if (queue->short_bytes > Bytes{} && !queue->device.empty())
    text += fmt::format(": {} short on {}", format_size(queue->short_bytes),
                        core::names_of_devices(state, {queue->device}));
  return text + estimate_of(*queue);
}

std::string pause_of(const core::State& state, const core::Lease& lease) {
  const std::string why = core::text_of(cause_now(state, lease.parking->cause));
  return (why.starts_with("for ") ? " " : ": ") + why;
}

std::string use_of(const core::State& state, const core::Lease& lease) {
  std::string text = fmt::format("holds {}{}, and uses {}", format_size(lease.reserved()),
                                 core::on_devices(state, lease), format_size(core::use_of(state, lease.id).used));
  if (const Bytes over = over_size(state, lease); over > Bytes{})
    text += fmt::format(", which is {} more than it leased", format_size(over));
  return text;
}

std::string end_of(const core::Lease& lease) {
  std::string text = fmt::format("ended: {}", core::to_string(lease.end_reason));
  if (lease.exit_status) text += fmt::format(", exit status {}", *lease.exit_status);
  return text;
}

std::string paused_of(const core::State& state, const core::Lease& lease) {
  const bool by_driver = lease.parking->method == core::PauseMethod::driver;
  return fmt::format("is paused with {} parked by {}{}", format_size(lease.parking->host_bytes),
                     by_driver ? "the driver" : "its program", pause_of(state, lease));
}

}  // namespace

std::string summary(const core::State& state, const core::Lease& lease, const std::optional<core::Blocked>& blocked,
                    const QueueInfo* queue, const Aspects& aspects) {
  const std::string id = to_string(lease.id);
  const auto also = [&](std::string text) { return fmt::format("{} {}", id, text); };
  if (lease.ended()) return also(end_of(lease));
  if (lease.stop_requested)
    return also(aspects.keeper_killed ? "is stopping, and its keeper was killed" : "is stopping");
  if (lease.held_back_at) return also(fmt::format("is held back, and keeps place {}", state.queue.place_of(lease)));
  const bool waits = state.queue.contains(lease.id);
  const std::string wait = waits ? wait_of(state, lease, blocked, queue) : std::string();
  if (lease.state == LeaseState::queued)
    return also((lease.lapsed_offers > 0 ? "did not claim its offer; it " : "") + wait);
  if (lease.state == LeaseState::offered)
    return also(lease.offer_ends_at ? "is to be claimed until " + format_rfc3339(*lease.offer_ends_at)
                                    : "waits for its program");
  if (lease.parking) {
    if (lease.state == LeaseState::poisoned)
      return also("is poisoned, and its program can never run again" + pause_of(state, lease));
    if (lease.state == LeaseState::resuming)
      return also(aspects.problem.empty() ? "is being resumed"
                                          : "is not running again yet: " + aspects.problem + "; the daemon retries");
    if (lease.state == LeaseState::pausing)
      return also("is being paused" + (aspects.problem.empty() ? pause_of(state, lease)
                                                               : ", which cannot be verified: " + aspects.problem));
    return also(paused_of(state, lease) + (waits ? "; it " + wait : ""));
  }
  std::string text = use_of(state, lease);
  if (waits && lease.resize) text += "; it " + wait;
  else if (!aspects.stopped.empty()) text += "; its program is " + aspects.stopped;
  else if (aspects.keeper_killed) text += "; its keeper was killed, and its program runs on";
  return also(std::move(text));
}

}  // namespace sublet::explain
