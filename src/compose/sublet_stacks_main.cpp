// SPDX-License-Identifier: Apache-2.0
// sublet-stacks: the only process of Sublet that talks to the container engine and to Docker Compose.
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/log.h"
#include "base/number.h"
#include "base/text.h"
#include "compose/protocol.h"
#include "compose/serve.h"
#include "proc/pidfd.h"

#include <fmt/format.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <pwd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>

namespace {

using namespace sublet;
namespace asio = boost::asio;
using asio::local::stream_protocol;

constexpr const char* usage =
    "sublet-stacks looks for Docker Compose projects (stacks) for subletd, starts and stops them with Docker Compose,\n"
    "and follows their containers at the container engine.\n"
    "  sublet-stacks serve --fd N --runtime DIR [OPTIONS]  serve the daemon on the connected socket N. Compose files\n"
    "      belong to root or to our own user\n"
    "  sublet-stacks listen --runtime DIR [--user NAME] [OPTIONS]  serve connections to the socket that the service\n"
    "      manager passes. Compose files belong to root\n"
    "  sublet-stacks --version | --help\n"
    "OPTIONS are:\n"
    "  --engine URL    the container engine; default: unix:///var/run/docker.sock\n"
    "  --compose PATH  the Compose program; default: the first that works of docker compose, docker-compose and "
    "podman\n"
    "                  compose\n"
    "  --look-every S  seconds between two looks at the containers of a stack without an event; default: 60\n"
    "--runtime DIR is a directory of our own for the configurations that Compose is given. --user NAME may connect\n"
    "besides root (default 'sublet').\n";

constexpr int first_passed = 3;  // the first descriptor that a service manager passes

struct Options {
  std::string verb;
  std::string user = "sublet";
  int fd = -1;
  compose::LocalOptions worker;
  std::string problem;
};

void take_value(Options& options, const std::string& word, const std::string& value) {
  if (word == "--fd") {
    options.fd = parse_number<int>(value).value_or(-1);
    if (options.fd < 0) options.problem = "--fd needs the number of an open socket";
  } else if (word == "--look-every") {
    const int seconds = parse_number<int>(value).value_or(0);
    if (seconds < 1 || seconds > 86400) options.problem = "--look-every needs a number of seconds, 1 to 86400";
    options.worker.look_every = std::chrono::seconds(seconds);
  } else if (word == "--runtime") {
    options.worker.runtime = value;
    if (value.empty() || value[0] != '/') options.problem = "--runtime needs an absolute path";
  } else {
    (word == "--engine" ? options.worker.engine : word == "--compose" ? options.worker.program : options.user) = value;
  }
}

Options parse(const std::vector<std::string>& arguments) {
  Options options;
  for (std::size_t i = 0; i < arguments.size() && options.problem.empty(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--fd" || word == "--look-every" || word == "--runtime" || word == "--engine" || word == "--compose" ||
        word == "--user") {
      if (i + 1 == arguments.size()) options.problem = fmt::format("{} needs a value", word);
      else take_value(options, word, arguments[++i]);
    } else if (options.verb.empty()) {
      options.verb = word;
    } else {
      options.problem = fmt::format("unexpected '{}'", printable(word));
    }
  }
  const bool serves = options.verb == "serve" || options.verb == "listen";
  if (options.problem.empty() && serves && options.worker.runtime.empty()) {
    options.problem = options.verb + " needs --runtime";
  }
  if (options.problem.empty() && (options.verb == "serve") != (options.fd >= 0)) {
    options.problem = options.verb == "serve" ? "serve needs --fd" : "--fd belongs to serve";
  }
  return options;
}

// Ignores signals that a terminal sends to its group: this process ends at the end of its socket.
void reset_process() {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal : {SIGTERM, SIGALRM, SIGCHLD}) std::signal(signal, SIG_DFL);
  for (const int signal : {SIGINT, SIGHUP, SIGQUIT, SIGPIPE}) std::signal(signal, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a limit for files is an error of write()
  ::umask(077);
  log::init("sublet-stacks", false);
}

int fail(const std::string& problem) {
  fmt::print(stderr, "sublet-stacks: {}\n", problem);
  return 1;
}

bool is_socket(int fd, bool listening) {
  int type = 0, accepts = 0;
  socklen_t size = sizeof type;
  if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) return false;
  size = sizeof accepts;
  return ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &size) == 0 && (accepts != 0) == listening;
}

