// SPDX-License-Identifier: Apache-2.0
// `sublet run`: a lease, a program under it, the program's exit status.
#include "cli/run.h"

#include "base/size_bounds.h"
#include "cli/acquire.h"
#include "cli/fetch.h"
#include "cli/nested.h"
#include "cli/notify.h"
#include "cli/shim_run.h"
#include "cli/start_check.h"
#include "keep/container_follow.h"
#include "keep/elsewhere.h"
#include "keep/environment.h"
#include "keep/interpreter.h"
#include "keep/preload.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

namespace sublet::cli {
namespace {

using nlohmann::json;

// The advice about a program that cannot be executed.
std::string exec_hint(const std::string& program) {
  if (program.find(' ') != std::string::npos)
    return "give the program and its arguments as words of their own, without quotes around all of them";
  return program.find('/') == std::string::npos ? "check the name, or give the path of the program"
                                                : "check the path, and who may execute the file";
}

// Prints why exec fails, and returns the exit status as of a shell.
int refuse_program(const Common& common, const RunFlags& flags, const std::string& program) {
  auto failure = keep::find_program(program);
  if (!failure) return 0;
  const bool missing = failure->status() == 127;
  const std::string usual = flags.shim ? real_hint(flags.shim->name) : exec_hint(program);
  (void)fail(common, Error{missing ? Code::NotFound : Code::BadRequest, failure->detail(program),
                           failure->hint.empty() ? usual : failure->hint});
  return failure->status();
}

class Run {
 public:
  Run(const Common& common, const RunFlags& flags, client::Client client)
      : common_(common),
        flags_(flags),
        command_(*common.command),
        client_(std::move(client)),
        consumer_(flags.lease.name.empty() ? consumer_of(command_) : Consumer{flags.lease.name}) {}

  int go();

 private:
  const Common& common_;
  RunFlags flags_;
  const std::vector<std::string>& command_;
  client::Client client_;
  Consumer consumer_;
  json status_;
  std::vector<keep::Limit> limits_;  // of the caller, for the program

