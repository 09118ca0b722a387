// SPDX-License-Identifier: Apache-2.0
// Thousands of requests that wait for one card: the memory of each, and the time until all are answered when memory for
// all becomes free at once. The raw measure of the same run writes as many answers of the same size one after the other
// to as many connections, without decisions and without a store.
#include "private_daemon.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <csignal>

namespace {

using namespace sublet::bench;

std::string post(const std::string& path, const std::string& body) {
  return "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

void send_all(int fd, const std::string& text) {
  if (::write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size())) die("write");
}

std::string read_reply(int fd) {
  std::string reply;
  char bytes[16384];
  while (true) {
    const ssize_t size = ::read(fd, bytes, sizeof bytes);
    if (size <= 0) die("the daemon closed the connection");
    reply.append(bytes, static_cast<std::size_t>(size));
    const auto end = reply.find("\r\n\r\n");
    const auto at = reply.find("Content-Length: ");
    if (end == std::string::npos || at == std::string::npos) continue;
    if (reply.size() >= end + 4 + std::strtoul(reply.c_str() + at + 16, nullptr, 10)) return reply;
  }
}

// "VmRSS", "Threads" of the daemon.
long status_of(pid_t pid, const std::string& name) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) return std::atol(line.c_str() + name.size() + 1);
  }
  return 0;
}

long pss_kib(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/smaps_rollup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Pss:")) return std::atol(line.c_str() + 4);
  }
  return 0;
}

// Processor time of a thread in milliseconds.
double cpu_ms(pid_t pid, const std::string& thread) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    double ns = 0;
    std::ifstream(task.path() / "schedstat") >> ns;
    if (name == thread) return ns / 1e6;
  }
  return 0;
}

// Records when answers arrive. It shares the processors with the daemon, so it must cost little: it looks once a
// millisecond, instead of waking up for each answer. This delays a recorded time by up to a millisecond.
class Collector {
 public:
  explicit Collector(const std::vector<int>& fds) : left_(fds.size()) {
    for (const int fd : fds) {
      epoll_event event{};
      event.events = EPOLLIN | EPOLLET | EPOLLONESHOT;
      event.data.fd = fd;
      ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
    }
  }
  ~Collector() { ::close(epoll_); }
  Collector(const Collector&) = delete;

  // The time of each answer, in seconds from `start`, in order.
  std::vector<double> answers(Clock::time_point start) {
    std::vector<double> answered;
    epoll_event events[1024];
    char bytes[16384];
    while (answered.size() < left_) {
      if (seconds_since(start) > 60 + (answered.empty() ? 0 : answered.back())) die("no answer for a minute");
      const int ready = ::epoll_wait(epoll_, events, 1024, 0);
      for (int i = 0; i < ready; ++i) {
        const ssize_t size = ::read(events[i].data.fd, bytes, sizeof bytes);
        if (size <= 0) die("a waiter was cut off");
        answer_size_ = std::max(answer_size_, static_cast<std::size_t>(size));
        answered.push_back(seconds_since(start));
      }
      if (ready < 1024) ::usleep(1000);
    }
    return answered;
  }
  std::size_t answer_size() const { return answer_size_; }

 private:
  int epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  std::size_t left_, answer_size_ = 0;
};

// If fewer than twice `count` descriptors are allowed, as many as possible are used, and the time is scaled.
double raw_seconds(std::size_t count, std::size_t answer_size) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  const std::size_t pairs = std::min<std::size_t>(count, (files.rlim_cur - 64) / 2);
  std::vector<int> ours, theirs;
  for (std::size_t i = 0; i < pairs; ++i) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) die("socketpair");
    ours.push_back(ends[0]);
    theirs.push_back(ends[1]);
  }
  const std::string answer(answer_size, 'x');
  Collector collector(ours);
  const auto start = Clock::now();
  const pid_t writer = ::fork();
  if (writer == 0) {
    for (const int fd : theirs) send_all(fd, answer);
    ::_exit(0);
  }
  const double last = collector.answers(start).back();
  ::waitpid(writer, nullptr, 0);
  for (const int fd : ours) ::close(fd);
  for (const int fd : theirs) ::close(fd);
  return last * static_cast<double>(count) / static_cast<double>(pairs);
}

