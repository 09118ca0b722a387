// SPDX-License-Identifier: Apache-2.0
#include "keep/keeper.h"

#include "base/text.h"
#include "keep/interpreter.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace sublet::keep {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

constexpr Duration poll_wait = 60s;
constexpr Duration delivered_in = 500ms;  // a process without a handler for the signal has ended by then

// Whether the end reason also ends a living program that Sublet started. After other reasons the program runs on.
bool ends_program(const std::string& reason) {
  return reason == "expired" || reason == "revoked" || reason == "over_limit";
}

}  // namespace

client::Patience patience(const Listener& listener) {
  client::Patience patience;
  patience.say = [&listener](const Error& error, Duration away) {
    listener.say(fmt::format("{}; no answer for {}, retrying every 5 s", error.detail, format_duration(away)));
  };
  return patience;
}

std::string news(const client::Lease& lease) {
  if (lease.state == "active") return lease.id + " runs again";
  if (lease.state == "paused" && !lease.resume_requested)
    return fmt::format("{0} is paused: {1}; `sublet resume {0}` resumes it", lease.id, lease.pause_reason);
  if (lease.state == "paused")
    return fmt::format("{0} is paused; `sublet why {0}` shows the preemptor and when it resumes", lease.id);
  if (lease.state == "poisoned")
    return fmt::format("{0} is poisoned: {1}. Its program can never run again; `sublet stop {0}` ends it", lease.id,
                       lease.pause_reason);
  return {};
}

Keeper::Keeper(client::Client& client, Events& events, Signals& signals, Listener listener, client::Lease lease,
               std::string token)
    : client_(client),
      events_(events),
      signals_(signals),
      listener_(std::move(listener)),
      lease_(std::move(lease)),
      token_(std::move(token)),
      stop_timer_(events),
      tell_timer_(events),
      undelivered_timer_(events) {}

client::Request Keeper::request(const char* method, const std::string& call, const json& body) const {
  return {method,
          fmt::format("/v1/leases/{}{}", client::encode(lease_.id), call),
          body.is_null() ? "" : client::to_text(body),
          {},
          token_};
}

Outcome Keeper::run(const Launch& launch) {
  program_ = launch.file();
  supervised_ = launch.supervised;
  events_.watch(signals_.fd(), [this] {
    while (const auto signal = signals_.next()) on_signal(*signal);
  });
  auto tree = Tree::open();
  if (!tree) return give_up(tree.error().detail, 125);
  tree_ = std::move(*tree);
  // Orphans of the program stay below us: we can wait for them, and the daemon sees their lease.
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return give_up("cannot become a subreaper", 125);
  grouping_ = terminal_.grouping();
  auto child = Child::fork(launch, signals_, grouping_);
  if (!child) return give_up(child.error().detail, 125);
  child_ = std::move(*child);
  if (!book()) {
    child_->abandon();
    if (phase_ == Phase::tree_ended)
      return give_up(fmt::format("the program ended before it was started ({})", describe_end(main_status_)), 125);
    ::waitpid(child_->pid(), nullptr, 0);
    Outcome left = give_up("", leave_by_ != 0 ? 128 + leave_by_ : 125);
    if (leave_by_key_) left.interrupted_by = leave_by_;
    left.ended_by = leave_by_;
    return left;
  }
  start();
  watch_lease();
  events_.resume();
  if (listener_.ended) listener_.ended(exec_failure_ ? exec_failure_->detail(program_) : describe_end(main_status_));
  report();
  events_.forget(signals_.fd());
  return outcome();
}

// No program was started: the lease is released.
Outcome Keeper::give_up(const std::string& why, int code) {
  if (!why.empty()) listener_.fail(why);
  events_.resume();
  client::Patience short_one;
  short_one.limit = 5s;
  const json body = why.empty() ? json::object() : json{{"failed", why}};
  // If the release fails, the end of the connection releases the lease, because the connection still owns it.
  (void)client_.insist(request("POST", "/release", body), short_one, 5s);
  events_.forget(signals_.fd());
  return {code};
}