  const std::string& file() const { return flags_.shim ? flags_.shim->real : command_.front(); }
  bool fits_outer(const client::Lease& outer) const;
  int refuse_share(const client::Lease& outer) const;
  int become(const client::Lease& outer, Talk& talk);
  void take_environment_of(const client::Lease& outer) const;
  void warn_of_devices(Talk& talk) const;
  void warn_of_others(Talk& talk) const;
  int run_under_lease(Talk& talk);
  int supervise(Talk& talk, keep::Events& events, keep::Signals& signals, Acquired acquired);
  void say_granted(Talk& talk, const Acquired& acquired) const;
};

int Run::go() {
  const auto reply = flags_.shim ? meet_for_shim(common_, *flags_.shim, client_) : meet(common_, client_);
  if (!reply && flags_.shim && may_run_without_daemon(*flags_.shim, reply.error()))
    return run_without_daemon(*flags_.shim, command_, reply.error());
  if (!reply) return our_code(fail(common_, reply.error()));
  const auto body = client::parse(*reply);
  if (!body) return our_code(fail(common_, body.error()));
  status_ = *body;
  // The program inherits the variables from us.
  if (flags_.lease.interposer)
    if (const auto done = keep::interpose_self(status_); !done) return our_code(fail(common_, done.error()));
  Look look = look_for(common_);
  learn_devices(status_, look);
  Talk talk(common_, flags_.status_fd.value_or(-1), common_.json, look);
  // The stderr of a shim is that of its program, as long as nothing is in the way.
  const auto taken = take_wish(flags_.lease, client_, status_, flags_.shim ? nullptr : &talk);
  if (!taken) return our_code(fail(taken.error()));
  const auto outer = outer_lease(client_, status_);
  if (outer && flags_.shim) {
    take_environment_of(*outer);
    return exec_program(file(), command_, real_hint(flags_.shim->name));
  }
  if (outer && fits_outer(*outer)) {
    if (flags_.lease.share && *flags_.lease.share != outer->share) return refuse_share(*outer);
    return become(*outer, talk);
  }
  return run_under_lease(talk);
}

// Memory that is left in the outer lease is used without a request: a request could wait for ever, behind ourselves.
bool Run::fits_outer(const client::Lease& outer) const {
  const auto& wanted = flags_.lease;
  const auto devices = static_cast<int>(outer.devices.size());
  const Bytes vram = wanted.all ? whole_size(wanted, status_) : wanted.vram.value_or(wanted.memory.value_or(Bytes{}));
  if (wanted.gpus > devices || vram > outer.vram) return false;
  if (wanted.gpus * vram > devices * outer.vram - outer.used) return false;  // `used` is over all of its devices
  const auto& devices_here = list_at(status_, "devices");
  return std::ranges::count_if(devices_here, [&](const json& device) {
           return device_matches(device, wanted) && std::ranges::count(outer.devices, text_at(device, "uuid")) > 0;
         }) >= wanted.gpus;
}

int Run::refuse_share(const client::Lease& outer) const {
  const std::string its = outer.share > 0 ? fmt::format("has a share of {} %", outer.share) : "has no share";
  return our_code(fail(common_, bad_request(fmt::format("{}, which this program is in, {}", outer.id, its),
                                            "a share is of a lease: give --share where that lease begins")));
}

int Run::become(const client::Lease& outer, Talk& talk) {
  if (flags_.lease.dry_run) {
    if (common_.json) fmt::print("{}\n", json{{"would", "start"}, {"inside", outer.id}}.dump());
    else fmt::print("The program would start at once, inside {} ({}).\n", outer.id, format_size_down(outer.vram));
    return kOk;
  }
  talk.say(fmt::format("already inside {} ({}): using that lease", outer.id, format_size_down(outer.vram)));
  talk.note("nested", {{"lease", outer.id}});
  take_environment_of(outer);
  return exec_program(file(), command_, exec_hint(file()));
}

// A caller that was attached to the lease later, or that lost its variables, has to be told the devices.
void Run::take_environment_of(const client::Lease& outer) const {
  if (has_environment_of(outer)) return;
  const auto variables = keep::program_environment(environ, client_.endpoint(), outer, status_);
  ::clearenv();
  for (const std::string& variable : variables) {
    const auto equals = variable.find('=');
    if (equals != std::string::npos)
      ::setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
  }
}

void Run::warn_of_devices(Talk& talk) const {
  const auto& devices = list_at(status_, "devices");
  const bool real = std::any_of(devices.begin(), devices.end(), [&](const json& device) {
    return !flag_at(device, "simulated") && device_matches(device, flags_.lease);
  });
  if (!real) return;
  if (const std::string warning = unusable_device_files("/dev"); !warning.empty()) talk.say("warning: " + warning);
}

// The lease follows the descendants of the command, and containers. Other work is no part of the lease.
void Run::warn_of_others(Talk& talk) const {
  if (flags_.shim) return;
  const char* docker_host = std::getenv("DOCKER_HOST");
  for (const std::string& warning : keep::warnings_of_others(command_, docker_host != nullptr ? docker_host : ""))
    talk.say("warning: " + warning);
}

int Run::run_under_lease(Talk& talk) {
  limits_ = keep::raise_limits();
  keep::Signals signals;  // a write beyond the caller's file-size limit fails, and ends nothing
  const auto size = choose_size(flags_.lease, consumer_, status_, client_);
  if (!size) return our_code(fail(size.error()));
  if (!size->why.empty()) talk.say(fmt::format("asking for {}: {}", format_size_down(size->bytes), size->why));
  Wanted wanted;
  wanted.verb = common_.verb;
  wanted.json = common_.json;
  wanted.body = lease_body(flags_.lease, consumer_.name, size->bytes);
  wanted.body["command"] = shown_command(command_);
  wanted.body["owner"] = {{"connection", true}};
  if (flags_.lease.no_wait) wanted.body["queue"] = false;
  if (flags_.keep_running) wanted.body["keep_running"] = true;
  if (flags_.lease.dry_run) return our_code(dry_run(common_, client_, wanted.body, talk.line().look()));
  // Before anything is asked for: a lease that no program can be booked to would only be taken and given back.
  if (const auto may = check_caller(client_); !may) {
    talk.note("refused", {{"code", to_string(may.error().code)}, {"detail", may.error().detail}});
    return our_code(fail(may.error()));
  }
  warn_of_devices(talk);
  warn_of_others(talk);
  wanted.at_most = flags_.lease.wait;
  keep::Events events;
  client_.set_interrupt(events.interrupt());
  const keep::Listener listener = talk.listener();
  Acquire acquire(client_, events, signals, listener, talk.line());
  auto acquired = acquire.run(wanted);
  if (const int* code = std::get_if<int>(&acquired)) {
    talk.note("exit", {{"code", our_code(*code)}, {"by", "sublet"}});
    const int signal = flags_.shim ? acquire.left_by() : acquire.left_by_key();
    if (signal != 0) signals.die_of(signal);
    return our_code(*code);
  }
  return supervise(talk, events, signals, std::move(std::get<Acquired>(acquired)));
}

// The fate of a program that wants more than its lease has.
std::string told_limits(const json& told, const LeaseFlags& flags) {
  const auto ceiling = number_at(told, "memory_bytes");
  // The library finds its daemon by this variable, which an older daemon does not have.
  const bool is_limited = flags.interposer && std::getenv("SUBLET_CREDIT") != nullptr;
  std::string more = "a program that uses more is reported, not stopped";
  if (ceiling) more = fmt::format("a program that uses more than {} is ended", format_size_down(Bytes{*ceiling}));
  else if (is_limited) more = "an allocation beyond that is refused";
  if (is_limited && flags.share) more += fmt::format("; at most {} % of the computing time", *flags.share);
  return more;
}

void Run::say_granted(Talk& talk, const Acquired& acquired) const {
  const client::Lease& lease = acquired.lease;
  std::string where = lease.devices.size() > 1 ? " on each of" : " on";
  for (std::size_t i = 0; i < lease.devices.size(); ++i)
    where += (i == 0                          ? " "
              : i + 1 == lease.devices.size() ? " and "
                                              : ", ") +
             device_name(lease.devices[i], talk.line().look());
  if (lease.vram < lease.asked_vram) where += fmt::format(", of the requested {}", format_size_down(lease.asked_vram));
  const std::string after =
      acquired.waited < std::chrono::seconds(1) ? "" : " after " + format_duration(acquired.waited);
  const bool silent = flags_.shim && after.empty();
  if (!silent)
    talk.say(fmt::format("{}: {}{}{} ({})", lease.id, format_size_down(lease.vram), where, after,
                         told_limits(acquired.told, flags_.lease)));
  talk.note("granted", {{"lease", lease.id}, {"devices", lease.devices}, {"vram_bytes", lease.vram.count}});
}

int Run::supervise(Talk& talk, keep::Events& events, keep::Signals& signals, Acquired acquired) {
  say_granted(talk, acquired);
  const std::string id = acquired.lease.id;
  if (!flags_.notify.empty() && acquired.waited >= flags_.notify_after.value_or(default_notify_after))
    send_notice({flags_.notify, flags_.lease.name.empty() ? program_name(command_) : flags_.lease.name, id,
                 acquired.lease.vram, acquired.waited},
                signals, flags_.status_fd.value_or(-1), [&talk](const std::string& line) { talk.fail(line); });
  // The program has its devices in the order in which the caller names them.
  if (flags_.lease.gpu.find(',') != std::string::npos) ::setenv("CUDA_VISIBLE_DEVICES", flags_.lease.gpu.c_str(), 1);
  keep::Launch launch{command_, keep::program_environment(environ, client_.endpoint(), acquired.lease, status_),
                      limits_};
  keep::Listener listener = talk.listener();
  std::unique_ptr<keep::ContainerFollow> follow;
  if (flags_.shim) launch.program = flags_.shim->real;
  else
    follow =
        keep::follow_container(launch, listener, client_.endpoint(), events, acquired.lease, acquired.token, status_);
  keep::Keeper keeper(client_, events, signals, std::move(listener), std::move(acquired.lease),
                      std::move(acquired.token));
  const keep::Outcome outcome = keeper.run(launch);
  talk.note("exit", {{"lease", id}, {"code", outcome.code}, {"by", outcome.code == kOurs ? "sublet" : "program"}});
  // The caller of a shim waits for the program, and must see its signal.
  const int signal = flags_.shim ? outcome.ended_by : outcome.interrupted_by;
  if (signal != 0) {
    std::fflush(nullptr);
    signals.die_of(signal);
  }
  return outcome.code;
}

}  // namespace

int run(const Common& common, const RunFlags& flags) {
  if (const auto refused = check_flags(common, flags)) return *refused;
  if (flags.status_fd) {
    if (const auto checked = check_status_fd(*flags.status_fd); !checked) return fail(checked.error());
  }
  // A program that cannot start must not wait in the queue.
  if (const auto present = check_directory(); !present) return our_code(fail(common, present.error()));
  const std::string program = flags.shim ? flags.shim->real : flags.command.empty() ? common.command->front() : "sh";
  if (const int code = refuse_program(common, flags, program); code != 0) return code;
  if (flags.indices) ::setenv("SUBLET_GPU_NAMES", "index", 1);
  if (flags.lease.interposer)
    if (const auto library = keep::find_interposer(); !library) return our_code(fail(common, library.error()));
  if (flags.is_supervised()) return our_code(run_detached(common, flags));
  auto client = connect(common);
  if (!client) return our_code(fail(client.error()));
  return Run(common, flags, std::move(*client)).go();
}

Action add_run(Command command, Common& common) {
  auto flags = std::make_shared<RunFlags>();
  add_run_flags(command, *flags);
  add_json(
      command, common,
      "Print changes of state as JSON lines on stderr, and a refusal as JSON on stdout; with --detach, the program");
  command.footer(
      "The program comes after '--': sublet run --vram 8GiB -- python3 train.py\n"
      "Without --gpu, CUDA_VISIBLE_DEVICES of the caller names the devices.\n"
      "With --detach, the daemon starts the program, and this command prints its tag.\n"
      "The program has your directory, limits, PATH, HOME, USER, LOGNAME, SHELL, LANG,\n"
      "LC_* and TZ. See also: sublet programs, status, logs, start, restart, remove.\n"
      "Exit status: the program's own, 128+N if signal N ended it; 124 gave up\n"
      "waiting, 125 sublet failed, 126 cannot be executed, 127 not found; 69, 75, 77\n"
      "as for every verb.");
  return [&common, flags] { return run(common, *flags); };
}

}  // namespace sublet::cli
