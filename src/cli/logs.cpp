// SPDX-License-Identifier: Apache-2.0
// `logs` and `session logs`: the output of a program, over restarts of the daemon.
#include "cli/logs.h"

#include "base/text.h"
#include "cli/fetch.h"
#include "cli/log_line.h"
#include "cli/program_verb.h"
#include "client/text_stream.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <climits>
#include <memory>
#include <utility>

namespace sublet::cli {
namespace {

using nlohmann::json;

constexpr Duration look_after = std::chrono::seconds(2);  // --follow: silence after which the program is looked at
constexpr Duration part_after = std::chrono::milliseconds(300);  // --follow: silence before an incomplete line is shown
constexpr Duration wait_at_most = std::chrono::seconds(60);

// True if the first line that is asked for is a mark, unless it was dropped. The logs of sessions have none.
bool begins_with_mark(const LogsFlags& flags) {
  return flags.target.starts_with("/v1/programs/") && !flags.no_marks && !flags.lines && !flags.since;
}

class Logs {
 public:
  Logs(const Common& common, const LogsFlags& flags, client::Endpoint endpoint)
      : common_(common),
        flags_(flags),
        endpoint_(std::move(endpoint)),
        look_(look_for(common)),
        terminal_(::isatty(STDOUT_FILENO) == 1),
        looks_at_begin_(begins_with_mark(flags)) {}

  int go();

 private:
  const Common& common_;
  const LogsFlags& flags_;
  client::Endpoint endpoint_;
  Look look_;
  bool terminal_;
  bool looks_at_begin_;    // the next line is the first line of the log
  std::string rest_;       // the beginning of a line whose end has not come
  std::string last_time_;  // of the last printed line; a new stream continues there
  int printed_ = 0;        // lines with that time, which a new stream sends again
  int skip_ = 0;
  bool has_output_ = false;  // the program has written a line
  std::size_t shown_ = 0;    // bytes of the text of `rest_` that were printed

