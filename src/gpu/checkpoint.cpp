// SPDX-License-Identifier: Apache-2.0
#include "gpu/checkpoint.h"

#include "base/text.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

namespace sublet::gpu {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view cannot_park =
    "managed memory, memory shared with other processes (CUDA IPC, NCCL), or access from one card to another's";

}  // namespace

Parker::Parker(ProcessRef target, const std::string& driver, int socket)
    : target_(target), library_(driver), socket_(socket), driver_(unavailable("the driver was not loaded")) {}

bool Parker::refuse(CheckpointReply& reply, CheckpointRefusal refusal, std::string detail) const {
  reply.refusal = refusal;
  reply.detail = std::move(detail);
  return false;
}

template <typename Call>
CudaCode Parker::timed(CheckpointReply& reply, Call call) const {
  const auto start = Clock::now();
  const CudaCode code = call(*driver_);
  reply.took = std::chrono::duration_cast<Duration>(Clock::now() - start);
  reply.code = static_cast<int>(code);
  reply.name = driver_->name_of(code);
  return code;
}

// When only the peer's end is gone, a call that changes the process continues. A call after which the process must be
// unlocked continues too (serve.h).
void Parker::guard(std::optional<Watch>& watch, bool changes) const {
  if (!changes && !waits_for_us_) watch.emplace(socket_);
  else if (target_.pidfd() >= 0) watch.emplace(socket_, target_.pidfd());
}

template <typename Call>
CudaCode Parker::change(CheckpointReply& reply, Call call) const {
  std::optional<Watch> watch;
  guard(watch, true);
  return timed(reply, call);
}

ParkState Parker::ask_state() const {
  std::optional<Watch> watch;
  guard(watch, false);
  ParkState state = ParkState::unknown;
  driver_->state(target_.pid(), state);
  return state;
}

// The driver returns other codes for a process that ends during the call.
bool Parker::ended_meanwhile(CheckpointReply& reply) const {
  if (!target_.gone() && !target_.look().ending) return false;
  refuse(reply, CheckpointRefusal::gone,
         fmt::format("process {} ended during {}", target_.pid(), to_string(reply.call)));
  return true;
}

// The driver returns the same code for many other refusals of the system.
bool Parker::may_trace(CheckpointReply& reply) const {
  const TargetLook look = target_.look();
  if (look.ending) return refuse(reply, CheckpointRefusal::gone, fmt::format("process {} is ending", target_.pid()));
  if (look.may_trace) return true;
  return refuse(reply, look.same_user ? CheckpointRefusal::not_dumpable : CheckpointRefusal::no_right,
                look.same_user ? fmt::format("process {} forbids tracing", target_.pid())
                               : fmt::format("process {} belongs to another user, and tracing it is not permitted",
                                             target_.pid()));
}

// The driver does not park or restore a process that a debugger holds. It does after the debugger has gone.
bool Parker::untraced(CheckpointReply& reply) const {
  const auto tracer = target_.look().tracer;
  if (tracer == 0) return true;
  return refuse(reply, CheckpointRefusal::traced,
                fmt::format("a debugger (pid {}) is attached to process {}", tracer, target_.pid()));
}

// Whether the process lost its rights, forbade tracing or got a debugger since the preflight.
bool Parker::refused_itself(CheckpointReply& reply, CudaCode code) const {
  return code == CudaCode::operating_system && !(may_trace(reply) && untraced(reply));
}

void Parker::failed(CheckpointReply& reply, CudaCode code) {
  if (ended_meanwhile(reply)) return;
  reply.state = ask_state();
  if (refused_itself(reply, code)) return;
  if (reply.call == CheckpointCall::checkpoint && code == CudaCode::not_supported) {
    refuse(reply, CheckpointRefusal::not_parkable,
           fmt::format("process {} uses memory that the driver cannot park ({}): {}", target_.pid(), reply.name,
                       cannot_park));
    return;
  }
  refuse(reply, CheckpointRefusal::driver,
         fmt::format("the driver's {} of process {} returned {} ({})", to_string(reply.call), target_.pid(), reply.name,
                     static_cast<int>(code)));
}

// A driver that is being installed, or whose kernel module is being reloaded, may load the next time.
bool Parker::load(CheckpointReply& reply) {
  if (driver_) return true;
  {
    const Watch watch(socket_);  // it may hang, and changes no process
    driver_ = CudaApi::load(library_, target_.slice());
  }
  if (driver_) return true;
  const bool passes = driver_.error().code == Code::Unavailable;
  return refuse(reply, passes ? CheckpointRefusal::no_driver : CheckpointRefusal::unsupported_driver,
                driver_.error().detail);
}

