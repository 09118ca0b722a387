// SPDX-License-Identifier: Apache-2.0
// Acquire and release through the whole daemon: HTTP, core, durable commit. Starts a private daemon with a simulated
// card. The raw measure of the same run appends the same number of bytes to a file in the same directory and syncs it,
// as often as a single client must wait for the disk.
#include "private_daemon.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>

namespace {

using namespace sublet::bench;

std::string request(const std::string& path, const std::string& body) {
  return "POST " + path +
         " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n\r\n" + body;
}

// One client: it acquires and releases repeatedly, and records the time of each pair.
class Client {
 public:
  explicit Client(const std::string& socket_path) : fd_(connect_to(socket_path)) {}
  ~Client() { ::close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  int fd() const { return fd_; }

  void acquire() {
    began_ = Clock::now();
    releasing_ = false;
    send(request("/v1/leases", R"({"vram_bytes":1048576,"ttl_seconds":3600,"consumer":"bench"})"));
  }

  // Reads available data; true when a pair is complete.
  bool advance(std::vector<double>& pair_seconds) {
    char bytes[16384];
    const ssize_t size = ::read(fd_, bytes, sizeof bytes);
    if (size <= 0) die("the daemon closed the connection");
    reply_.append(bytes, static_cast<std::size_t>(size));
    const auto header_end = reply_.find("\r\n\r\n");
    if (header_end == std::string::npos) return false;
    const auto length_at = reply_.find("Content-Length: ");
    const auto length = std::strtoul(reply_.c_str() + length_at + 16, nullptr, 10);
    if (reply_.size() < header_end + 4 + length) return false;
    if (reply_.compare(9, 2, "20") != 0) die("refused: " + reply_);
    if (releasing_) {
      reply_.clear();
      pair_seconds.push_back(seconds_since(began_));
      return true;
    }
    const auto id_at = reply_.find("\"id\":\"lease-") + 6;
    const std::string id = reply_.substr(id_at, reply_.find('"', id_at) - id_at);
    reply_.clear();
    releasing_ = true;
    send(request("/v1/leases/" + id + "/release", "{}"));
    return false;
  }

 private:
  void send(const std::string& text) const {
    if (::write(fd_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) die("write");
  }

  int fd_ = -1;
  bool releasing_ = false;
  std::string reply_;
  Clock::time_point began_;
};

struct Measured {
  double pairs_per_second = 0;
  double p50_ms = 0;
  double p99_ms = 0;
};

std::size_t pairs_in_all = 0;

double quantile(std::vector<double>& values, double q) {
  const auto at = static_cast<std::size_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

Measured measure(const std::string& socket_path, int clients, double for_seconds) {
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  std::vector<std::unique_ptr<Client>> all;
  for (int i = 0; i < clients; ++i) {
    all.push_back(std::make_unique<Client>(socket_path));
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = all.back().get();
    ::epoll_ctl(epoll, EPOLL_CTL_ADD, all.back()->fd(), &event);
  }
  std::vector<double> pair_seconds;
  const auto start = Clock::now();
  for (const auto& client : all) client->acquire();
  std::size_t busy = all.size();
  while (busy > 0) {
    epoll_event events[64];
    const int ready = ::epoll_wait(epoll, events, 64, 10000);
    for (int i = 0; i < ready; ++i) {
      auto* client = static_cast<Client*>(events[i].data.ptr);
      if (!client->advance(pair_seconds)) continue;
      if (seconds_since(start) < for_seconds) client->acquire();
      else --busy;
    }
  }
  const double elapsed = seconds_since(start);
  ::close(epoll);
  pairs_in_all += pair_seconds.size();
  return {static_cast<double>(pair_seconds.size()) / elapsed, quantile(pair_seconds, 0.5) * 1e3,
          quantile(pair_seconds, 0.99) * 1e3};
}

// Two synced appends of the bytes of one transition: the least that a pair of a single waiting client needs.
Measured measure_raw(const std::string& directory, double for_seconds) {
  const std::string path = directory + "/raw";
  const int fd = ::open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  const std::vector<char> block(4096, 'x');
  std::vector<double> pair_seconds;
  const auto start = Clock::now();
  while (seconds_since(start) < for_seconds) {
    const auto began = Clock::now();
    for (int i = 0; i < 2; ++i) {
      if (::write(fd, block.data(), block.size()) < 0 || ::fdatasync(fd) != 0) die("raw write");
    }
    pair_seconds.push_back(seconds_since(began));
  }
  ::close(fd);
  ::unlink(path.c_str());
  return {static_cast<double>(pair_seconds.size()) / for_seconds, quantile(pair_seconds, 0.5) * 1e3,
          quantile(pair_seconds, 0.99) * 1e3};
}

void row(const char* what, const Measured& measured, const Measured& raw) {
  std::printf("%-28s %12.0f %10.3f %10.3f %12.2f\n", what, measured.pairs_per_second, measured.p50_ms, measured.p99_ms,
              measured.pairs_per_second / raw.pairs_per_second);
}

}  // namespace

int main(int argc, char** argv) {
  const double for_seconds = argc > 1 ? std::atof(argv[1]) : 5.0;
  const std::string bin = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path().string() + "/bin";
  char pattern[] = "/tmp/sublet-bench-XXXXXX";
  const std::string directory = ::mkdtemp(pattern);
  const pid_t daemon = start_daemon(bin, directory, "");
  const std::string socket_path = directory + "/sublet.sock";
  wait_for_card(socket_path);
  std::printf("%-28s %12s %10s %10s %12s\n", "acquire + release, durable", "pairs/s", "p50 ms", "p99 ms",
              "ratio to raw");
  const Measured raw = measure_raw(directory, for_seconds / 2);
  row("raw: 2 synced appends", raw, raw);
  row("1 client", measure(socket_path, 1, for_seconds), raw);
  row("64 clients", measure(socket_path, 64, for_seconds), raw);
  ::kill(daemon, SIGTERM);
  rusage used{};
  ::wait4(daemon, nullptr, 0, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  std::printf("the daemon's processor time: %.3f ms a pair\n",
              (seconds(used.ru_utime) + seconds(used.ru_stime)) * 1e3 / static_cast<double>(pairs_in_all));
  std::filesystem::remove_all(directory);
  return 0;
}
