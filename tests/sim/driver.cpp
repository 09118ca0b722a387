// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace sublet::sim {

using namespace std::chrono_literals;
using gpu::CheckpointCall;
using gpu::CheckpointCommand;
using gpu::CheckpointRefusal;
using gpu::CheckpointReply;
using gpu::CudaCode;
using gpu::ParkState;

namespace {

void refuse(CheckpointReply& reply, CheckpointRefusal refusal, std::string detail) {
  reply.refusal = refusal;
  reply.detail = std::move(detail);
}

// A refusal with the code of the driver.
void refuse(CheckpointReply& reply, CudaCode code, ParkState state) {
  reply.code = static_cast<int>(code);
  reply.name = fmt::format("code {}", reply.code);
  reply.state = state;
  refuse(reply, CheckpointRefusal::driver, fmt::format("the driver's {} said {}", to_string(reply.call), reply.name));
}

}  // namespace

Driver::Driver(World& world, Agenda& agenda, const Config& config)
    : world_(world), agenda_(agenda), config_(config), random_(config.seed ^ 0xd71e) {}

Bytes Driver::resident(ProcessRef process) const {
  const auto found = world_.processes().find(process);
  if (found == world_.processes().end()) return {};
  Bytes bytes = World::of_any_program;
  for (const Bytes parked : found->second.parked) bytes += parked;
  return bytes;
}

// ------------------------------------------------------------------------------------------------ one after the other

void Driver::enter(ProcessRef process, Call call) {
  const auto waiting = calls_.find(process);
  if (waiting == calls_.end() && call.takes == 0s) return call.carry_out();
  calls_[process].push_back(std::move(call));
  if (waiting == calls_.end()) begin(process);
}

void Driver::begin(ProcessRef process) {
  const Call& call = calls_.at(process).front();
  // A call that never returns does so once no faults are active any more.
  const bool hangs = call.hangs && config_.stuck > 0 && !random_.chance(5);
  agenda_.in(hangs ? 30s : call.takes, [this, process, hangs] { hangs ? begin(process) : end(process); });
}

void Driver::end(ProcessRef process) {
  const auto found = calls_.find(process);
  const auto carry_out = std::move(found->second.front().carry_out);
  found->second.pop_front();
  if (found->second.empty()) calls_.erase(found);
  else begin(process);
  carry_out();
}

// Within its time, or much later, or never, as long as there are faults.
Driver::Call Driver::call_for(const Helper& helper, CheckpointCall call) {
  Duration at_most = 20ms;
  double stuck = 0;
  switch (call) {
    case CheckpointCall::lock: at_most = 100ms, stuck = config_.stuck / 4; break;
    case CheckpointCall::checkpoint: at_most = 4s, stuck = config_.stuck; break;
    case CheckpointCall::restore: at_most = 2s, stuck = config_.stuck; break;
    case CheckpointCall::hold: return {random_.chance(70) ? 0s : random_.time(1ms, at_most), false, {}};
    default:
      if (random_.chance(70)) return {0s, false, {}};
      stuck = config_.stuck / 4;
  }
  const auto found = world_.processes().find(helper.target);
  if (found == world_.processes().end() || !random_.chance(stuck)) return {random_.time(1ms, at_most), false, {}};
  world_.note_hung(found->second.lease);
  return {random_.time(1ms, 60s), random_.chance(50), {}};
}

// ------------------------------------------------------------------------------------------------ helpers

void Driver::ask(const std::shared_ptr<Helper>& helper, CheckpointCommand command, Answered answered) {
  // The helper may end before the driver is asked, while the driver works, or before the result is reported.
  const auto dies = random_.chance(config_.unknowns / 3) ? std::optional(random_.below(3)) : std::nullopt;
  if (dies == 0) {
    helper->dead = true;
    return answered(std::nullopt);
  }
  helper->at_work = true;
  const CheckpointCall command_call = command.call;
  Call call = call_for(*helper, command.call);
  if (dies == 1) {
    agenda_.in(random_.time(0s, call.takes), [helper, answered] {
      helper->dead = true;
      answered(std::nullopt);
    });
  }
  call.carry_out = [this, helper, dies, command = std::move(command), answered = std::move(answered)] {
    CheckpointReply reply = carry_out(*helper, command);
    helper->at_work = false;
    helper->dead |= dies == 2;
    if (helper->left_alone) return leave(*helper);
    if (!helper->dead) answered(std::move(reply));
    else if (dies == 2) answered(std::nullopt);
  };
  if (command_call == CheckpointCall::restore && random_.chance(50))
    agenda_.in(random_.time(0s, call.takes), [this, ref = helper->target] { world_.begin_restore(ref); });
  enter(helper->target, std::move(call));
}