// Checks the preconditions of every call: a living process that can answer, and a driver.
bool Parker::may_proceed(const CheckpointCommand& command, CheckpointReply& reply) {
  if (command.call == CheckpointCall::hold) return load(reply);
  const TargetLook look = target_.look();
  if (target_.gone() || look.ending) {
    return refuse(reply, CheckpointRefusal::gone, fmt::format("process {} is gone", target_.pid()));
  }
  if (look.stopped) {
    return refuse(reply, CheckpointRefusal::stopped,
                  fmt::format("process {} is stopped or frozen, so its driver would not answer", target_.pid()));
  }
  return load(reply);
}

// The driver reports resources that it cannot park only when it tries. Before 13.0 a failed try ends the process.
// Managed memory and shared memory are not visible from outside: every CUDA program has /dev/nvidia-uvm open and
// mapped. So before 13.0 the owner must vouch for the program. Visible obstacles are refused in any case.
bool Parker::survives_trying(const CheckpointCommand& command, CheckpointReply& reply) const {
  const NcclLook nccl = target_.nccl();
  const bool undoes = driver_->undoes_checkpoints();
  if (nccl.shares && (command.devices > 1 || !undoes)) {
    return refuse(reply, CheckpointRefusal::not_parkable,
                  fmt::format("process {} shares memory with other processes by NCCL, so locking it would block them",
                              target_.pid()));
  }
  if (undoes) return true;
  const int version = driver_->version();
  const std::string driver = fmt::format("the driver (CUDA {}.{})", version / 1000, version % 1000 / 10);
  if (nccl.links) {
    return refuse(reply, CheckpointRefusal::not_parkable,
                  fmt::format("process {} uses NCCL, and {} would kill it in the attempt", target_.pid(), driver));
  }
  if (command.devices > 1) {
    return refuse(
        reply, CheckpointRefusal::not_parkable,
        fmt::format(
            "its program is on {} devices, and {} kills a program with peer access between devices in the attempt",
            command.devices, driver));
  }
  if (command.vouched) return true;
  return refuse(reply, CheckpointRefusal::owner_must_vouch,
                fmt::format("{} kills a program that it tries and fails to park, and it is unknown "
                            "whether process {} uses {}",
                            driver, target_.pid(), cannot_park));
}

void Parker::preflight(const CheckpointCommand& command, CheckpointReply& reply) {
  if (!may_trace(reply) || !untraced(reply)) return;
  std::optional<Watch> watch;
  guard(watch, false);
  const CudaCode code = timed(reply, [&](const CudaApi& api) { return api.state(target_.pid(), reply.state); });
  if (code != CudaCode::success && ended_meanwhile(reply)) return;
  if (code == CudaCode::not_initialized || code == CudaCode::invalid_value) {
    refuse(reply, CheckpointRefusal::no_cuda, fmt::format("process {} uses no CUDA ({})", target_.pid(), reply.name));
  } else if (code == CudaCode::not_supported) {
    refuse(reply, CheckpointRefusal::unsupported_driver, "the driver cannot park processes");
  } else if (code != CudaCode::success) {
    refuse(reply, CheckpointRefusal::driver,
           fmt::format("the driver returned {} for process {}", reply.name, target_.pid()));
  } else if (reply.state != ParkState::running) {
    refuse(reply, CheckpointRefusal::wrong_state,
           fmt::format("process {} is already {}", target_.pid(), to_string(reply.state)));
  } else {
    survives_trying(command, reply);
  }
}

void Parker::state(CheckpointReply& reply) {
  std::optional<Watch> watch;
  guard(watch, false);
  const CudaCode code = timed(reply, [&](const CudaApi& api) { return api.state(target_.pid(), reply.state); });
  if (code == CudaCode::success || ended_meanwhile(reply) || refused_itself(reply, code)) return;
  refuse(reply, CheckpointRefusal::driver,
         fmt::format("the driver returned {} for process {}", reply.name, target_.pid()));
}

void Parker::step(CheckpointReply& reply, CudaCode (CudaApi::*call)(int) const, ParkState afterwards) {
  const CudaCode code = change(reply, [&](const CudaApi& api) { return (api.*call)(target_.pid()); });
  if (code != CudaCode::success) return failed(reply, code);
  reply.state = afterwards;
  waits_for_us_ = afterwards == ParkState::locked;
}

