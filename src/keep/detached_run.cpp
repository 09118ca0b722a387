// SPDX-License-Identifier: Apache-2.0
#include "keep/detached_run.h"

#include "base/clock.h"
#include "keep/container_follow.h"
#include "keep/environment.h"
#include "keep/interpreter.h"
#include "keep/preload.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

namespace sublet::keep {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

constexpr Duration poll_wait = 60s;
constexpr Duration warn_again = 5s;

// Nobody reads the messages of a keeper without a terminal; the daemon has them as reasons and events.
Listener silent() {
  return {[](const std::string&) {}, [](const char*, const json&) {}};
}

// Whether the process has the pipe of a keeper there: unlike other pipes it is open for reading and writing. A pipe of
// the program's own must not lose a byte.
bool is_our_pipe(std::int32_t pid, int fd) {
  std::error_code failure;
  const std::string place = fmt::format("/proc/{}/", pid);
  const auto target = std::filesystem::read_symlink(fmt::format("{}fd/{}", place, fd), failure).string();
  if (failure || !target.starts_with("pipe:")) return false;
  std::ifstream info(fmt::format("{}fdinfo/{}", place, fd));
  for (std::string name, value; info >> name >> value;)
    if (name == "flags:") return (std::stoul(value, nullptr, 8) & O_ACCMODE) == O_RDWR;
  return false;
}

}  // namespace

DetachedRun::DetachedRun(Document document, client::Endpoint endpoint)
    : document_(std::move(document)),
      client_(endpoint),
      reporter_(endpoint),
      log_({document_.log_path, document_.log_max_size, document_.log_keep, document_.log_user_max}) {
  client_.set_interrupt(events_.interrupt());
}

void DetachedRun::run() {
  // execvp and find_program look programs up by our own PATH.
  if (variable(document_, "PATH").empty()) document_.environment.push_back("PATH=/usr/local/bin:/usr/bin:/bin");
  ::setenv("PATH", variable(document_, "PATH").c_str(), 1);
  if (!enter_directory()) return;
  if (const auto failure = find_program(document_.arguments.front())) {
    return report_failure(failure->detail(document_.arguments.front()), failure->status());
  }
  // A program that cannot start must not wait in the queue.
  if (is_interposed())
    if (const auto library = find_interposer(); !library) return report_failure(library.error().detail);
  (void)raise_limits();
  (void)lock_log();  // the keeper of an earlier start may still end
  if (!open_pipe()) return report_failure(fmt::format("no pipe for its output: {}", std::strerror(errno)));
  if (auto granted = get_lease()) keep(std::move(*granted));
}

bool DetachedRun::is_interposed() const {
  const auto wanted = document_.request.find("interposer");
  return wanted != document_.request.end() && *wanted == true;
}

bool DetachedRun::enter_directory() {
  if (::chdir(document_.directory.c_str()) == 0) return true;
  report_failure(fmt::format("cannot enter the directory {}: {}", document_.directory, std::strerror(errno)), 126);
  return false;
}

// -------------------------------------------------------------------------------- the lease

// Nothing: the start is over. A newer start, or the lease's end, says why.
std::optional<DetachedRun::Granted> DetachedRun::get_lease() {
  events_.watch(signals_.fd(), [this] {
    while (const auto signal = signals_.next()) {
      if (signal->number == SIGTERM || signal->number == SIGINT || signal->number == SIGHUP) events_.cancel();
    }
  });
  json body = document_.request;
  body["owner"] = {{"connection", true}};
  client::Request request{"POST", "/v1/leases", client::to_text(body), client::new_idempotency_key(), {}};
  const auto asked = client_.insist(request, {});
  if (!asked) {
    const client::Failure& failure = asked.error();
    const bool newer = failure.error.code == Code::Stale || failure.error.code == Code::NotFound;
    if (failure.kind == client::FailureKind::answered && !newer) report_failure(failure.error.detail);
    return std::nullopt;
  }
  Granted granted;
  const json told = json::parse(asked->text, nullptr, false);
  if (told.is_object()) granted.token = told.value("token", "");
  auto lease = follow(asked);
  while (lease && !lease->granted() && !lease->ended() && !events_.cancelled()) {
    const std::string path = "/v1/leases/" + client::encode(lease->id);
    if (lease->state == "offered") {
      const auto claimed = client_.insist({"POST", path + "/claim", "{}", {}, granted.token}, {});
      lease = claimed ? follow(claimed) : follow(client_.insist({"GET", path, {}, {}, granted.token}, {}));
    } else {
      const auto call = fmt::format("{}?wait={}s&since=queued", path, poll_wait / 1s);
      lease = follow(client_.insist({"GET", call, {}, {}, granted.token}, {}, poll_wait + 30s));
    }
  }
  events_.forget(signals_.fd());
  events_.resume();
  if (!lease || !lease->granted()) return std::nullopt;
  granted.lease = std::move(*lease);
  return granted;
}

std::optional<client::Lease> DetachedRun::follow(client::Answer<client::Reply> answer) {
  if (!answer) return std::nullopt;
  auto lease = client::parse_lease(answer->text);
  return lease ? std::optional(std::move(*lease)) : std::nullopt;
}

