// SPDX-License-Identifier: Apache-2.0
#include "machine/helper_probe.h"

#include "base/clock.h"
#include "base/log.h"
#include "gpu/probe_client.h"

#include <fmt/format.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>

#include <sys/socket.h>
#include <sys/wait.h>
#include <csignal>

namespace sublet::machine {
namespace {

namespace asio = boost::asio;
using asio::local::stream_protocol;
constexpr auto quiet = asio::as_tuple(asio::use_awaitable);

// A helper that sleeps in the kernel cannot be killed. More helpers would only sleep beside it.
constexpr std::size_t most_abandoned = 8;
constexpr Duration first_pause = std::chrono::milliseconds(100);
constexpr Duration longest_pause = std::chrono::seconds(10);

std::chrono::steady_clock::duration to_steady(Duration d) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(d);
}

}  // namespace

struct HelperProbe::Helper {
  explicit Helper(asio::io_context& io) : socket(io) {}
  stream_protocol::socket socket;
  pid_t pid = 0;
  gpu::LineSplitter lines;
};

Result<proc::Helper> HelperSystem::spawn(const ProbeOptions& options) {
  std::vector<std::string> words{"probe", "--fd", std::to_string(proc::helper_socket)};
  if (!options.nvml.empty()) words.insert(words.end(), {"--nvml", options.nvml});
  // The environment names the place of simulated cards.
  return proc::spawn_helper(
      {.program = options.helper, .arguments = std::move(words), .socket_type = SOCK_STREAM, .bare = false});
}

// A child that is not reaped keeps its pid, so the number is safe to use until then.
void HelperSystem::kill(pid_t helper) { ::kill(helper, SIGKILL); }
bool HelperSystem::ended(pid_t helper) { return ::waitpid(helper, nullptr, WNOHANG) == helper; }

asio::awaitable<void> HelperSystem::wait(Duration pause) {
  asio::steady_timer timer(co_await asio::this_coro::executor, to_steady(pause));
  co_await timer.async_wait(quiet);
}

HelperProbe::HelperProbe(asio::io_context& io, ProbeOptions options, HelperSystem* system)
    : io_(io), options_(std::move(options)), system_(system != nullptr ? *system : children_), wake_(io), late_(io) {}

HelperProbe::~HelperProbe() {
  if (helper_) abandon();
  reap();
}

// Without snapshots the daemon is of no use. An exception here is a bug and ends the daemon, which is then restarted.
void HelperProbe::start(Events events) {
  events_ = std::move(events);
  asio::co_spawn(io_, run(), [](const std::exception_ptr& failure) {
    if (failure) std::rethrow_exception(failure);
  });
}

void HelperProbe::stop() {
  stopped_ = true;
  wake_.cancel();
  if (helper_) abandon();
}

void HelperProbe::take_now() {
  wanted_now_ = true;
  wake_.cancel();
}

void HelperProbe::set_busy(bool busy) {
  const bool sooner = busy && !busy_;
  busy_ = busy;
  if (sooner) wake_.cancel();  // the rest of the interval is replaced by the shorter interval
}

asio::awaitable<void> HelperProbe::run() {
  Duration pause = first_pause;
  while (!stopped_) {
    wanted_now_ = false;
    const std::string problem = co_await ask();
    open_id_ = 0;
    late_.cancel();
    if (stopped_) co_return;
    if (problem.empty()) {
      if (!problem_.empty()) log::info("the GPUs can be read again");
      problem_.clear();
      pause = first_pause;
      co_await rest(busy_ ? options_.interval_busy : options_.interval_idle);
      continue;
    }
    if (helper_) abandon();
    if (problem != problem_) log::warn("the GPUs cannot be read, no lease is granted: {}; retrying", problem);
    problem_ = problem;
    events_.problem(problem);
    co_await system_.wait(pause);
    pause = std::min(pause * 2, longest_pause);
  }
}

// Waits until the interval is over or a snapshot is wanted now.
asio::awaitable<void> HelperProbe::rest(Duration at_most) {
  const std::int64_t since = monotonic_ns();
  while (!stopped_ && !wanted_now_) {
    const Duration interval = busy_ ? std::min(at_most, options_.interval_busy) : at_most;
    const Duration left = interval - Duration(monotonic_ns() - since);
    if (left <= Duration::zero()) co_return;
    wake_.expires_after(to_steady(left));
    co_await wake_.async_wait(quiet);
  }
}

asio::awaitable<std::string> HelperProbe::ask() {
  using namespace asio::experimental::awaitable_operators;
  if (!helper_) {
    std::string failure = spawn();
    if (!failure.empty()) co_return failure;
  }
  const std::uint64_t id = ++last_id_;
  const std::int64_t asked_ns = monotonic_ns();
  asio::steady_timer deadline(io_, to_steady(options_.timeout));
  watch_answer(id);
  const std::string command = gpu::encode_snapshot_command(id);
  if (auto [error, size] = co_await asio::async_write(helper_->socket, asio::buffer(command), quiet); error) {
    co_return "sublet-gpu has ended";
  }
  std::array<char, 65536> buffer;
  while (true) {
    while (auto line = helper_->lines.next()) {
      auto reply = gpu::decode_snapshot(*line);
      if (!reply) co_return "sublet-gpu gave an invalid answer: " + reply.error().detail;
      if (reply->id != id) continue;  // answers a question that was given up
      library_ = reply->snapshot.library;
      driver_version_ = reply->snapshot.driver_version;
      open_id_ = 0;
      events_.snapshot(std::move(reply->snapshot), asked_ns);
      co_return "";
    }
    auto got = co_await (helper_->socket.async_read_some(asio::buffer(buffer), quiet) || deadline.async_wait(quiet));
    if (stopped_) co_return "stopped";
    if (got.index() == 1) {
      co_return fmt::format("the driver did not answer for {}", format_duration(options_.timeout));
    }
    const auto [error, size] = std::get<0>(got);
    if (error) co_return "sublet-gpu has ended";
    if (auto fed = helper_->lines.feed({buffer.data(), size}); !fed) co_return fed.error().detail;
  }
}

// Once a helper was given up, each new one is asked in the same trouble.
void HelperProbe::watch_answer(std::uint64_t id) {
  open_id_ = id;
  if (!problem_.empty()) return;
  late_.expires_after(to_steady(options_.late));
  late_.async_wait([this, id](const auto& error) {
    if (error || open_id_ != id) return;
    events_.late(fmt::format("the driver has not answered for {}", format_duration(options_.late)));
  });
}

std::string HelperProbe::spawn() {
  reap();
  if (abandoned_.size() >= most_abandoned) {
    return fmt::format("{} helpers hang in the driver and cannot be killed; no new helper is started",
                       abandoned_.size());
  }
  auto started = system_.spawn(options_);
  if (!started) return started.error().detail;
  helper_ = std::make_unique<Helper>(io_);
  helper_->pid = started->pid;
  helper_->socket.assign(stream_protocol(), started->socket.release());
  return "";
}

void HelperProbe::abandon() {
  helper_->socket.close();
  system_.kill(helper_->pid);
  abandoned_.push_back(std::move(helper_));
  reap();
}

void HelperProbe::reap() {
  std::erase_if(abandoned_, [this](const std::unique_ptr<Helper>& helper) { return system_.ended(helper->pid); });
}

}  // namespace sublet::machine