  std::string target() const;
  bool take(const std::string& piece);
  void print(std::string_view line);
  void print_text(const LogLine& line);
  bool has_unshown_part() const;
  void print_part();
  void drop_part();
  bool goes_on() const;
  void explain_silence();
  int refuse(const client::Failure& failure) const;
  std::optional<int> read(client::TextStream& stream);
};

std::string Logs::target() const {
  std::string query = flags_.follow ? "?follow=true" : "?follow=false";
  const std::string since = !last_time_.empty() ? last_time_ : flags_.since ? to_query(*flags_.since) : "";
  if (!since.empty()) query += "&since=" + client::encode(since);
  if (flags_.no_marks) query += "&marks=false";
  if (flags_.lines && last_time_.empty()) query += fmt::format("&lines={}", *flags_.lines);
  return flags_.target + "/log" + query;
}

void Logs::print(std::string_view line) {
  const LogLine parsed = parse_log_line(line);
  if (!parsed.time.empty() && parsed.time != last_time_) {
    last_time_ = parsed.time;
    printed_ = skip_ = 0;
  }
  if (looks_at_begin_ && !begins_log(parsed))
    say(common_,
        "sublet: the beginning of this log was dropped: its files are limited (guard.log_max_size, "
        "guard.log_keep, guard.log_user_max)");
  looks_at_begin_ = false;
  if (skip_ > 0) {
    --skip_;
    return;
  }
  ++printed_;
  print_text(parsed);
  fmt::print("\n");
  shown_ = 0;
}

// Prints the part of the line that was not printed yet.
void Logs::print_text(const LogLine& line) {
  has_output_ |= !line.mark;
  if (line.mark) {
    fmt::print("{}", mark_text(line));
    return;
  }
  if (shown_ == 0 && flags_.timestamps && !line.time.empty()) fmt::print("{} ", line.time);
  if (shown_ == 0 && !flags_.timestamps && !flags_.no_marks && imitates_mark(line.text)) fmt::print(" ");
  const auto text = line.text.substr(std::min(shown_, line.text.size()));
  if (terminal_ && shown_ > 0 && text.find('\r') != std::string_view::npos) fmt::print("\r\x1b[K");
  fmt::print("{}", terminal_ ? for_terminal(text, look_.color) : std::string(text));
  shown_ = line.text.size();
}

bool Logs::has_unshown_part() const {
  const LogLine line = parse_log_line(rest_);
  return !line.time.empty() && !line.mark && line.text.size() > shown_ && !may_imitate_mark(line.text);
}

// Prints the beginning of a line whose end has not come.
void Logs::print_part() {
  if (!has_unshown_part()) return;
  print_text(parse_log_line(rest_));
  (void)std::fflush(stdout);
}

// Forgets an incomplete line.
void Logs::drop_part() {
  if (std::exchange(shown_, 0) > 0) fmt::print("\n");
  rest_.clear();
}

// False if the reader of stdout is gone.
bool Logs::take(const std::string& piece) {
  rest_ += piece;
  std::size_t at = 0;
  for (auto end = rest_.find('\n'); end != std::string::npos; end = rest_.find('\n', at)) {
    print(std::string_view(rest_).substr(at, end - at));
    at = end + 1;
  }
  rest_.erase(0, at);
  return std::fflush(stdout) == 0;
}

// Whether more output may come: the program runs or will be started again, or the daemon is away. A parked program may
// run again.
bool Logs::goes_on() const {
  client::Client client(endpoint_);
  const auto reply = client.get(flags_.target);
  if (!reply) return reply.error().passing();
  const auto program = client::parse(*reply);
  if (!program) return false;
  const std::string state = text_at(*program, "state");
  return state != "stopped" && state != "exited" && state != "failed" && state != "closed";
}

// Prints the stream. Returns the exit code once the command is done; nothing if it has to connect again.
std::optional<int> Logs::read(client::TextStream& stream) {
  drop_part();  // a new stream begins with this line again
  skip_ = printed_;
  bool has_part = false, over = false;
  while (const auto piece = stream.next(!flags_.follow ? wait_at_most : has_part ? part_after : look_after)) {
    if (!piece->empty() && !take(*piece)) return kFailed;
    if (piece->empty() && !flags_.follow) break;
    if (piece->empty() && has_part) print_part();
    else if (piece->empty() && (over = !goes_on())) break;
    has_part = has_unshown_part();
  }
  if (flags_.follow && !over && (!stream.complete() || goes_on())) return std::nullopt;
  print_part();
  drop_part();
  if (stream.complete()) explain_silence();
  if (over || stream.complete()) return kOk;
  print_error("the daemon did not send the log to its end", "repeat the command");
  return kFailed;
}

// A whole log without a line of the program.
void Logs::explain_silence() {
  if (has_output_ || flags_.follow || flags_.lines || flags_.since || !goes_on()) return;
  say(common_, fmt::format("sublet: {} has written nothing yet; a program that buffers its output writes it late: "
                           "start it by `stdbuf -oL PROGRAM`, or have it flush its output",
                           visible(flags_.name)));
}

// The programs of `sublet run` in the foreground write to the terminal of their caller.
int Logs::refuse(const client::Failure& failure) const {
  const bool is_session = flags_.target.starts_with("/v1/sessions/");
  if (failure.error.code != Code::NotFound || is_session) return fail(common_, failure);
  client::Client client(endpoint_);
  const auto reply = client.get("/v1/leases/" + client::encode(flags_.name));
  const auto lease = reply ? client::parse(*reply) : client::Answer<nlohmann::json>(failure);
  if (!lease) return fail(common_, failure);
  Error error = failure.error;
  error.detail = fmt::format("{} ({}) has no log: Sublet keeps the output of supervised programs alone",
                             text_at(*lease, "id"), visible(text_at(*lease, "consumer")));
  error.hint =
      "the output of a program in the foreground goes where sublet run wrote; start it by sublet run --detach "
      "to have a log";
  return fail(common_, error);
}

int Logs::go() {
  client::TextStream stream(endpoint_);
  bool connected = false;
  for (bool told = false;; ::poll(nullptr, 0, 500)) {
    if (auto opened = stream.open(target()); !opened) {
      if (!connected || !opened.error().passing()) return refuse(opened.error());
      if (!std::exchange(told, true)) say(common_, "the daemon does not answer; waiting until it is back");
      continue;
    }
    connected = true;
    told = false;
    if (const auto code = read(stream)) return *code;
  }
}

}  // namespace

int print_log(const Common& common, const LogsFlags& flags) {
  const auto endpoint = client::resolve_endpoint(common.host);
  if (!endpoint) return fail(endpoint.error());
  return Logs(common, flags, *endpoint).go();
}

void declare_logs(Command command, const std::shared_ptr<LogsFlags>& flags) {
  command.flag("-f,--follow", flags->follow, "Go on with new lines until the program has ended for good");
  command.option("-n,--lines", flags->lines, "Print only the last lines, so many").type("N").between(0, INT_MAX);
  command.moment("--since", flags->since, Tense::past,
                 "Print only lines from this time on: a day, a time, today, or so long ago");
  command.flag("--timestamps", flags->timestamps, "Print the time of each line");
  command.flag("--no-marks", flags->no_marks, "Leave out the lines of Sublet about starts and ends");
}

Action add_logs(Command command, Common& common) {
  auto flags = std::make_shared<LogsFlags>();
  auto tag = std::make_shared<std::string>();
  add_program_tag(command, common, *tag);
  declare_logs(command, flags);
  command.footer(
      "Both outputs of the program, in the order in which they came. A line between\n"
      "== sublet and == tells of a start or an end; a line of the program that looks\n"
      "like that is shown behind a blank. On a terminal,\n"
      "control characters other than colours are made visible. --follow continues after\n"
      "a restart of the program or of the daemon. With --json, only a refusal is JSON.\n"
      "`sublet session logs` prints the output of a session.");
  return [&common, flags, tag] {
    const bool is_session =
        tag->starts_with("session-") && tag->find_first_not_of("0123456789", 8) == std::string::npos;
    flags->name = *tag;
    flags->target = is_session ? "/v1/sessions/" + client::encode(*tag) : program_target(*tag);
    return print_log(common, *flags);
  };
}

}  // namespace sublet::cli
