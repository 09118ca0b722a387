// SPDX-License-Identifier: Apache-2.0
#include "daemon/crashes.h"

#include "base/clock.h"
#include "base/log.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace sublet::daemon {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t too_many = 3;
constexpr Duration within = 1min;
constexpr Duration lasts = 10min;
constexpr std::size_t kept = 16;  // number of crashes that are read: the newest

constexpr std::array signals{SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};

// An entry of the file. A mark and a length detect an entry that was only written in part.
struct Entry {
  std::array<char, 8> mark;
  std::int64_t at_ns;
  std::int64_t signal;
};
static_assert(sizeof(Entry) == 24);
constexpr std::array<char, 8> mark{'\x7f', 'c', 'r', 'a', 's', 'h', '1', '\n'};

int file = -1;  // for the signal handler; open while the process lives
std::atomic_flag noted = ATOMIC_FLAG_INIT;
alignas(16) std::array<char, 64 * 1024> handler_stack;  // the stack of the main thread may have overflowed

bool write_entry(const Crash& crash) {
  const Entry entry{mark, crash.at.ns, crash.signal};
  return ::write(file, &entry, sizeof entry) == static_cast<ssize_t>(sizeof entry);
}

// A signal that is raised again is blocked until this handler returns. Then it ends the process with its default action
// and a core.
void on_crash(int signal) {
  note_crash(signal);
  ::raise(signal);
}

// Opens the file and drops entries that no longer matter. Returns its entries, or why it cannot be used.
Result<std::vector<Crash>> open_record(const std::string& path) {
  file = ::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (file < 0) return from_errno(path, errno);
  struct stat what {};
  if (::fstat(file, &what) != 0 || !S_ISREG(what.st_mode)) return unavailable(path + " is not a regular file");
  std::array<char, 4096> bytes;
  const off_t from = std::max<off_t>(what.st_size - static_cast<off_t>(bytes.size()), 0);
  const ssize_t size = ::pread(file, bytes.data(), bytes.size(), from);
  if (size < 0) return from_errno(path, errno);
  std::vector<Crash> crashes = parse_crashes({bytes.data(), static_cast<std::size_t>(size)});
  if (crashes.size() > kept) crashes.erase(crashes.begin(), crashes.end() - kept);
  if (::ftruncate(file, 0) != 0) return from_errno(path, errno);
  for (const Crash& crash : crashes) {
    if (!write_entry(crash)) return from_errno(path, errno);
  }
  return crashes;
}

}  // namespace

std::vector<Crash> parse_crashes(std::string_view bytes) {
  std::vector<Crash> crashes;
  const std::string_view wanted(mark.data(), mark.size());
  for (auto at = bytes.find(wanted); at != bytes.npos; at = bytes.find(wanted, at + 1)) {
    Entry entry;
    if (bytes.size() - at < sizeof entry) break;
    std::memcpy(&entry, bytes.data() + at, sizeof entry);
    if (std::find(signals.begin(), signals.end(), entry.signal) == signals.end()) continue;
    crashes.push_back({{entry.at_ns}, static_cast<int>(entry.signal)});
  }
  return crashes;
}

// A crash in the future does not count: the clock was set back since then, by an unknown time.
std::optional<core::SafeMode> safe_mode_after(const std::vector<Crash>& all, Time now) {
  std::vector<Crash> crashes;
  for (const Crash& crash : all) {
    if (crash.at <= now && crash.at.ns > 0) crashes.push_back(crash);
  }
  std::sort(crashes.begin(), crashes.end(), [](const Crash& a, const Crash& b) { return a.at < b.at; });
  bool loop = false;
  for (std::size_t i = too_many - 1; i < crashes.size(); ++i) {
    const Time third = crashes[i].at;
    loop |= third - crashes[i + 1 - too_many].at <= within && now - third < lasts;
  }
  if (!loop) return std::nullopt;
  return core::SafeMode{crashes.back().at + lasts,
                        fmt::format("the daemon crashed {} times within {}, last by SIG{}", too_many,
                                    format_duration(within), ::sigabbrev_np(crashes.back().signal))};
}

std::vector<Crash> record_crashes(const std::string& path) {
  auto crashes = open_record(path);
  if (!crashes) {
    log::warn("cannot record crashes: {}", crashes.error().detail);
    file = -1;
  }
  const stack_t stack{.ss_sp = handler_stack.data(), .ss_flags = 0, .ss_size = handler_stack.size()};
  ::sigaltstack(&stack, nullptr);
  struct sigaction action {};
  action.sa_handler = on_crash;
  action.sa_flags = SA_ONSTACK | static_cast<int>(SA_RESETHAND);
  for (const int signal : signals) ::sigaction(signal, &action, nullptr);
  return crashes ? *crashes : std::vector<Crash>{};
}

void note_crash(int signal) {
  if (!noted.test_and_set()) write_entry({wall_time(), signal});
}

void forget_crashes(const std::string& path) {
  noted.test_and_set();
  ::unlink(path.c_str());
}

}  // namespace sublet::daemon
