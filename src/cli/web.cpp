// SPDX-License-Identifier: Apache-2.0
// `sublet web`: the page in a browser, with the rights of the user who started it.
#include "base/fd.h"
#include "cli/fetch.h"
#include "cli/web_proxy.h"
#include "keep/events.h"
#include "keep/signals.h"

#include <fmt/format.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

namespace sublet::cli {
namespace {

struct WebFlags {
  int port = 0;  // 0: the kernel chooses a free one
  bool no_open = false;
};

struct Listener {
  Fd socket;
  std::uint16_t port = 0;
};

Result<Listener> listen_here(int port) {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return from_errno("cannot make a socket", errno);
  const int yes = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  socklen_t size = sizeof address;
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      ::listen(socket.get(), 128) != 0 ||
      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    Error error = from_errno(fmt::format("cannot listen on 127.0.0.1:{}", port), errno);
    error.hint = "choose another port, or leave --port out";
    return error;
  }
  return Listener{std::move(socket), ntohs(address.sin_port)};
}

// A page of the user alone that leads a browser to the address: all users may read the command line of a browser.
class Signpost {
 public:
  explicit Signpost(const std::string& address) {
    const char* dir = std::getenv("XDG_RUNTIME_DIR");
    path_ = fmt::format("{}/sublet-web-XXXXXX.html", dir == nullptr || *dir == '\0' ? "/tmp" : dir);
    const Fd file(::mkstemps(path_.data(), 5));
    const std::string text =
        fmt::format("<!doctype html><title>Sublet</title><meta http-equiv=refresh content=\"0;url={}\">\n", address);
    if (!file) path_.clear();
    else if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) remove();
  }
  ~Signpost() { remove(); }
  Signpost(const Signpost&) = delete;
  Signpost& operator=(const Signpost&) = delete;

  const std::string& path() const { return path_; }  // "": it could not be written

 private:
  void remove() {
    if (!path_.empty()) ::unlink(path_.c_str());
    path_.clear();
  }
  std::string path_;
};

bool has_desktop() {
  for (const char* name : {"DISPLAY", "WAYLAND_DISPLAY"})
    if (const char* value = std::getenv(name); value != nullptr && *value != '\0') return true;
  return false;
}

// The browser is not a child of ours: nobody would take its exit status.
void open_browser(const std::string& path, const keep::Signals& signals) {
  const pid_t child = ::fork();
  if (child > 0) ::waitpid(child, nullptr, 0);
  if (child != 0) return;
  if (::fork() == 0) {
    signals.restore();
    ::setsid();
    const int null = ::open("/dev/null", O_RDWR);
    for (const int fd : {0, 1, 2}) ::dup2(null, fd);
    ::execlp("xdg-open", "xdg-open", path.c_str(), nullptr);
  }
  ::_exit(0);
}

void tell(const Common& common, const std::string& address, std::uint16_t port) {
  if (common.json) fmt::print("{}\n", nlohmann::json{{"address", address}, {"port", port}}.dump());
  else fmt::print("{}\n", address);
  std::fflush(stdout);
  say(common, "sublet: this address opens the page in one browser; the page works until Ctrl-C");
  if (std::getenv("SSH_CONNECTION") == nullptr) return;
  char host[256] = "HOST";
  ::gethostname(host, sizeof host - 1);
  say(common, fmt::format("sublet: on your own machine, first: ssh -L {0}:127.0.0.1:{0} {1}", port, host));
}

int web(const Common& common, const WebFlags& flags) {
  auto client = connect(common);
  if (!client) return fail(client.error());
  if (const auto status = client->get("/v1/status"); !status) return fail(common, status.error());
  auto listener = listen_here(flags.port);
  if (!listener) return fail(common, listener.error());
  keep::Signals signals;
  keep::Events events;
  const std::uint16_t port = listener->port;
  // Its threads use it until this process ends by a signal.
  auto* proxy = std::make_unique<WebProxy>(client->endpoint(), std::move(listener->socket), port).release();
  const std::string address = fmt::format("http://127.0.0.1:{}/#secret={}", port, proxy->gate().secret());
  std::unique_ptr<Signpost> signpost;
  if (!flags.no_open && has_desktop()) signpost = std::make_unique<Signpost>(address);
  if (signpost && !signpost->path().empty()) open_browser(signpost->path(), signals);
  tell(common, address, port);
  int ended_by = 0;
  events.watch(proxy->fd(), [proxy] { proxy->accept(); });
  events.watch(signals.fd(), [&] {
    signals.take({.leave = [&](const keep::Signal& signal) {
      ended_by = signal.number;
      events.cancel();
    }});
  });
  pollfd ready{events.interrupt().fd, POLLIN, 0};
  while (ended_by == 0) {
    ::poll(&ready, 1, -1);
    (void)events.dispatch();
  }
  signpost.reset();
  signals.die_of(ended_by);
}

}  // namespace

Action add_web(Command command, Common& common) {
  auto flags = std::make_shared<WebFlags>();
  command.option("--port", flags->port, "Port on 127.0.0.1 (a free port)").type("PORT").between(1, 65535);
  command.flag("--no-open", flags->no_open, "Do not start a browser");
  add_json(command, common, "Print the address as JSON");
  command.footer(
      "Prints an address for one browser on this machine, and opens it if there is a\n"
      "desktop. The page has the rights of the user who runs this command, and works\n"
      "until Ctrl-C. Over ssh, forward the port: ssh -L PORT:127.0.0.1:PORT HOST.");
  return [&common, flags] { return web(common, *flags); };
}

}  // namespace sublet::cli
