// SPDX-License-Identifier: Apache-2.0
// The part of an enforcer's pass that grows with the machine: descriptions of GPU processes in a generated /proc tree
// of 20,000 processes. Only the GPU processes and their ancestors are read. The raw measure of the same run opens and
// reads the same files, and parses nothing. Figures are CPU time of this process.
//   enforcer_bench [GPU PROCESSES=500] [PROCESSES=20000]
#include "proc/process_record.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace {

using namespace sublet;
namespace fs = std::filesystem;

constexpr int depth = 6;  // ancestors of each process, up to pid 1

double cpu_ms() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto ms = [](timeval time) {
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_usec) / 1e3;
  };
  return ms(usage.ru_utime) + ms(usage.ru_stime);
}

int parent_of(int pid) { return pid <= depth ? std::max(pid - 1, 0) : depth; }

void make_process(const fs::path& proc, int pid) {
  const fs::path place = proc / std::to_string(pid);
  fs::create_directory(place);
  std::ofstream(place / "stat") << pid << " (python3) S " << parent_of(pid) << " " << pid << " " << pid
                                << " 0 -1 4194560 0 0 0 0 1 1 0 0 20 0 8 0 " << 1000 + pid << " 0 0 0\n";
  std::ofstream(place / "status") << "Name:\tpython3\nTgid:\t" << pid << "\nUid:\t1000\t1000\t1000\t1000\n"
                                  << "Gid:\t1000\t1000\t1000\t1000\nGroups:\t1000\nNSpid:\t" << pid << "\n";
  std::ofstream(place / "cgroup") << "0::/user.slice/user-1000.slice/session-3.scope\n";
  std::ofstream(place / "cmdline") << std::string("python3\0train.py\0", 17);
}

void read_raw(const fs::path& proc, int pid) {
  char text[4096];
  const auto read = [&](int which, const char* name) {
    const std::string path = (proc / std::to_string(which) / name).string();
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    while (::read(file, text, sizeof text) > 0) {
    }
    ::close(file);
  };
  for (const char* name : {"stat", "status", "cgroup", "cmdline", "stat"}) read(pid, name);
  for (int above = parent_of(pid); above > 0; above = parent_of(above)) read(above, "stat");
}

}  // namespace

int main(int argc, char** argv) {
  const int gpu = argc > 1 ? std::atoi(argv[1]) : 500;
  const int all = argc > 2 ? std::atoi(argv[2]) : 20'000;
  char place[] = "/tmp/sublet-proc-XXXXXX";
  if (::mkdtemp(place) == nullptr || gpu < 1 || all < gpu + depth) return 2;
  for (int pid = 1; pid <= all; ++pid) make_process(place, pid);
  auto root = proc::ProcRoot::open(place);
  if (!root) return 1;
  std::vector<double> ours, raw;
  int described = 0;
  for (int round = 0; round < 9; ++round) {
    double began = cpu_ms();
    for (int i = 0; i < gpu; ++i) read_raw(place, all - i);
    raw.push_back(cpu_ms() - began);
    began = cpu_ms();
    described = 0;
    for (int i = 0; i < gpu; ++i) {
      const int pid = all - i;
      described += proc::describe_process(*root, {pid, static_cast<std::uint64_t>(1000 + pid)}) ? 1 : 0;
    }
    ours.push_back(cpu_ms() - began);
  }
  fs::remove_all(place);
  std::sort(ours.begin(), ours.end());
  std::sort(raw.begin(), raw.end());
  const double mine = ours[ours.size() / 2], theirs = std::max(raw[raw.size() / 2], 1e-3);
  std::printf("%d of %d processes described, %d found\n", gpu, all, described);
  std::printf("%-24s %10s %10s %14s\n", "a pass", "ms of CPU", "raw ms", "ratio to raw");
  std::printf("%-24s %10.2f %10.2f %14.2f\n", "descriptions", mine, theirs, mine / theirs);
  return described == gpu ? 0 : 1;
}