void wait_for_queue(const std::string& socket_path, std::size_t count) {
  const std::string wanted = "\"queued\":" + std::to_string(count) + ",";
  while (ask_once(socket_path, "/v1/status").find(wanted) == std::string::npos) ::usleep(50'000);
}

}  // namespace

int main(int argc, char** argv) {
  const std::size_t count = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 10'000;
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  const std::string bin = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path().string() + "/bin";
  char pattern[] = "/tmp/sublet-bench-XXXXXX";
  const std::string directory = ::mkdtemp(pattern);
  const std::string limit = std::to_string(count + 100);
  const pid_t daemon = start_daemon(bin, directory, "[limits]\nwaiters = " + limit + "\nleases = " + limit + "\n");
  const std::string socket_path = directory + "/sublet.sock";
  wait_for_card(socket_path);

  const int owner = connect_to(socket_path);
  const std::string devices = ask_once(socket_path, "/v1/devices");
  const auto free_at = devices.find("\"effective_free_bytes\":") + 23;
  const std::string all_of_it = devices.substr(free_at, devices.find(',', free_at) - free_at);
  send_all(owner, post("/v1/leases", "{\"vram_bytes\":" + all_of_it + "}"));
  const std::string held = read_reply(owner);
  const auto id_at = held.find("\"id\":\"lease-") + 6;
  if (held.find("\"active\"") == std::string::npos) die("the card is not ours: " + held);
  const std::string id = held.substr(id_at, held.find('"', id_at) - id_at);
  const long before = pss_kib(daemon);
  std::vector<int> waiters;
  for (std::size_t i = 0; i < count; ++i) {
    waiters.push_back(connect_to(socket_path));
    send_all(waiters.back(), post("/v1/leases", R"({"vram_bytes":1048576,"wait_seconds":3600,"consumer":"bench"})"));
    if (i % 100 == 99) wait_for_queue(socket_path, i + 1);
  }
  wait_for_queue(socket_path, count);
  std::printf("%zu waiters: %.1f MiB (RSS %.1f MiB, before %.1f MiB), %.2f KiB each, %ld threads\n", count,
              static_cast<double>(pss_kib(daemon)) / 1024, static_cast<double>(status_of(daemon, "VmRSS")) / 1024,
              static_cast<double>(before) / 1024,
              static_cast<double>(pss_kib(daemon) - before) / static_cast<double>(count), status_of(daemon, "Threads"));
  for (const char* path : {"/healthz", "/v1/status", "/metrics", "/v1/leases?limit=1000", "/v1/queue?limit=1000"}) {
    std::vector<double> took;
    std::size_t size = 0;
    for (int i = 0; i < 21; ++i) {
      const auto asked = Clock::now();
      size = ask_once(socket_path, path).size();
      took.push_back(seconds_since(asked));
    }
    std::nth_element(took.begin(), took.begin() + 10, took.end());
    std::printf("GET %-24s %8.2f ms for %zu KiB\n", path, took[10] * 1e3, size / 1024);
  }
  const double loop_before = cpu_ms(daemon, "subletd"), store_before = cpu_ms(daemon, "store");
  Collector collector(waiters);
  const auto start = Clock::now();
  send_all(owner, post("/v1/leases/" + id + "/release", "{}"));
  const std::vector<double> answered = collector.answers(start);
  const std::size_t answer_size = collector.answer_size();
  std::printf("processor time for it: loop %.1f ms, store %.1f ms\n", cpu_ms(daemon, "subletd") - loop_before,
              cpu_ms(daemon, "store") - store_before);
  for (const int fd : waiters) ::close(fd);
  const double raw = raw_seconds(count, answer_size);
  std::printf(
      "after the release: first answer %.1f ms, median %.1f ms, last %.1f ms; raw %.1f ms for %zu bytes each, "
      "ratio %.1f\n",
      answered.front() * 1e3, answered[answered.size() / 2] * 1e3, answered.back() * 1e3, raw * 1e3, answer_size,
      answered.back() / raw);
  ::kill(daemon, SIGTERM);
  ::waitpid(daemon, nullptr, 0);
  std::filesystem::remove_all(directory);
  return 0;
}