// Books the held child to the lease. False if the child must not start.
bool Keeper::book() {
  const json body{{"pid", child_->pid()}, {"keeper_pid", ::getpid()}, {"owner", true}};
  const auto answer = client_.insist(request("POST", "/attach", body), patience(listener_));
  if (answer && phase_ == Phase::held && leave_by_ == 0) {
    const auto lease = client::parse_lease(answer->text);
    if (lease) lease_ = *lease;
    return true;
  }
  if (!answer && answer.error().kind != client::FailureKind::cancelled) {
    listener_.fail(fmt::format("{} could not be attached to the program, which was not started: {}", lease_.id,
                               answer.error().error.detail));
  }
  return false;
}

void Keeper::start() {
  phase_ = Phase::running;
  events_.watch(child_->exec_fd(), [this] { on_exec(); });
  if (grouping_ == Grouping::own && terminal_.foreground() == ::getpgrp()) terminal_.set_foreground(child_->pid());
  if (listener_.starting) listener_.starting(child_->pid());
  child_->let_go();
}

void Keeper::on_exec() {
  events_.forget(child_->exec_fd());
  exec_failure_ = child_->exec_result();
  exec_done_ = true;
  if (exec_failure_) {
    if (auto known = find_program(program_); known && known->errnum == exec_failure_->errnum) exec_failure_ = known;
    listener_.fail(exec_failure_->detail(program_));
    return;
  }
  listener_.note("started", {{"pid", child_->pid()}});
}

void Keeper::watch_lease() {
  while (!events_.cancelled()) {
    const auto call = fmt::format("?wait={}s&since={}&stopping=false", poll_wait / 1s, client::encode(lease_.state));
    const auto answer = client_.insist(request("GET", call, nullptr), patience(listener_), poll_wait + 30s);
    if (!answer) {
      if (answer.error().kind == client::FailureKind::cancelled) break;
      listener_.fail(
          fmt::format("{}: {}. The program continues without a lease.", lease_.id, answer.error().error.detail));
      break;
    }
    auto lease = client::parse_lease(answer->text);
    if (!lease) {
      client_.pause(1s);
      continue;
    }
    const std::string before = std::exchange(lease_, std::move(*lease)).state;
    if (lease_.granted() && lease_.state != before) tell_state(before);
    if (lease_.stopping || (lease_.ended() && ends_program(lease_.end_reason))) {
      begin_stop(lease_.ended() ? lease_.end_reason : "stopped", lease_.stop_grace);
      break;
    }
    if (lease_.ended()) {
      listener_.fail(
          fmt::format("{} ended ({}). The program continues without a lease.", lease_.id, lease_.end_reason));
      break;
    }
  }
  while (!events_.cancelled()) client_.pause(1h);
}

// Without this message, a paused program would seem to hang.
void Keeper::tell_state(const std::string& before) {
  json fields{{"lease", lease_.id}};
  std::string line = news(lease_);
  if (lease_.state == "poisoned") fields["reason"] = lease_.pause_reason;
  if (lease_.state == "paused") was_paused_ = true;
  const bool back = lease_.state == "active" && (before == "pausing" || before == "resuming");
  if (back && !std::exchange(was_paused_, false)) {
    if (const client::Undone undone = why_undone(); !undone.why.empty()) {
      fields["undone"] = undone.why;
      line = fmt::format("{} runs {}: {}", lease_.id, undone.begun ? "again" : "on", undone.text());
    }
  }
  listener_.note(lease_.state == "active" ? "resumed" : lease_.state.c_str(), fields);
  if (line.empty()) return;
  (lease_.state == "poisoned" ? listener_.fail : listener_.say)(line);
}

