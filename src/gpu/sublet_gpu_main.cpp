// SPDX-License-Identifier: Apache-2.0
// sublet-gpu: the only process that opens the vendor's libraries. A call into a library may hang for ever. Then only
// this process hangs, and subletd starts another.
#include "gpu/checkpoint.h"
#include "gpu/cuda_api.h"
#include "gpu/json_line.h"
#include "gpu/probe.h"
#include "gpu/serve.h"
#include "gpu/show.h"

#include "base/descriptors.h"
#include "base/text.h"

#include <fmt/format.h>

#include <sys/prctl.h>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace {

using namespace sublet;

constexpr const char* usage =
    "sublet-gpu calls the GPU driver's libraries for subletd.\n"
    "  sublet-gpu snapshot [--json] [--nvml PATH]  read all GPUs once and print them\n"
    "  sublet-gpu support [--json] [--driver PATH]  print whether the driver can park processes\n"
    "  sublet-gpu probe --fd N [--nvml PATH]  answer 'snapshot ID' lines on the socket N until it closes\n"
    "  sublet-gpu checkpoint --fd N --pid P [--start TICKS] [--driver PATH]  park and restore the CUDA state of "
    "process P\n"
    "      by JSON lines on the socket N; when the socket closes, a process that is only locked is unlocked\n"
    "  sublet-gpu --version | --help\n"
    "--nvml PATH and --driver PATH are the absolute paths of the management library (NVML) and of the CUDA driver.\n"
    "Default: where the vendor installs them. --start TICKS is the process's start time in /proc/P/stat; if it "
    "differs,\n"
    "the process counts as gone.\n";

struct Options {
  std::string verb;
  std::string nvml;
  std::string driver;
  int fd = -1;
  ProcessRef target;
  bool json = false;
  std::string problem;
};

template <typename Number>
bool read_number(const std::string& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

void set_value(Options& options, const std::string& flag, const std::string& value) {
  if (flag == "--nvml" || flag == "--driver") {
    (flag == "--nvml" ? options.nvml : options.driver) = value;
    if (value.empty() || value[0] != '/') options.problem = flag + " needs an absolute path";
  } else if (flag == "--fd") {
    if (!read_number(value, options.fd) || options.fd < 0) options.problem = "--fd needs the number of an open socket";
  } else if (flag == "--pid") {
    if (!read_number(value, options.target.pid) || options.target.pid <= 0) {
      options.problem = "--pid needs the id of a process";
    }
  } else if (!read_number(value, options.target.start_ticks) || options.target.start_ticks == 0) {
    options.problem = "--start needs a start time in clock ticks";
  }
}

// Checks that the options belong to the verb.
std::string mismatch(const Options& options) {
  const bool checkpoint = options.verb == "checkpoint", serves = checkpoint || options.verb == "probe";
  const bool supports = options.verb == "support";
  if (options.json && options.verb != "snapshot" && !supports) return "only snapshot and support take --json";
  if (serves && options.fd < 0) return options.verb + " needs --fd";
  if (!serves && options.fd >= 0) return "only probe and checkpoint take --fd";
  if (checkpoint && !options.target) return "checkpoint needs --pid";
  if (!checkpoint && (options.target.pid != 0 || options.target.start_ticks != 0)) {
    return "only checkpoint takes --pid and --start";
  }
  if (!checkpoint && !supports && !options.driver.empty()) return "only checkpoint and support take --driver";
  if ((checkpoint || supports) && !options.nvml.empty()) return "only probe and snapshot take --nvml";
  return {};
}

Options parse(const std::vector<std::string>& arguments) {
  Options options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const bool takes_value =
        word == "--fd" || word == "--nvml" || word == "--driver" || word == "--pid" || word == "--start";
    if (takes_value && i + 1 == arguments.size()) {
      options.problem = fmt::format("{} needs a value", word);
    } else if (takes_value) {
      set_value(options, word, arguments[++i]);
    } else if (word == "--json") {
      options.json = true;
    } else if (options.verb.empty()) {
      options.verb = word;
    } else {
      options.problem = fmt::format("unexpected '{}'", printable(word));
    }
  }
  if (options.problem.empty()) options.problem = mismatch(options);
  return options;
}

// Resets the signals that the daemon blocked. Ignores signals that a terminal sends to its group: this process ends at
// the end of the socket.
void reset_signals(bool serving) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal : {SIGTERM, SIGALRM, SIGPIPE, SIGCHLD}) std::signal(signal, SIG_DFL);
  for (const int signal : {SIGINT, SIGHUP}) std::signal(signal, serving ? SIG_IGN : SIG_DFL);
}

int probe(const Options& options) {
  shed_descriptors(options.fd);
  reset_signals(true);
  gpu::Sampler sampler(options.nvml);
  return gpu::serve_probe(options.fd, sampler);
}

int checkpoint(const Options& options) {
  // This process has the limits of its parent, not those of its user, so other processes of the user must not trace it.
  // Until here the file's mode prevents tracing: a program that may not be read may not be traced.
  ::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  shed_descriptors(options.fd);
  reset_signals(true);
  // Ending during a driver call would leave the process in an undefined state.
  std::signal(SIGTERM, SIG_IGN);
  return gpu::serve_checkpoint(options.fd, options.target, options.driver);
}

int snapshot(const Options& options) {
  shed_descriptors(-1);
  reset_signals(false);
  gpu::Sampler sampler(options.nvml);
  const gpu::GpuSnapshot taken = gpu::judge(sampler.take());
  std::fputs((options.json ? gpu::encode_snapshot(0, taken) : gpu::show_snapshot(taken)).c_str(), stdout);
  if (std::fflush(stdout) != 0) return 1;
  return taken.problem.empty() ? 0 : 1;
}

int support(const Options& options) {
  shed_descriptors(-1);
  reset_signals(false);
  const auto driver = gpu::CudaApi::load(options.driver);
  const std::string problem = driver ? std::string() : driver.error().detail;
  const int version = driver ? driver->version() : 0;
  if (options.json) {
    const gpu::Json said = {{"supported", driver.has_value()},
                            {"version", version},
                            {"library", driver ? driver->path() : options.driver},
                            {"problem", problem}};
    std::fputs(gpu::to_line(said).c_str(), stdout);
  } else if (driver) {
    fmt::print("{} can park processes (CUDA {}.{})\n", printable(driver->path()), version / 1000, version % 1000 / 10);
  } else {
    fmt::print("the driver cannot park processes: {}\n", problem);
  }
  if (std::fflush(stdout) != 0) return 1;
  return driver ? 0 : 1;
}

int run(const std::vector<std::string>& arguments) {
  const Options options = parse(arguments);
  if (options.problem.empty()) {
    if (options.verb == "probe") return probe(options);
    if (options.verb == "checkpoint") return checkpoint(options);
    if (options.verb == "snapshot") return snapshot(options);
    if (options.verb == "support") return support(options);
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
  } catch (const std::exception& error) {  // out of memory; all other errors are values
    std::fprintf(stderr, "sublet-gpu: %s\n", error.what());
    return 1;
  }
}
