// SPDX-License-Identifier: Apache-2.0
#include "keep/hook_run.h"

#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"
#include "client/client.h"
#include "keep/child.h"
#include "keep/limits.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

namespace sublet::keep {
namespace {

using namespace std::chrono_literals;

constexpr Duration look_again = 100ms;      // at a command that has closed its output
constexpr std::size_t most_kept = 16384;    // bytes of the end of an output
constexpr std::size_t longest_words = 300;  // of an error output, in a message
constexpr int most_files = 100'000;         // of a directory, whose sizes are added
constexpr int most_reads = 16;              // of an output at a time: a command that always writes has a deadline too
constexpr Duration clocks_differ = 2s;      // at most, between this machine and a file server
constexpr Duration report_at_most = 5min;   // while the daemon is away

struct Pipe {
  Fd read, write;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return from_errno("no pipe", errno);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

// The end of what a command has written.
struct Output {
  Fd fd;
  std::string text;

  // Reads what is there. The descriptor is closed at the end of the output.
  void read() {
    std::array<char, 4096> piece;
    ssize_t size = 0;
    for (int i = 0; fd && i < most_reads && (size = ::read(fd.get(), piece.data(), piece.size())) > 0; ++i) {
      text.append(piece.data(), static_cast<std::size_t>(size));
      if (text.size() > 2 * most_kept) text.erase(0, text.size() - most_kept);
    }
    if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) fd = Fd();
  }