// The program runs again, but no pause was seen. The pause may have been too short to be seen.
client::Undone Keeper::why_undone() {
  const auto answer = client_.call(request("GET", "/why", nullptr), 3s);
  return answer ? client::why_undone(json::parse(answer->text, nullptr, false)) : client::Undone();
}

// --- signals, the terminal

void Keeper::on_signal(const Signal& signal) {
  switch (signal.number) {
    case SIGCHLD: return reap();
    case SIGCONT: return continue_program();
    case SIGINT:
    case SIGQUIT: key_pressed_ = key_pressed_ || signal.from_kernel; [[fallthrough]];
    case SIGTERM:
    case SIGHUP:
      if (phase_ == Phase::held || phase_ == Phase::tree_ended) {
        leave_by_ = signal.number;
        leave_by_key_ = signal.from_kernel;
        return events_.cancel();
      }
      pass_on(signal);
      return undelivered_timer_.set(delivered_in,
                                    [this, name = signal_name(signal.number)] { report_undelivered_signal(name); });
    case SIGTSTP:
      if (phase_ == Phase::held || phase_ == Phase::tree_ended ||
          (grouping_ == Grouping::shared && signal.from_kernel)) {
        signals_.stop_self(SIGTSTP);
        return continue_program();
      }
      stop_with_program_ = true;
      return pass_on(signal);
    default:
      if (phase_ == Phase::running || phase_ == Phase::main_ended) pass_on(signal);
  }
}

void Keeper::pass_on(const Signal& signal) {
  const int number = signal.number;
  forwarded_.insert(number);
  if (phase_ == Phase::main_ended) {
    // The terminal has already sent the signal to our whole group.
    if (number != SIGWINCH) (void)tree_->signal(number, signal.from_kernel);
    return;
  }
  if (grouping_ == Grouping::shared) {
    if (!signal.from_kernel) ::kill(child_->pid(), number);
    return;
  }
  // Signals the whole job, as the terminal would. SIGUSR1 and SIGUSR2 go only to the main process, because they end
  // programs that do not expect them. Neither pid nor group can be reused: the child is not reaped yet.
  const bool main_only = number == SIGUSR1 || number == SIGUSR2;
  ::kill(main_only ? child_->pid() : -child_->pid(), number);
}

// A program that handles the signal itself may wait for the driver until it is resumed.
void Keeper::report_undelivered_signal(const std::string& signal) {
  if (phase_ != Phase::running || stopping_) return;
  if (lease_.state == "poisoned") return listener_.say(news(lease_));
  if (lease_.state != "paused" && lease_.state != "pausing" && lease_.state != "resuming") return;
  const std::string when =
      lease_.state == "paused" && !lease_.resume_requested ? fmt::format(" (`sublet resume {}`)", lease_.id) : "";
  listener_.say(fmt::format(
      "{} is {}: its program got {} and is alive; it may react only when it runs again{}. `kill -KILL {}` ends it now",
      lease_.id, lease_.state, signal, when, child_->pid()));
}

void Keeper::on_stopped(int signal) {
  const bool for_terminal = signal == SIGTTIN || signal == SIGTTOU;
  if (grouping_ == Grouping::own && terminal_ && for_terminal && terminal_.foreground() == ::getpgrp()) {
    return continue_program();  // `fg` gave the terminal to us without a signal, and the program wants the terminal now
  }
  const bool asked = std::exchange(stop_with_program_, false);
  // In our own group the shell has stopped us too. Without a terminal, the program was stopped on purpose.
  if (!asked && (grouping_ == Grouping::shared || !terminal_)) return;
  signals_.stop_self(signal == SIGSTOP ? SIGTSTP : signal);
  continue_program();
}

void Keeper::continue_program() {
  if (phase_ != Phase::running || grouping_ == Grouping::shared) return;
  if (terminal_.foreground() == ::getpgrp()) terminal_.set_foreground(child_->pid());
  ::kill(-child_->pid(), SIGCONT);
}

}  // namespace sublet::keep
