// SPDX-License-Identifier: Apache-2.0
// `logs`: the output of a supervised program, over restarts of the daemon.
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

struct LogsFlags {
  std::string tag;
  std::string since;
  std::optional<int> lines;
  bool follow = false;
  bool timestamps = false;
};

class Logs {
 public:
  Logs(const Common& common, const LogsFlags& flags, client::Endpoint endpoint)
      : common_(common),
        flags_(flags),
        endpoint_(std::move(endpoint)),
        look_(look_for(common)),
        terminal_(::isatty(STDOUT_FILENO) == 1) {}

  int go();

 private:
  const Common& common_;
  const LogsFlags& flags_;
  client::Endpoint endpoint_;
  Look look_;
  bool terminal_;
  std::string rest_;       // the beginning of a line whose end has not come
  std::string last_time_;  // of the last printed line; a new stream continues there
  int printed_ = 0;        // lines with that time, which a new stream sends again
  int skip_ = 0;
  std::size_t shown_ = 0;  // bytes of the text of `rest_` that were printed

  std::string target() const;
  bool take(const std::string& piece);
  void print(std::string_view line);
  void print_text(const LogLine& line);
  bool has_unshown_part() const;
  void print_part();
  void drop_part();
  bool goes_on() const;
  std::optional<int> read(client::TextStream& stream);
};

std::string Logs::target() const {
  std::string query = flags_.follow ? "?follow=true" : "?follow=false";
  const std::string& since = last_time_.empty() ? flags_.since : last_time_;
  if (!since.empty()) query += "&since=" + client::encode(since);
  if (flags_.lines && last_time_.empty()) query += fmt::format("&lines={}", *flags_.lines);
  return program_target(flags_.tag, "/log" + query);
}

void Logs::print(std::string_view line) {
  const LogLine parsed = parse_log_line(line);
  if (!parsed.time.empty() && parsed.time != last_time_) {
    last_time_ = parsed.time;
    printed_ = skip_ = 0;
  }
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
  if (shown_ == 0 && flags_.timestamps && !line.time.empty()) fmt::print("{} ", line.time);
  const auto text = line.text.substr(std::min(shown_, line.text.size()));
  if (terminal_ && shown_ > 0 && text.find('\r') != std::string_view::npos) fmt::print("\r\x1b[K");
  fmt::print("{}", terminal_ ? for_terminal(text, look_.color) : std::string(text));
  shown_ = line.text.size();
}

bool Logs::has_unshown_part() const {
  const LogLine line = parse_log_line(rest_);
  return !line.time.empty() && line.text.size() > shown_;
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

// Whether more output may come: the program runs or will be started again, or the daemon is away.
bool Logs::goes_on() const {
  client::Client client(endpoint_);
  const auto reply = client.get(program_target(flags_.tag));
  if (!reply) return reply.error().passing();
  const auto program = client::parse(*reply);
  if (!program) return false;
  const std::string state = text_at(*program, "state");
  return state != "stopped" && state != "exited" && state != "failed";
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
  if (over || stream.complete()) return kOk;
  print_error("the daemon did not send the log to its end", "repeat the command");
  return kFailed;
}

int Logs::go() {
  client::TextStream stream(endpoint_);
  bool connected = false;
  for (bool told = false;; ::poll(nullptr, 0, 500)) {
    if (auto opened = stream.open(target()); !opened) {
      if (!connected || !opened.error().passing()) return fail(common_, opened.error());
      if (!std::exchange(told, true)) say(common_, "the daemon does not answer; waiting until it is back");
      continue;
    }
    connected = true;
    told = false;
    if (const auto code = read(stream)) return *code;
  }
}

Status take_since(const std::string& text, std::string& into) {
  if (!parse_rfc3339(text) && !parse_duration(text))
    return bad_request(fmt::format("'{}' is neither a time nor a duration", printable(text)),
                       "for example 10m, or 2026-11-26T20:00:00Z");
  into = text;
  return {};
}

int logs(const Common& common, const LogsFlags& flags) {
  const auto endpoint = client::resolve_endpoint(common.host);
  if (!endpoint) return fail(endpoint.error());
  return Logs(common, flags, *endpoint).go();
}

}  // namespace

Action add_logs(Command command, Common& common) {
  auto flags = std::make_shared<LogsFlags>();
  add_program_tag(command, common, flags->tag);
  command.flag("-f,--follow", flags->follow, "Go on with new lines until the program has ended for good");
  command.option("-n,--lines", flags->lines, "Print only the last lines, so many").type("N").between(0, INT_MAX);
  command
      .taken(
          "--since", [flags](const std::string& text) { return take_since(text, flags->since); },
          "Print only lines from this time on, or of the last DURATION")
      .type("TIME");
  command.flag("--timestamps", flags->timestamps, "Print the time of each line");
  command.footer(
      "Both outputs of the program, in the order in which they came. On a terminal,\n"
      "control characters other than colours are made visible. --follow continues after\n"
      "a restart of the program or of the daemon. With --json, only a refusal is JSON.");
  return [&common, flags] { return logs(common, *flags); };
}

}  // namespace sublet::cli