void Parker::lock(const CheckpointCommand& command, CheckpointReply& reply) {
  const bool waited = std::exchange(waits_for_us_, true);  // true until it is known that the process does not wait
  const CudaCode code = change(reply, [&](const CudaApi& api) { return api.lock(target_.pid(), command.timeout); });
  if (code == CudaCode::success) {
    reply.state = ParkState::locked;
    return;
  }
  failed(reply, code);
  waits_for_us_ = waited;
  if (code != CudaCode::not_ready) return;
  // After a lock that timed out, the process must end up unlocked, whatever state the driver left.
  if (reply.state == ParkState::locked) {
    unlock_at_last();
    reply.state = ask_state();
  }
  refuse(reply, CheckpointRefusal::timeout,
         fmt::format("process {} did not finish its GPU work within {} ms", target_.pid(), command.timeout.count()));
}

bool Parker::hold(const CheckpointCommand& command, CheckpointReply& reply) {
  std::optional<Watch> watch;
  guard(watch, false);
  ballast_.clear();
  for (const BallastWish& wish : command.ballast) {
    auto taken = driver_->take(wish.uuid, wish.bytes, wish.margin);
    if (!taken) {
      ballast_.clear();
      return refuse(reply,
                    taken.error().code == Code::Unavailable ? CheckpointRefusal::driver : CheckpointRefusal::no_room,
                    taken.error().detail);
    }
    ballast_.push_back(std::move(*taken));
  }
  return true;
}

// Returns whether the driver was called.
bool Parker::try_restore(const CheckpointCommand& command, CheckpointReply& reply) {
  const auto start = Clock::now();
  const bool may = untraced(reply) && (command.ballast.empty() || hold(command, reply));
  if (!may) {
    reply.state = ask_state();
    return false;
  }
  ballast_.clear();
  reply.prepared = std::chrono::duration_cast<Duration>(Clock::now() - start);
  step(reply, &CudaApi::restore, ParkState::locked);
  return true;
}

void Parker::restore(const CheckpointCommand& command, CheckpointReply& reply) {
  if (!try_restore(command, reply)) return;
  const auto failed_with = [&](CudaCode code) {
    return reply.refusal == CheckpointRefusal::driver && reply.code == static_cast<int>(code);
  };
  if (failed_with(CudaCode::operating_system) && reply.state == ParkState::checkpointed) {
    // The driver returns this code after a failed restore, and also for a process that a debugger holds. The debugger
    // may have gone before we looked. A restore that was never begun can be repeated.
    reply = {.id = reply.id, .call = reply.call};
    if (!try_restore(command, reply)) return;
  }
  // The restore was not begun if the state does not allow it or a debugger holds the process. A restore that was begun
  // and failed cannot be repeated.
  reply.final = reply.refusal == CheckpointRefusal::driver && !failed_with(CudaCode::illegal_state) &&
                !failed_with(CudaCode::invalid_value) && !failed_with(CudaCode::not_supported) &&
                !failed_with(CudaCode::not_initialized);
}

CheckpointReply Parker::carry_out(const CheckpointCommand& command) {
  CheckpointReply reply;
  reply.id = command.id;
  reply.call = command.call;
  if (may_proceed(command, reply)) {
    switch (command.call) {
      case CheckpointCall::preflight: preflight(command, reply); break;
      case CheckpointCall::state: state(reply); break;
      case CheckpointCall::lock: lock(command, reply); break;
      case CheckpointCall::checkpoint: step(reply, &CudaApi::checkpoint, ParkState::checkpointed); break;
      case CheckpointCall::hold: hold(command, reply); break;
      case CheckpointCall::restore: restore(command, reply); break;
      case CheckpointCall::unlock: step(reply, &CudaApi::unlock, ParkState::running); break;
    }
  }
  for (const auto& part : ballast_) reply.held += part.held();
  reply.resident = target_.gone() ? Bytes{} : target_.look().resident;
  return reply;
}

void Parker::unlock_at_last() {
  CheckpointReply nobody_reads;
  change(nobody_reads, [&](const CudaApi& api) { return api.unlock(target_.pid()); });
  waits_for_us_ = false;
}

void Parker::leave() {
  if (waits_for_us_ && driver_ && !target_.gone()) unlock_at_last();
  ballast_.clear();
}

int serve_checkpoint(int socket, ProcessRef target, const std::string& driver) {
  Parker parker(target, driver, socket);
  const int status = serve_lines(socket, max_checkpoint_line, [&](std::string_view line) -> std::optional<std::string> {
    const auto command = decode_checkpoint_command(line);
    if (!command) return std::nullopt;
    return encode(parker.carry_out(*command));
  });
  parker.leave();
  return status;
}

}  // namespace sublet::gpu