void Driver::leave_alone(Helper& helper) {
  helper.left_alone = true;
  if (!helper.at_work) leave(helper);
}

void Driver::leave(Helper& helper) {
  const auto found = world_.processes().find(helper.target);
  const bool locked = found != world_.processes().end() && found->second.state == ParkState::locked;
  if (!helper.dead && std::exchange(helper.waits_for_us, false) && locked) world_.unlock(helper.target);
}

// ------------------------------------------------------------------------------------------------ what it does

CheckpointReply Driver::carry_out(Helper& helper, const CheckpointCommand& command) {
  CheckpointReply reply;
  reply.call = command.call;
  if (command.call == CheckpointCall::hold) return hold(command, reply), reply;
  const auto found = world_.processes().find(helper.target);
  if (found == world_.processes().end()) {
    refuse(reply, CheckpointRefusal::gone, fmt::format("process {} is gone", helper.target.pid));
    return reply;
  }
  const Process& process = found->second;
  switch (command.call) {
    case CheckpointCall::preflight: preflight(process, command, reply); break;
    case CheckpointCall::state: state(process, reply); break;
    case CheckpointCall::lock: lock(helper, process, reply); break;
    case CheckpointCall::checkpoint: checkpoint(helper, process, reply); break;
    case CheckpointCall::restore: restore(helper, process, command, reply); break;
    case CheckpointCall::unlock: unlock(helper, process, reply); break;
    case CheckpointCall::hold: break;
  }
  return reply;
}

// A child that has not begun to; and if it does while the others are parked, that is not honest.
bool Driver::uses_cuda(const Process& process) const {
  const auto program = world_.programs().find(process.lease);
  const bool main = program == world_.programs().end() || program->second.main == process.ref;
  const auto none = [](const std::vector<Bytes>& bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](Bytes b) { return b <= Bytes{}; });
  };
  return config_.honest || main || process.state != ParkState::running || process.ref.pid % 2 == 0 ||
         !none(process.held) || !none(process.put_away);
}

// As long as it lives: seen from outside, or only when it is tried.
bool Driver::cannot_be_parked(const Process& process, CheckpointReply& reply) {
  if (config_.refusals <= 0 || process.ref.pid % 16 >= 2) return false;
  if (reply.call == CheckpointCall::preflight && process.ref.pid % 2 != 0) return false;
  refuse(reply, CheckpointRefusal::not_parkable, "it uses what the driver cannot park");
  return true;
}

void Driver::preflight(const Process& process, const CheckpointCommand& command, CheckpointReply& reply) {
  if (random_.chance(config_.refusals / 2)) {
    constexpr std::array why{CheckpointRefusal::no_right,     CheckpointRefusal::traced,
                             CheckpointRefusal::stopped,      CheckpointRefusal::unsupported_driver,
                             CheckpointRefusal::not_dumpable, CheckpointRefusal::wrong_state,
                             CheckpointRefusal::no_driver};
    CheckpointRefusal how = why[random_.below(why.size())];
    // This refusal holds for all programs, and lasts: otherwise most runs would park nothing.
    if (how == CheckpointRefusal::unsupported_driver && !random_.chance(15)) how = CheckpointRefusal::traced;
    return refuse(reply, how, "it cannot be parked as it is");
  }
  reply.state = process.state;
  if (!uses_cuda(process)) refuse(reply, CheckpointRefusal::no_cuda, "it uses no CUDA");
  else if (process.state != ParkState::running) refuse(reply, CheckpointRefusal::wrong_state, "it is parked already");
  else if (config_.old_driver && !command.vouched)
    refuse(reply, CheckpointRefusal::owner_must_vouch, "nobody answers for it");
  else (void)cannot_be_parked(process, reply);
}

void Driver::state(const Process& process, CheckpointReply& reply) {
  if (random_.chance(config_.unknowns / 4)) return refuse(reply, CheckpointRefusal::stopped, "it is stopped");
  if (!uses_cuda(process)) return refuse(reply, CudaCode::not_initialized, ParkState::unknown);
  reply.state = process.state;
}

