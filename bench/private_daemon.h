// SPDX-License-Identifier: Apache-2.0
// Helpers for the benchmarks of the whole daemon: a private daemon with a simulated card, and plain sockets to it.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>

namespace sublet::bench {

using Clock = std::chrono::steady_clock;

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

inline pid_t started = 0;  // the daemon of this run: it must not outlive a benchmark that fails

[[noreturn]] inline void die(const std::string& what) {
  std::fprintf(stderr, "bench: %s: %s\n", what.c_str(), std::strerror(errno));
  if (started != 0) ::kill(started, SIGKILL);
  std::exit(1);
}

inline int connect_to(const std::string& socket_path) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socket_path.copy(address.sun_path, sizeof address.sun_path - 1);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) die("connect " + socket_path);
  return fd;
}

// Returns the whole reply to a GET, on a connection of its own.
inline std::string ask_once(const std::string& socket_path, const std::string& path) {
  const int fd = connect_to(socket_path);
  const std::string text = "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  if (::write(fd, text.data(), text.size()) < 0) die("write");
  std::string reply;
  char bytes[65536];
  for (ssize_t size = 0; (size = ::read(fd, bytes, sizeof bytes)) > 0;)
    reply.append(bytes, static_cast<std::size_t>(size));
  ::close(fd);
  return reply;
}

// Starts the daemon; `config` is the text of its sublet.toml. Returns once the daemon serves.
inline pid_t start_daemon(const std::string& bin, const std::string& directory, const std::string& config) {
  const int file = ::open((directory + "/sublet.toml").c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  if (::write(file, config.data(), config.size()) != static_cast<ssize_t>(config.size())) die("write sublet.toml");
  ::close(file);
  int ready[2];
  if (::pipe(ready) != 0) die("pipe");
  ::fcntl(ready[0], F_SETFD, FD_CLOEXEC);
  std::string words[] = {bin + "/subletd",        "--dir", directory, "--sim", "1x1024GiB", "--ready-fd",
                         std::to_string(ready[1])};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  if (::posix_spawn(&pid, argv[0], nullptr, nullptr, argv.data(), environ) != 0) die("start " + words[0]);
  started = pid;
  ::close(ready[1]);
  char said[8];
  if (::read(ready[0], said, sizeof said) <= 0) die("the daemon did not start");
  ::close(ready[0]);
  return pid;
}

inline void wait_for_card(const std::string& socket_path) {
  for (int i = 0; i < 200; ++i) {  // the first reading comes within moments; until then a lease waits
    const std::string reply = ask_once(socket_path, "/v1/devices");
    if (reply.find("\"state\":\"ok\"") != std::string::npos) return;
    ::usleep(20'000);
  }
  die("no card was read");
}

}  // namespace sublet::bench
