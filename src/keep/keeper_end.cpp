// SPDX-License-Identifier: Apache-2.0
// The keeper's part at the end: its program ends or is ended, and the end is recorded and reported.
#include "keep/keeper.h"

#include "base/clock.h"
#include "base/text.h"
#include "proc/exit_record.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

namespace sublet::keep {

using namespace std::chrono_literals;
using nlohmann::json;

void Keeper::reap() {
  bool children_left = false;
  for (;;) {
    int status = 0;
    const pid_t pid = ::waitpid(-1, &status, WNOHANG | WUNTRACED);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) {
      children_left = pid == 0;
      break;
    }
    if (!child_ || pid != child_->pid()) continue;
    if (WIFSTOPPED(status)) on_stopped(WSTOPSIG(status));
    else on_main_ended(status);
  }
  if (phase_ == Phase::main_ended) check_tree(children_left);
}

void Keeper::on_main_ended(int status) {
  main_status_ = status;
  // The daemon measures the same grace, and may be first.
  if (stopping_ && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) say_killed();
  if (phase_ == Phase::held) {  // the child was killed before it ran
    phase_ = Phase::tree_ended;
    return events_.cancel();
  }
  if (!exec_done_) on_exec();
  phase_ = Phase::main_ended;
  if (grouping_ == Grouping::own && terminal_ && terminal_.foreground() == child_->pid()) {
    if (WIFSIGNALED(status) && (WTERMSIG(status) == SIGINT || WTERMSIG(status) == SIGQUIT)) key_pressed_ = true;
    // The rest of the tree is in the background now. The terminal's keys come to us, and we pass them on.
    terminal_.set_foreground(::getpgrp());
  }
}

void Keeper::check_tree(bool children_left) {
  if (children_left) {
    const auto left = tree_->processes();
    if (!left || !left->empty()) {
      // Descendants that end within a second need no message.
      if (!std::exchange(told_, true)) tell_timer_.set(1s, [this] { tell_of_descendants(); });
      return;
    }
  }
  phase_ = Phase::tree_ended;
  tell_timer_.clear();
  undelivered_timer_.clear();
  stop_timer_.clear();
  events_.cancel();
}

void Keeper::tell_of_descendants() {
  const auto left = tree_->processes();
  if (!left || left->empty()) return;
  const proc::ProcessInfo& one = left->front();
  listener_.say(fmt::format("{} has ended ({}); waiting for {} of its processes, among them {} (pid {})",
                            printable(program_), describe_end(main_status_), left->size(), printable(one.comm),
                            one.ref.pid));
  listener_.note("main_ended", {{"processes_left", left->size()}});
}

void Keeper::begin_stop(const std::string& why, Duration grace) {
  if (std::exchange(stopping_, true)) return;
  // A stop is asked for; every other end is news.
  (why == "stopped" ? listener_.say : listener_.fail)(fmt::format(
      "{} is {}: ending the program (SIGTERM, after {} SIGKILL)", lease_.id, why, format_duration(grace)));
  listener_.note("stopping", {{"reason", why}, {"grace_seconds", grace / 1s}});
  if (!lease_.signalled) (void)tree_->signal(SIGTERM);
  (void)tree_->signal(SIGCONT);  // a stopped process could not react to SIGTERM
  stop_timer_.set(grace, [this] { kill_tree(); });
}

void Keeper::say_killed() {
  if (!std::exchange(kill_said_, true))
    listener_.say(fmt::format("{}: the program did not end after SIGTERM; sending SIGKILL", lease_.id));
}

void Keeper::kill_tree() {
  say_killed();
  // The next pass finds processes that were forked while the table was read.
  const auto sent = tree_->signal(SIGKILL);
  stop_timer_.set(sent && *sent > 0 ? 20ms : 500ms, [this] { kill_tree(); });
}

void Keeper::report() {
  json body = json::object();
  proc::ExitRecord record;
  record.ended_at = SystemClock().now();
  if (WIFSIGNALED(main_status_)) body["signal"] = *(record.signal = WTERMSIG(main_status_));
  else body["exit_status"] = *(record.exit_status = WEXITSTATUS(main_status_));
  record.forwarded = record.signal && forwarded_.contains(*record.signal);
  if (record.forwarded) body["forwarded"] = true;
  if (exec_failure_) body["failed"] = exec_failure_->detail(program_);
  // The system shuts down, probably without the daemon. From a record, the daemon would take this for the program's own
  // end, and not start the program at the next boot.
  const bool shutdown = supervised_ && !stopping_ && forwarded_.contains(SIGTERM);
  bool recorded = false;
  // A program that could not be started has no exit status. A record would tell the daemon that it ran.
  if (const auto id = parse_lease_id(lease_.id); id && !lease_.exit_record.empty() && !exec_failure_ && !shutdown) {
    record.lease = *id;
    const auto written = proc::write_exit_record(lease_.exit_record, record);
    if (written) recorded = true;
    else listener_.fail(written.error().detail);
  }
  auto release = request("POST", "/release", body);
  release.idempotency_key = client::new_idempotency_key();
  client::Patience brief;
  brief.limit = 3s;
  auto answer = client_.insist(release, brief, 10s);
  if (!answer && answer.error().passing() && !shutdown) {
    listener_.say(fmt::format("the program has ended ({}); waiting up to a minute for the daemon, to report this",
                              describe_end(main_status_)));
    brief.limit = 57s;
    answer = client_.insist(release, brief, 10s);
  }
  if (answer || answer.error().kind == client::FailureKind::answered) return;
  listener_.fail(fmt::format(
      "the end of {} was not reported to the daemon: {}{}", lease_.id, answer.error().error.detail,
      recorded ? "; the daemon reads the exit record when it is back" : "; the daemon will not know the exit status"));
}

Outcome Keeper::outcome() const {
  if (exec_failure_) return {exec_failure_->status()};
  if (!WIFSIGNALED(main_status_)) return {WEXITSTATUS(main_status_)};
  const int signal = WTERMSIG(main_status_);
  const bool interrupted = terminal_ && key_pressed_ && (signal == SIGINT || signal == SIGQUIT);
  return {128 + signal, interrupted ? signal : 0, signal};
}

}  // namespace sublet::keep