  // The last line that is not empty, without spaces around it.
  std::string last_line() const {
    constexpr const char* spaces = " \t\r\n";
    const auto end = text.find_last_not_of(spaces);
    if (end == std::string::npos) return "";
    const auto before = text.find_last_of('\n', end);
    const auto begin = text.find_first_not_of(spaces, before == std::string::npos ? 0 : before + 1);
    return text.substr(begin, end - begin + 1);
  }
};

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const std::string& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

// In the child: becomes the command, or writes errno to `failed`.
[[noreturn]] void become(const Document& document, char* const* arguments, char* const* environment, int out, int err,
                         int failed) {
  ::setpgid(0, 0);
  const int null = ::open("/dev/null", O_RDONLY);
  bool good = null >= 0 && ::dup2(null, 0) == 0 && ::dup2(out, 1) == 1 && ::dup2(err, 2) == 2;
  sigset_t none;
  ::sigemptyset(&none);
  for (int number = 1; number < NSIG; ++number) (void)::signal(number, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  set_limits(document.limits);
  if (good) ::execvpe(arguments[0], arguments, environment);
  const int errnum = errno;
  good = ::write(failed, &errnum, sizeof errnum) == sizeof errnum;
  ::_exit(good ? 127 : 126);
}

Result<pid_t> spawn(const Document& document, int out, int err) {
  auto failed = make_pipe();
  if (!failed) return failed.error();
  const auto arguments = pointers(document.arguments), environment = pointers(document.environment);
  const pid_t pid = ::fork();
  if (pid < 0) return from_errno("cannot start the command: fork", errno);
  if (pid == 0) become(document, arguments.data(), environment.data(), out, err, failed->write.get());
  ::setpgid(pid, pid);  // as the child does: either may run first
  failed->write = Fd();
  ::fcntl(failed->read.get(), F_SETFL, 0);
  int errnum = 0;
  ssize_t size = 0;
  while ((size = ::read(failed->read.get(), &errnum, sizeof errnum)) < 0 && errno == EINTR) {
  }
  if (size != sizeof errnum) return pid;
  ::waitpid(pid, nullptr, 0);
  return unavailable(ExecFailure{errnum, {}, {}}.detail(document.arguments.front()));
}

// Returns the status of waitpid; nothing while the command runs.
std::optional<int> ended(pid_t pid) {
  int status = 0;
  return ::waitpid(pid, &status, WNOHANG) == pid ? std::optional(status) : std::nullopt;
}

std::string failure(int status, const Output& errors) {
  std::string words = printable(errors.last_line());
  if (words.size() > longest_words) words = words.substr(0, longest_words) + " …";
  return fmt::format("its command ended with {}{}{}", describe_end(status), words.empty() ? "" : ": ", words);
}

void wait_for_output(const Output& out, const Output& err, Duration at_most) {
  std::array<pollfd, 2> entries{pollfd{out.fd.get(), POLLIN, 0}, pollfd{err.fd.get(), POLLIN, 0}};
  const Duration time = std::min(at_most, look_again);
  ::poll(entries.data(), entries.size(), static_cast<int>(time / 1ms) + 1);
}

// A file, or a directory with all that it contains, as far as it can be read.
struct Saved {
  int errnum = 0;            // why it cannot be found; the other fields are valid only with 0
  bool is_file = false;      // it is a file or a directory, and no pipe or device
  std::int64_t bytes = 0;    // of all files
  std::int64_t changed = 0;  // ns since 1970: the newest change of a file or directory (ctime, which a copy renews)
  std::uint64_t inode = 0;
  bool operator==(const Saved&) const = default;
};

// ns since 1970, by the clock of the machine, as files have it.
std::int64_t realtime_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1'000'000'000L + now.tv_nsec;
}

std::int64_t changed_at(const struct stat& file) { return file.st_ctim.tv_sec * 1'000'000'000L + file.st_ctim.tv_nsec; }

Saved look_at(const std::string& path) {
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0) return {.errnum = errno};
  Saved saved{.is_file = S_ISREG(file.st_mode) || S_ISDIR(file.st_mode),
              .bytes = S_ISREG(file.st_mode) ? file.st_size : 0,
              .changed = changed_at(file),
              .inode = file.st_ino};
  if (!S_ISDIR(file.st_mode)) return saved;
  std::error_code failed;
  std::filesystem::recursive_directory_iterator each(path, failed), end;
  for (int i = 0; !failed && each != end && i < most_files; ++i, each.increment(failed)) {
    if (::lstat(each->path().c_str(), &file) != 0) continue;
    if (S_ISREG(file.st_mode)) saved.bytes += file.st_size;
    saved.changed = std::max(saved.changed, changed_at(file));
  }
  return saved;
}

// A command may return before the program has saved anything. `before`: what was at the previous locator, if this run
// names it again. `began`: ns since 1970.
HookResult found_at(std::string locator, const std::optional<Saved>& before, std::int64_t began) {
  if (!locator.starts_with('/')) return {std::move(locator), "", std::nullopt};
  const Saved saved = look_at(locator);
  std::string problem;
  if (saved.errnum != 0) problem = fmt::format("cannot be found ({})", std::strerror(saved.errnum));
  else if (!saved.is_file) problem = "is neither a file nor a directory";
  else if (saved.bytes == 0) problem = "is empty";
  else if (saved == before || saved.changed < began - Duration(clocks_differ).count())
    problem = "was last changed before the command began";
  if (problem.empty()) return {std::move(locator), "", saved.bytes};
  return {"", fmt::format("its command ended, and {} {}: the command must end only when the work is saved", locator,
                          problem)};
}

}  // namespace

HookResult run_command(const Document& document) {
  if (::chdir(document.directory.c_str()) != 0)
    return {"", fmt::format("cannot enter the directory {}: {}", document.directory, std::strerror(errno))};
  const std::string path = variable(document, "PATH");
  ::setenv("PATH", path.empty() ? "/usr/local/bin:/usr/bin:/bin" : path.c_str(), 1);
  ::umask(static_cast<mode_t>(document.umask));
  const std::string previous = variable(document, "SUBLET_CHECKPOINT");
  const Saved before = previous.starts_with('/') ? look_at(previous) : Saved();
  const std::int64_t began = realtime_ns();
  auto outputs = make_pipe(), errors = make_pipe();
  if (!outputs || !errors) return {"", (outputs ? errors : outputs).error().detail};
  const auto pid = spawn(document, outputs->write.get(), errors->write.get());
  if (!pid) return {"", pid.error().detail};
  Output out{std::move(outputs->read), {}}, err{std::move(errors->read), {}};
  outputs->write = Fd();
  errors->write = Fd();
  const std::int64_t deadline = monotonic_ns() + document.hook->timeout.count();
  std::optional<int> status;
  while (!(status = ended(*pid)) && monotonic_ns() < deadline) {
    wait_for_output(out, err, Duration(deadline - monotonic_ns()));
    out.read();
    err.read();
  }
  if (!status) {
    ::kill(-*pid, SIGKILL);
    int ignored = 0;
    ::waitpid(*pid, &ignored, 0);
    return {"",
            fmt::format("its command did not end within {} and was killed", format_duration(document.hook->timeout))};
  }
  out.read();
  err.read();
  if (!WIFEXITED(*status) || WEXITSTATUS(*status) != 0) return {"", failure(*status, err)};
  std::string locator = out.last_line();
  if (locator.size() > longest_locator)
    return {"",
            fmt::format("the last line of its output has {} bytes; the most is {}", locator.size(), longest_locator)};
  if (locator != printable(locator)) return {"", "the last line of its output is not printable text"};
  return found_at(locator, locator == previous ? std::optional(before) : std::nullopt, began);
}

void run_hook(Document document, const client::Endpoint& endpoint) {
  const HookResult result = run_command(document);
  nlohmann::json checkpoint{{"number", document.hook->number}};
  if (result.problem.empty()) checkpoint["locator"] = result.locator;
  else checkpoint["failed"] = result.problem;
  if (result.bytes) checkpoint["bytes"] = *result.bytes;
  client::Client client(endpoint);
  client::Patience patience;
  patience.limit = report_at_most;
  (void)client.insist(
      {"POST", report_path(document), client::to_text({{"checkpoint", checkpoint}}), client::new_idempotency_key(), {}},
      patience);
}

}  // namespace sublet::keep
