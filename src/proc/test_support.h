// SPDX-License-Identifier: Apache-2.0
// Helpers for the tests of this folder: a temporary directory, and children with a controlled lifetime.
#pragma once

#include "base/fd.h"

#include <gtest/gtest.h>

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace sublet::proc {

class TempDir {
 public:
  TempDir() {
    const char* base = std::getenv("TMPDIR");
    std::string pattern = std::string(base != nullptr ? base : "/tmp") + "/sublet-proc-XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "no temporary directory " << pattern;
    path_ = pattern;
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  std::string path(const std::string& name = {}) const { return name.empty() ? path_ : path_ + "/" + name; }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << text;
  }

 private:
  std::string path_;
};

// A forked child that runs `body` and exits with its result. Killed and reaped at the end of the scope.
class Child {
 public:
  template <typename Body>
  explicit Child(Body body) : pid_(::fork()) {
    if (pid_ == 0) ::_exit(body());
  }
  ~Child() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    int status = 0;
    ::waitpid(pid_, &status, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  // Waits until the child has ended. It stays a zombie until reap().
  void wait_for_end() const {
    siginfo_t info{};
    ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
  }
  int reap() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return status;
  }

 private:
  pid_t pid_;
};

inline int sleep_for_ever() {
  for (;;) ::pause();
}

// A process that has freed its memory and has not ended. It is the first process of a pid namespace and waits for a
// zombie in it. It ends with the scope. Runs `body` while it still has memory. Needs root.
class Ending {
 public:
  template <typename Body>
  explicit Ending(Body body) : keeper_([&] { return keep(body); }) {
    ready_.write_end.reset();
    if (::read(ready_.read_end.get(), &pid_, sizeof pid_) != sizeof pid_) ADD_FAILURE() << "no process that ends";
    const std::string status = "/proc/" + std::to_string(pid_) + "/status";
    for (bool has_memory = true; has_memory && !::testing::Test::HasFailure();) {
      std::ifstream file(status);
      const std::string text((std::istreambuf_iterator<char>(file)), {});
      has_memory = text.empty() || text.find("VmSize:") != std::string::npos;
    }
  }
  Ending() : Ending([] {}) {}
  ~Ending() {
    gate_.write_end.reset();
    keeper_.reap();
  }
  pid_t pid() const { return pid_; }

 private:
  struct Pipe {
    Pipe() {
      int ends[2] = {-1, -1};
      if (::pipe(ends) != 0) ADD_FAILURE() << "no pipe";
      read_end = Fd(ends[0]);
      write_end = Fd(ends[1]);
    }
    Fd read_end, write_end;
  };

  template <typename Body>
  int keep(Body body) {
    gate_.write_end.reset();
    if (::unshare(CLONE_NEWPID) != 0) return 1;
    Pipe go;
    const pid_t first = ::fork();
    char byte = 0;
    if (first == 0) {
      body();
      ::_exit(::read(go.read_end.get(), &byte, 1) == 1 ? 0 : 1);
    }
    const pid_t other = ::fork();
    if (other == 0) ::_exit(sleep_for_ever());
    const bool told = ::write(go.write_end.get(), "x", 1) == 1 &&
                      ::write(ready_.write_end.get(), &first, sizeof first) == sizeof first;
    while (told && ::read(gate_.read_end.get(), &byte, 1) > 0) {
    }
    ::kill(other, SIGKILL);
    ::waitpid(other, nullptr, 0);
    ::waitpid(first, nullptr, 0);
    return 0;
  }

  Pipe ready_, gate_;
  pid_t pid_ = -1;
  Child keeper_;  // the last member, because it uses the others
};

}  // namespace sublet::proc
