// SPDX-License-Identifier: Apache-2.0
// sublet-gpu: the only process that opens the vendor's management library. A call into it may hang for ever;
// then this process hangs, and subletd goes on without it and starts another.
#include "gpu/probe.h"
#include "gpu/show.h"

#include "base/text.h"

#include <fmt/format.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace {

using namespace sublet;

constexpr const char* usage =
    "sublet-gpu asks the GPU driver's management library (NVML) for subletd.\n"
    "  sublet-gpu snapshot [--json] [--nvml PATH]  read all GPUs once and show them\n"
    "  sublet-gpu probe --fd N [--nvml PATH]  answer 'snapshot ID' lines on the socket N until it closes\n"
    "  sublet-gpu --version | --help\n"
    "--nvml PATH is the library's absolute path; by default the places where the driver installs it are "
    "tried.\n";

struct Options {
  std::string verb;
  std::string nvml;
  int fd = -1;
  bool json = false;
  std::string problem;
};

Options parse(const std::vector<std::string>& arguments) {
  Options options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const bool takes_value = word == "--fd" || word == "--nvml";
    if (takes_value && i + 1 == arguments.size()) {
      options.problem = fmt::format("{} needs a value", word);
    } else if (word == "--nvml") {
      options.nvml = arguments[++i];
      if (options.nvml.empty() || options.nvml[0] != '/') options.problem = "--nvml needs an absolute path";
    } else if (word == "--fd") {
      const std::string& value = arguments[++i];
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), options.fd);
      if (error != std::errc{} || end != value.data() + value.size() || options.fd < 0) {
        options.problem = "--fd needs the number of an open socket";
      }
    } else if (word == "--json") {
      options.json = true;
    } else if (options.verb.empty()) {
      options.verb = word;
    } else {
      options.problem = fmt::format("unexpected '{}'", printable(word));
    }
  }
  if (options.json && options.verb != "snapshot") options.problem = "--json belongs to snapshot";
  if (options.problem.empty() && (options.verb == "probe") != (options.fd >= 0)) {
    options.problem = options.verb == "probe" ? "probe needs --fd" : "--fd belongs to probe";
  }
  return options;
}

// Signals as at the start of any program, whatever the daemon blocked. What a terminal sends to its group is
// not for us: the end of the socket is our end.
void reset_signals(bool serving) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal : {SIGTERM, SIGALRM, SIGPIPE, SIGCHLD}) std::signal(signal, SIG_DFL);
  for (const int signal : {SIGINT, SIGHUP}) std::signal(signal, serving ? SIG_IGN : SIG_DFL);
}

int probe(const Options& options) {
  gpu::shed_descriptors(options.fd);
  reset_signals(true);
  gpu::Sampler sampler(options.nvml);
  return gpu::serve_probe(options.fd, sampler);
}

int snapshot(const Options& options) {
  gpu::shed_descriptors(-1);
  reset_signals(false);
  gpu::Sampler sampler(options.nvml);
  const gpu::GpuSnapshot taken = gpu::judge(sampler.take());
  std::fputs((options.json ? gpu::encode_snapshot(0, taken) : gpu::show_snapshot(taken)).c_str(), stdout);
  if (std::fflush(stdout) != 0) return 1;
  return taken.problem.empty() ? 0 : 1;
}

int run(const std::vector<std::string>& arguments) {
  const Options options = parse(arguments);
  if (options.problem.empty()) {
    if (options.verb == "probe") return probe(options);
    if (options.verb == "snapshot") return snapshot(options);
    if (options.verb == "--version" || options.verb == "--help" || options.verb == "-h") {
      fmt::print("{}", options.verb == "--version" ? "sublet-gpu " SUBLET_VERSION "\n" : usage);
      return 0;
    }
  }
  fmt::print(stderr, "sublet-gpu: {}\n{}",
             options.problem.empty() ? fmt::format("unknown verb '{}'", printable(options.verb)) : options.problem,
             usage);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run({argv + 1, argv + argc});
  } catch (const std::exception& error) {  // out of memory; everything else is a value
    std::fprintf(stderr, "sublet-gpu: %s\n", error.what());
    return 1;
  }
}
