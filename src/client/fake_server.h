// SPDX-License-Identifier: Apache-2.0
// For tests: a Unix-socket server on its own thread. The test writes its answers byte by byte.
#pragma once

#include "base/fd.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cassert>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace sublet::test {

// A temporary directory, removed with its files.
class ScratchDir {
 public:
  ScratchDir() {
    std::string name = "/tmp/sublet-test-XXXXXX";
    assert(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~ScratchDir() {
    const std::string command = "rm -rf '" + path_ + "'";
    if (::system(command.c_str()) != 0) ::perror("rm");
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct FakeRequest {
  std::string head;  // request line and headers
  std::string body;
  int connection = 0;  // 1 for the first accepted connection
  std::string line() const { return head.substr(0, head.find('\r')); }
  std::string header(const std::string& name) const {
    const auto at = head.find("\r\n" + name + ": ");
    if (at == std::string::npos) return {};
    const auto from = at + name.size() + 4;
    return head.substr(from, head.find('\r', from) - from);
  }
};

// Serves one connection at a time. `answer` returns the bytes to send. The connection is closed after an answer with
// `close_after`, or when the client closes it.
class FakeServer {
 public:
  struct Out {
    std::string bytes;
    bool close_after = false;
  };
  using Handler = std::function<Out(const FakeRequest&)>;

  FakeServer(std::string path, Handler handler) : path_(std::move(path)), handler_(std::move(handler)) {
    stop_ = Fd(::eventfd(0, EFD_CLOEXEC));
    listener_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    assert(path_.size() < sizeof address.sun_path);
    std::memcpy(address.sun_path, path_.c_str(), path_.size() + 1);
    ::unlink(path_.c_str());
    const int bound = ::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
    const int listening = ::listen(listener_.get(), 16);
    assert(bound == 0 && listening == 0);
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeServer() {
    const std::uint64_t one = 1;
    assert(::write(stop_.get(), &one, sizeof one) == sizeof one);
    thread_.join();
    ::unlink(path_.c_str());
  }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  std::vector<FakeRequest> seen() {
    const std::lock_guard lock(mutex_);
    return seen_;
  }
  static std::string json(int status, const std::string& body) {
    return "HTTP/1.1 " + std::to_string(status) +
           " X\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }

 private:
  std::string path_;
  Handler handler_;
  Fd stop_, listener_;
  std::thread thread_;
  std::mutex mutex_;
  std::vector<FakeRequest> seen_;

  bool readable(int fd) {  // false: stop
    pollfd fds[2] = {{stop_.get(), POLLIN, 0}, {fd, POLLIN, 0}};
    while (::poll(fds, 2, -1) < 0) {
    }
    return fds[0].revents == 0;
  }
  void serve() {
    for (int count = 1; readable(listener_.get()); ++count) {
      Fd peer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (peer) talk(peer.get(), count);
    }
  }
  void talk(int peer, int count) {
    std::string in;
    while (readable(peer)) {
      char buffer[4096];
      const ssize_t n = ::read(peer, buffer, sizeof buffer);
      if (n <= 0) return;
      in.append(buffer, static_cast<std::size_t>(n));
      const auto end = in.find("\r\n\r\n");
      if (end == std::string::npos) continue;
      FakeRequest request{in.substr(0, end + 2), {}, count};
      const std::string length = request.header("Content-Length");
      const std::size_t total = end + 4 + (length.empty() ? 0 : std::stoul(length));
      if (in.size() < total) continue;
      request.body = in.substr(end + 4, total - end - 4);
      in.erase(0, total);
      {
        const std::lock_guard lock(mutex_);
        seen_.push_back(request);
      }
      const Out out = handler_(request);
      if (::send(peer, out.bytes.data(), out.bytes.size(), MSG_NOSIGNAL) < 0 || out.close_after) return;
    }
  }
};

}  // namespace sublet::test
