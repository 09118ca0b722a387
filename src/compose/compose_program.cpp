// SPDX-License-Identifier: Apache-2.0
#include "compose/compose_program.h"

#include "base/clock.h"
#include "base/text.h"
#include "compose/private_file.h"

#include <fmt/format.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <fcntl.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <array>
#include <cstdlib>
#include <filesystem>

namespace sublet::compose {
namespace {

namespace asio = boost::asio;
namespace fs = std::filesystem;
constexpr auto quiet = asio::as_tuple(asio::use_awaitable);

constexpr Duration version_timeout = std::chrono::seconds(20);
constexpr Duration config_timeout = std::chrono::seconds(60);
constexpr std::chrono::milliseconds lock_interval(50);
constexpr std::size_t most_config = std::size_t{4} << 20;
constexpr const char* default_path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr const char* empty_file = "{\"version\": \"3.9\", \"services\": {}}\n";

std::string search_path() {
  const char* path = std::getenv("PATH");
  return path != nullptr && *path != '\0' ? path : default_path;
}

// Compose finds the user's registries and its plugins there.
std::string home() {
  if (const char* given = std::getenv("HOME"); given != nullptr && *given == '/') return given;
  const passwd* account = ::getpwuid(::geteuid());
  return account != nullptr && account->pw_dir != nullptr ? account->pw_dir : "/";
}

bool is_program(const std::string& path) {
  struct stat entry {};
  return ::stat(path.c_str(), &entry) == 0 && S_ISREG(entry.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

std::string find_in_path(const std::string& name) {
  if (name.find('/') != name.npos) return name[0] == '/' && is_program(name) ? name : "";
  const std::string all = search_path();
  for (std::size_t at = 0; at <= all.size();) {
    const auto end = std::min(all.find(':', at), all.size());
    const std::string directory = all.substr(at, end - at);
    at = end + 1;
    if (directory.empty() || directory[0] != '/') continue;
    std::string path = directory + "/" + name;
    if (is_program(path)) return path;
  }
  return {};
}

bool takes_verb(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  return name == "docker" || name == "podman";
}

// The line that names the cause. Compose ends with it, except that version 1 adds a line that says nothing.
std::string cause_of(const std::string& lines) {
  std::string last, cause;
  for (std::size_t at = 0; at < lines.size();) {
    const auto end = std::min(lines.find('\n', at), lines.size());
    const std::string line = lines.substr(at, end - at);
    at = end + 1;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    last = line;
    const bool names_error = line.find("rror") != line.npos || line.find("failed") != line.npos;
    if (names_error && line.find("Encountered errors while") == line.npos) cause = line;
  }
  return cause.empty() ? last : cause;
}

// The cause is the first line; the last lines of the program follow.
Error failed(const std::string& what, const Outcome& outcome) {
  const bool by_itself = !outcome.timed_out && !outcome.flooded && !outcome.stopped;
  const std::string cause = by_itself ? cause_of(outcome.last_lines) : "";
  std::string detail = fmt::format("{}: {}", what, cause.empty() ? outcome.text() : cause);
  if (!outcome.last_lines.empty() && outcome.last_lines != cause) detail += "\n" + outcome.last_lines;
  if (outcome.stopped) return unavailable(std::move(detail));
  return {.code = Code::Stale, .detail = std::move(detail), .hint = {}};
}

}  // namespace

ComposeProgram::ComposeProgram(asio::io_context& io, ComposeOptions options)
    : io_(io),
      options_(std::move(options)),
      programs_(io),
      searched_(io, std::chrono::steady_clock::time_point::max()) {
  // No file of another machine is read.
  environment_ = {"PATH=" + search_path(),
                  "HOME=" + home(),
                  "DOCKER_HOST=" + options_.engine,
                  "LANG=C.UTF-8",
                  "COMPOSE_EXPERIMENTAL_GIT_REMOTE=false",
                  "COMPOSE_EXPERIMENTAL_OCI_REMOTE=false"};
}

Variables ComposeProgram::environment() const {
  Variables known;
  for (const std::string& one : environment_) {
    const auto equals = one.find('=');
    known.values[one.substr(0, equals)] = one.substr(equals + 1);
  }
  for (const char* name : {"COMPOSE_PROJECT_NAME", "PWD", "OLDPWD", "SHLVL", "_"}) known.values[name] = std::nullopt;
  return known;
}

std::string ComposeProgram::major() const { return version_.substr(0, version_.find('.')); }

asio::awaitable<Status> ComposeProgram::find() {
  while (searching_) co_await searched_.async_wait(quiet);
  if (!path_.empty() && is_program(path_)) co_return Status();
  searching_ = true;
  Status found = co_await search();
  searching_ = false;
  searched_.cancel();
  co_return found;
}

asio::awaitable<Status> ComposeProgram::search() {
  title_.clear();
  path_.clear();
  if (!options_.program.empty()) {
    const std::string path = find_in_path(options_.program);
    if (path.empty()) {
      co_return unavailable(fmt::format("the Compose program {} does not exist", printable(options_.program)),
                            "correct stacks.compose");
    }
    co_return co_await take(path);
  }
  Error last = unavailable("no Compose program was found (docker compose, docker-compose, podman compose)",
                           "install Docker Compose, or name the program by stacks.compose");
  for (const char* name : {"docker", "docker-compose", "podman"}) {
    const std::string path = find_in_path(name);
    if (path.empty()) continue;
    const Status taken = co_await take(path);
    if (taken) co_return taken;
    last = taken.error();
  }
  co_return last;
}

asio::awaitable<Status> ComposeProgram::take(std::string path) {
  path_ = std::move(path);
  with_verb_ = takes_verb(path_);
  std::vector<std::string> words{"version", "--short"};
  const auto outcome = co_await run(std::move(words), "/", version_timeout, 4096, -1);
  if (outcome && outcome->succeeded()) {
    std::string version = printable(outcome->output.substr(0, outcome->output.find('\n')));
    if (version.starts_with('v')) version.erase(0, 1);
    version_ = version;
    title_ = fmt::format("{}{} {}", fs::path(path_).filename().string(), with_verb_ ? " compose" : "", version_);
    co_return Status();
  }
  const std::string which = std::exchange(path_, {});
  if (!outcome) co_return outcome.error();
  co_return unavailable(fmt::format("{} is no Compose program: {}", which, failed("version", *outcome).detail),
                        "install Docker Compose, or name the program by stacks.compose");
}

asio::awaitable<Result<Outcome>> ComposeProgram::run(std::vector<std::string> words, std::string directory,
                                                     Duration timeout, std::size_t most_output, int inherited) {
  Command command;
  command.program = path_;
  if (with_verb_) command.arguments.emplace_back("compose");
  command.arguments.insert(command.arguments.end(), words.begin(), words.end());
  command.environment = environment_;
  command.directory = std::move(directory);
  command.timeout = timeout;
  command.most_output = most_output;
  command.inherited = inherited;
  auto outcome = co_await programs_.run(std::move(command));
  co_return outcome;
}

asio::awaitable<Result<std::string>> ComposeProgram::config(const Description& stack, std::string env_file) {
  std::vector<std::string> words{"-f", stack.file, "--project-directory", stack.directory};
  if (!env_file.empty()) words.insert(words.end(), {"--env-file", env_file});
  words.emplace_back("config");
  auto outcome = co_await run(std::move(words), stack.directory, config_timeout, most_config, -1);
  if (!outcome) co_return outcome.error();
  if (outcome->succeeded()) co_return std::move(outcome->output);
  Error error = failed(fmt::format("Compose cannot read {}", stack.file), *outcome);
  if (error.code == Code::Stale && !outcome->timed_out) error.code = Code::BadRequest;
  co_return error;
}

// One call for each project at a time. The program itself keeps the lock, so that a call that outlived a killed worker
// is not overtaken.
asio::awaitable<Result<Fd>> ComposeProgram::lock(std::string project, Duration timeout) {
  const std::string directory = place(project);
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    co_return from_errno("cannot make " + directory, errno);
  }
  Fd file(::open((directory + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) co_return from_errno("cannot open " + directory + "/lock", errno);
  const std::int64_t until = monotonic_ns() + timeout.count();
  asio::steady_timer timer(io_);
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) co_return from_errno("cannot lock " + directory + "/lock", errno);
    if (monotonic_ns() >= until) {
      co_return unavailable(fmt::format("another Compose call for the project '{}' has not ended", project),
                            "end the Compose program");
    }
    timer.expires_after(lock_interval);
    co_await timer.async_wait(quiet);
  }
  co_return file;
}

bool ComposeProgram::was_given(const std::string& project, const std::string& resolved) const {
  const auto saved = read_private_file(place(project) + "/resolved.yaml", most_config);
  return saved && *saved == resolved;
}

asio::awaitable<Status> ComposeProgram::up(Start start, std::string overlay, std::string env_file) {
  if (auto found = co_await find(); !found) co_return found.error();
  auto held = co_await lock(start.project, start.timeout);
  if (!held) co_return held.error();
  const std::string directory = place(start.project);
  std::vector<std::string> words{"-p", start.project, "--project-directory", start.directory};
  if (!env_file.empty()) words.insert(words.end(), {"--env-file", env_file});
  words.insert(words.end(), {"-f", directory + "/resolved.yaml"});
  if (auto wrote = write_private_file(directory + "/resolved.yaml", start.resolved); !wrote) co_return wrote.error();
  if (!overlay.empty()) {
    if (auto wrote = write_private_file(directory + "/overlay.yaml", overlay); !wrote) co_return wrote.error();
    words.insert(words.end(), {"-f", directory + "/overlay.yaml"});
  }
  words.insert(words.end(), {"up", "-d"});
  if (start.recreate) words.emplace_back("--force-recreate");
  const auto outcome = co_await run(std::move(words), directory, start.timeout, 0, held->get());
  if (!outcome) co_return outcome.error();
  if (outcome->succeeded()) co_return Status();
  co_return failed(fmt::format("Compose could not start stack '{}'", start.name), *outcome);
}

// Other calls for the project need not wait for it: it changes no container.
asio::awaitable<Status> ComposeProgram::pull(Start start, std::string env_file) {
  if (auto found = co_await find(); !found) co_return found.error();
  const std::string directory = place(start.project), file = directory + "/pull.yaml";
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    co_return from_errno("cannot make " + directory, errno);
  }
  if (auto wrote = write_private_file(file, start.resolved); !wrote) co_return wrote.error();
  std::vector<std::string> words{"-p", start.project, "--project-directory", start.directory};
  if (!env_file.empty()) words.insert(words.end(), {"--env-file", env_file});
  words.insert(words.end(), {"-f", file, "pull"});
  const auto outcome = co_await run(std::move(words), directory, start.timeout, 0, -1);
  ::unlink(file.c_str());
  if (!outcome) co_return outcome.error();
  if (outcome->succeeded()) co_return Status();
  co_return failed(fmt::format("Compose could not pull the images of stack '{}'", start.name), *outcome);
}

asio::awaitable<Status> ComposeProgram::down(Stop stop) {
  if (auto found = co_await find(); !found) co_return found.error();
  auto held = co_await lock(stop.project, stop.timeout);
  if (!held) co_return held.error();
  const std::string directory = place(stop.project), saved = directory + "/resolved.yaml";
  std::vector<std::string> words{"-p", stop.project};
  std::string file;
  if (!stop.resolved.empty() && !was_given(stop.project, stop.resolved)) {
    file = directory + "/down.yaml";
    if (auto wrote = write_private_file(file, stop.resolved); !wrote) co_return wrote.error();
  } else if (read_private_file(saved, most_config)) {
    file = saved;
  } else if (major() == "1") {  // without a file, version 1 fails
    file = directory + "/down.yaml";
    if (auto wrote = write_private_file(file, empty_file); !wrote) co_return wrote.error();
  }
  if (!file.empty()) words.insert(words.end(), {"-f", file});
  words.insert(words.end(), {"down", "--remove-orphans"});
  const auto outcome = co_await run(std::move(words), directory, stop.timeout, 0, held->get());
  if (!outcome) co_return outcome.error();
  if (!outcome->succeeded()) co_return failed(fmt::format("Compose could not stop stack '{}'", stop.name), *outcome);
  for (const char* name : {"/resolved.yaml", "/overlay.yaml", "/down.yaml"}) ::unlink((directory + name).c_str());
  co_return Status();
}

}  // namespace sublet::compose