// The directory must be ours alone: Compose runs what stands in it.
std::string check_runtime(const std::string& directory) {
  struct stat entry {};
  if (::lstat(directory.c_str(), &entry) != 0) return from_errno("cannot use " + directory, errno).detail;
  if (S_ISDIR(entry.st_mode) && entry.st_uid == ::geteuid() && (entry.st_mode & 077) == 0) return {};
  return directory + " must be a directory of our own with mode 0700";
}

int serve(Options options) {
  if (!is_socket(options.fd, false)) return fail(fmt::format("descriptor {} is not a connected socket", options.fd));
  shed_descriptors(options.fd);
  reset_process();
  if (const std::string wrong = check_runtime(options.worker.runtime); !wrong.empty()) return fail(wrong);
  options.worker.trust = compose::Trust::own();
  asio::io_context io(1);
  stream_protocol::socket socket(io);
  socket.assign(stream_protocol(), options.fd);
  Status ended;
  asio::co_spawn(io, compose::serve(std::move(socket), options.worker),
                 [&](const std::exception_ptr& failure, Status status) {
                   if (failure) std::rethrow_exception(failure);
                   ended = std::move(status);
                   io.stop();
                 });
  io.run();
  return ended ? 0 : fail(ended.error().detail);
}

asio::awaitable<void> accept_all(stream_protocol::acceptor& acceptor, std::uint32_t user,
                                 const compose::LocalOptions& options, const proc::ProcRoot& root) {
  for (;;) {
    auto [error, socket] = co_await acceptor.async_accept(asio::as_tuple(asio::use_awaitable));
    if (error == asio::error::connection_aborted || error == asio::error::interrupted) continue;
    if (error) throw boost::system::system_error(error, "cannot accept a connection");
    const auto peer = proc::peer_of(root, socket.native_handle());
    if (!peer || (peer->uid != 0 && peer->uid != user)) {
      log::warn("refused a connection of uid {}: only root and uid {} may connect", peer ? peer->uid : 65534, user);
      continue;
    }
    // The next daemon comes when this one is gone.
    const Status ended = co_await compose::serve(std::move(socket), options);
    if (!ended) log::warn("{}", ended.error().detail);
  }
}

int listen(const Options& options) {
  const char* passed = std::getenv("LISTEN_FDS");
  const char* to = std::getenv("LISTEN_PID");
  const bool ours =
      passed != nullptr && to != nullptr && std::string(passed) == "1" && std::string(to) == std::to_string(::getpid());
  if (!ours || !is_socket(first_passed, true)) {
    return fail("no listening socket was passed: start sublet-stacks by sublet-stacks.socket");
  }
  const passwd* user = ::getpwnam(options.user.c_str());
  if (user == nullptr) return fail(fmt::format("user '{}' does not exist", options.user));
  const std::uint32_t uid = user->pw_uid;
  shed_descriptors(first_passed);
  reset_process();
  if (const std::string wrong = check_runtime(options.worker.runtime); !wrong.empty()) return fail(wrong);
  const auto root = proc::ProcRoot::open();
  if (!root) return fail(root.error().detail);
  asio::io_context io(1);
  stream_protocol::acceptor acceptor(io);
  acceptor.assign(stream_protocol(), first_passed);
  asio::co_spawn(io, accept_all(acceptor, uid, options.worker, *root), [](const std::exception_ptr& failure) {
    if (failure) std::rethrow_exception(failure);
  });
  io.run();
  return 0;
}

int run(const std::vector<std::string>& arguments) {
  const Options options = parse(arguments);
  if (options.problem.empty()) {
    if (options.verb == "serve") return serve(options);
    if (options.verb == "listen") return listen(options);
    if (options.verb == "--version" || options.verb == "--help" || options.verb == "-h") {
      fmt::print("{}", options.verb == "--version" ? "sublet-stacks " SUBLET_VERSION "\n" : usage);
      return 0;
    }
  }
  fmt::print(stderr, "sublet-stacks: {}\n{}",
             options.problem.empty() ? fmt::format("unknown verb '{}'", printable(options.verb)) : options.problem,
             usage);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {  // out of memory, or a bug of ours
    std::fprintf(stderr, "sublet-stacks: %s\n", error.what());
    return 1;
  }
}