void DetachedRun::keep(Granted granted) {
  json status;
  if (const auto told = client_.insist({"GET", "/v1/status", {}, {}, {}}, {}))
    status = json::parse(told->text, nullptr, false);
  // Its output is a pipe: Python would write it late.
  const auto is_unbuffered = [](const std::string& entry) { return entry.starts_with("PYTHONUNBUFFERED="); };
  if (std::ranges::none_of(document_.environment, is_unbuffered)) document_.environment.push_back("PYTHONUNBUFFERED=1");
  std::vector<const char*> variables;
  for (const std::string& entry : document_.environment) variables.push_back(entry.c_str());
  variables.push_back(nullptr);
  Launch launch{document_.arguments,
                program_environment(variables.data(), client_.endpoint(), granted.lease, status),
                document_.limits};
  if (is_interposed())
    if (const auto done = interpose(launch.environment, status); !done) return report_failure(done.error().detail);
  launch.output = to_child_.get();
  launch.umask = document_.umask;
  launch.supervised = true;
  Listener listener = silent();
  listener.starting = [this, lease = granted.lease.id](pid_t pid) {
    mark(fmt::format("start {}: pid {} under {}", document_.start, pid, lease));
  };
  listener.note = [this](const char* event, const json& fields) {
    if (event != std::string_view("stopping")) return;
    mark(fmt::format("start {} is being ended ({}): SIGTERM, after {} s SIGKILL", document_.start,
                     fields.value("reason", ""), fields.value("grace_seconds", std::int64_t{0})));
  };
  listener.ended = [this](const std::string& how) {
    drain_output();
    mark(fmt::format("start {} has ended: {}", document_.start, how));
  };
  Listener of_container = listener;
  of_container.say = of_container.fail = [this](const std::string& line) { mark(line); };
  const auto container = follow_container(launch, of_container, client_.endpoint(), events_, granted.lease,
                                          granted.token, status);
  listener.ended = std::move(of_container.ended);
  events_.watch(output_.get(), [this] { read_output(); });
  Keeper keeper(client_, events_, signals_, std::move(listener), std::move(granted.lease), std::move(granted.token));
  (void)keeper.run(launch);
}

// -------------------------------------------------------------------------------- the log

// False: another keeper writes this log.
bool DetachedRun::lock_log() {
  lock_ = Fd(::open((document_.log_path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640));
  // The daemon looks at the lock by its group, before it removes the log of a program that it has forgotten.
  if (lock_) ::fchmod(lock_.get(), 0640);
  return !lock_ || ::flock(lock_.get(), LOCK_EX | LOCK_NB) == 0;
}

// The writing end is opened for reading too: with a reader of its own, the program is not ended by SIGPIPE if this
// keeper is killed. Another keeper then opens the same pipe and goes on.
bool DetachedRun::open_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return false;
  output_ = Fd(ends[0]);
  const Fd writer(ends[1]);
  to_child_ = Fd(::open(fmt::format("/proc/self/fd/{}", writer.get()).c_str(), O_RDWR | O_CLOEXEC));
  return to_child_ && ::fcntl(output_.get(), F_SETFL, O_NONBLOCK) == 0;
}

// One piece at a time: a program that prints without end slows itself.
void DetachedRun::read_output() {
  std::array<char, 65536> piece;
  const ssize_t size = ::read(output_.get(), piece.data(), piece.size());
  if (size > 0) log_.write({piece.data(), static_cast<std::size_t>(size)}, SystemClock().now());
  tell_warning();
}

void DetachedRun::drain_output() {
  events_.forget(output_.get());
  std::array<char, 65536> piece;
  for (ssize_t size = 0; (size = ::read(output_.get(), piece.data(), piece.size())) > 0;)
    log_.write({piece.data(), static_cast<std::size_t>(size)}, SystemClock().now());
  log_.finish(SystemClock().now());
  tell_warning();
}

// A program cannot write such a line. The log of a session has none.
void DetachedRun::mark(const std::string& text) {
  if (!document_.tag.empty()) log_.mark(text, SystemClock().now());
}

void DetachedRun::drain() {
  if (!lock_log()) return;
  for (const int fd : {1, 2}) {
    if (!is_our_pipe(document_.drain->pid, fd)) continue;
    const auto path = fmt::format("/proc/{}/fd/{}", document_.drain->pid, fd);
    output_ = Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (output_) break;
  }
  std::array<char, 65536> piece;
  while (output_) {
    pollfd entry{output_.get(), POLLIN, 0};
    if (::poll(&entry, 1, -1) < 0 && errno != EINTR) break;
    const ssize_t size = ::read(output_.get(), piece.data(), piece.size());
    if (size == 0) break;
    if (size > 0) log_.write({piece.data(), static_cast<std::size_t>(size)}, SystemClock().now());
    else if (errno != EAGAIN && errno != EINTR) break;
  }
  log_.finish(SystemClock().now());
  mark(fmt::format("start {} has ended: exit status unknown, since its keeper was killed", document_.start));
}

void DetachedRun::tell_warning() {
  if (log_.problem() == told_warning_ || monotonic_ns() < warn_after_ns_) return;
  const auto told = reporter_.call(report({{"warning", log_.problem()}}), 2s);
  if (told || told.error().kind == client::FailureKind::answered) {
    told_warning_ = log_.problem();
    warning_timer_.clear();
  } else {
    warn_after_ns_ = monotonic_ns() + warn_again.count();
    warning_timer_.set(warn_again + 1ms, [this] { tell_warning(); });
  }
}

// -------------------------------------------------------------------------------- reports

client::Request DetachedRun::report(json body) const {
  body["start"] = document_.start;
  if (document_.session.empty()) body["number"] = document_.number;
  return {"POST", report_path(document_), client::to_text(body), client::new_idempotency_key(), {}};
}

void DetachedRun::report_failure(const std::string& why, std::optional<int> status) {
  (void)lock_log();  // the keeper of an earlier start may still end
  mark(fmt::format("start {} failed: {}", document_.start, why));
  json body{{"failed", why}};
  if (status) body["exit_status"] = *status;
  client::Patience patience;
  patience.limit = 60s;
  (void)client_.insist(report(std::move(body)), patience);
}

}  // namespace sublet::keep