void Driver::lock(Helper& helper, const Process& process, CheckpointReply& reply) {
  if (process.state != ParkState::running) return refuse(reply, CudaCode::illegal_state, process.state);
  if (random_.chance(config_.refusals / 2)) {
    refuse(reply, CudaCode::not_ready, ParkState::running);
    return refuse(reply, CheckpointRefusal::timeout, "its work was not done in time");
  }
  Program* program = world_.program_of(process.lease);
  if (program != nullptr && !config_.honest && random_.chance(config_.forkers))
    for (int child = 0; child < 2; ++child) world_.fork(*program);
  world_.lock(process.ref);
  helper.waits_for_us = true;
  reply.state = ParkState::locked;
}

void Driver::checkpoint(Helper& helper, const Process& process, CheckpointReply& reply) {
  if (process.state != ParkState::locked) return refuse(reply, CudaCode::illegal_state, process.state);
  reply.state = ParkState::locked;
  if (cannot_be_parked(process, reply)) return;
  if (random_.chance(config_.refusals / 4)) return refuse(reply, CudaCode::operating_system, ParkState::locked);
  // The copy fails half-way: nothing of it comes back, and all of it stays on the card.
  if (random_.chance(config_.final_faults / 4)) {
    world_.fail(process.ref);
    return refuse(reply, CudaCode::operating_system, ParkState::failed);
  }
  yield(process);
  helper.waits_for_us = false;
  reply.state = ParkState::checkpointed;
}

// Says that it has, and has not: nothing, or half, or it will later, or not for long.
void Driver::yield(const Process& process) {
  if (!random_.chance(config_.liars / 2)) return world_.checkpoint(process.ref, 100);
  const std::uint64_t how = random_.below(4);
  constexpr std::array percent{0, 50, 0, 100};
  world_.checkpoint(process.ref, percent[how]);
  if (how < 2) return;
  agenda_.in(random_.time(100ms, 30s), [this, how, ref = process.ref, lease = process.lease] {
    const auto found = world_.processes().find(ref);
    if (found == world_.processes().end() || found->second.state != ParkState::checkpointed) return;
    if (how == 2) world_.checkpoint(ref, 100);
    else world_.grab_again(lease, random_);
  });
}

bool Driver::hold(const CheckpointCommand& command, CheckpointReply& reply) const {
  for (const gpu::BallastWish& wish : command.ballast) {
    const auto card = world_.card_of(wish.uuid);
    if (!card || world_.lost(*card)) return refuse(reply, CheckpointRefusal::driver, "the card does not answer"), false;
    if (wish.bytes > world_.room(*card))
      return refuse(reply, CheckpointRefusal::no_room, "the ballast does not fit"), false;
  }
  return true;
}

// A restore without free memory fails for good.
void Driver::restore(Helper& helper, const Process& process, const CheckpointCommand& command, CheckpointReply& reply) {
  reply.state = process.state;
  world_.end_restore(process.ref);
  if (random_.chance(config_.refusals / 2))
    return refuse(reply, CheckpointRefusal::traced, "it is being traced by a debugger");
  if (!hold(command, reply)) return;
  if (process.state != ParkState::checkpointed) return refuse(reply, CudaCode::illegal_state, process.state);
  const World::Restored restored =
      random_.chance(config_.final_faults) ? World::Restored::never : world_.restore(process.ref);
  switch (restored) {
    case World::Restored::done:
      reply.state = ParkState::locked;
      helper.waits_for_us = true;
      return;
    case World::Restored::not_now: return refuse(reply, CudaCode::not_supported, ParkState::checkpointed);
    case World::Restored::never: break;
  }
  world_.fail(process.ref);
  refuse(reply, CudaCode::out_of_memory, ParkState::failed);
  reply.final = true;
}

void Driver::unlock(Helper& helper, const Process& process, CheckpointReply& reply) {
  if (process.state != ParkState::locked) return refuse(reply, CudaCode::illegal_state, process.state);
  if (random_.chance(config_.unknowns / 4)) return refuse(reply, CudaCode::operating_system, ParkState::locked);
  world_.unlock(process.ref);
  helper.waits_for_us = false;
  reply.state = ParkState::running;
}

}  // namespace sublet::sim
