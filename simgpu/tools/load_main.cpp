// SPDX-License-Identifier: Apache-2.0
#include "simgpu/tools/load_pause.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

namespace {

using namespace simgpu::tools;
using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

int ended_fd = -1;
volatile std::sig_atomic_t ended_by = 0;

void on_end(int signal) {
  ended_by = signal;
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(ended_fd, &one, sizeof one);
}

// The second signal ends the program at once: after the first the program may wait for a driver that never answers.
void catch_ends() {
  ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  struct sigaction action {};
  action.sa_handler = on_end;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
}

bool wait_or_end(nanoseconds time) {
  pollfd poll_fd{.fd = ended_fd, .events = POLLIN, .revents = 0};
  const timespec timeout{.tv_sec = time.count() / 1'000'000'000, .tv_nsec = time.count() % 1'000'000'000};
  ppoll(&poll_fd, 1, &timeout, nullptr);
  return ended_by != 0;
}

std::string text_of(const LoadResult& result, bool right) {
  const auto size = [](std::uint64_t bytes) { return sublet::format_size({static_cast<std::int64_t>(bytes)}); };
  return fmt::format(
      "{}: {} filled on {} in {} ms, computed for {} ms, {} launches, {} verified, {} wrong words, "
      "longest stall {} ms, seed {}",
      right ? "right" : "WRONG", size(result.filled_bytes), result.device,
      duration_cast<milliseconds>(result.fill_time).count(), duration_cast<milliseconds>(result.compute_time).count(),
      result.launches, size(result.verified_bytes), result.errors,
      duration_cast<milliseconds>(result.longest_stall).count(), result.seed);
}

std::string json_of(const LoadResult& result, bool right, const std::string& error, std::uint64_t pauses,
                    nanoseconds yielded_in) {
  const nlohmann::json json = {{"ok", right},
                               {"error", error.empty() ? nlohmann::json() : nlohmann::json(error)},
                               {"ended_by", ended_by == SIGTERM  ? "SIGTERM"
                                            : ended_by == SIGINT ? "SIGINT"
                                                                 : "time"},
                               {"device", result.device},
                               {"seed", result.seed},
                               {"filled_bytes", result.filled_bytes},
                               {"verified_bytes", result.verified_bytes},
                               {"wrong_words", result.errors},
                               {"launches", result.launches},
                               {"pauses", pauses},
                               {"yield_ms", std::chrono::duration<double, std::milli>(yielded_in).count()},
                               {"fill_ms", duration_cast<milliseconds>(result.fill_time).count()},
                               {"compute_ms", duration_cast<milliseconds>(result.compute_time).count()},
                               {"longest_stall_ms", duration_cast<milliseconds>(result.longest_stall).count()}};
  return json.dump();
}

int run(const LoadOptions& options) {
  LoadResult result;
  std::string error;
  std::uint64_t pauses = 0;
  nanoseconds yielded_in{0};
  try {
    const CudaDriver driver;
    Pausing* pausing = nullptr;
    Load load(driver, options, [&pausing](nanoseconds time) {
      if (pausing != nullptr) pausing->safe_point();
      return wait_or_end(time);
    });
    try {
      Pausing registered(driver, load, options);
      pausing = &registered;
      load.prove_kernels();
      if (load.fill()) {
        fmt::print(stderr, "simgpu-load: filled {} on {}\n", sublet::format_size(options.alloc), load.result().device);
        load.compute();
      }
      registered.safe_point();
      load.verify_all();
      pauses = registered.pauses();
      yielded_in = registered.yielded_in();
      load.release();
    } catch (const CudaError& failure) {
      error = failure.what();
    }
    result = load.result();
  } catch (const CudaError& failure) {
    error = failure.what();
  }
  const bool right = error.empty() && result.errors == 0;
  if (!error.empty()) fmt::print(stderr, "simgpu-load: {}\n", error);
  if (options.json) fmt::print("{}\n", json_of(result, right, error, pauses, yielded_in));
  else if (error.empty()) fmt::print("{}\n", text_of(result, right));
  std::fflush(stdout);
  if (!right) return 1;
  return ended_by != 0 ? 128 + ended_by : 0;
}

}  // namespace

int main(int argc, char** argv) {
  auto options = parse_load_options({argv + 1, argv + argc});
  if (!options) {
    fmt::print(stderr, "simgpu-load: {}\n", options.error().detail);
    if (!options.error().hint.empty()) fmt::print(stderr, "  {}\n", options.error().hint);
    fmt::print(stderr, "  simgpu-load --help shows the options\n");
    return 2;
  }
  if (options->help) return fmt::print("{}", load_help), 0;
  if (options->version) return fmt::print("simgpu-load {}\n", SUBLET_VERSION), 0;
  if (options->seed == 0) options->seed = static_cast<std::uint64_t>(getpid());
  catch_ends();
  return run(*options);
}
