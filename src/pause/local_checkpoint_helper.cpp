// SPDX-License-Identifier: Apache-2.0
#include "pause/local_checkpoint_helper.h"

#include "gpu/probe_client.h"
#include "proc/host_memory.h"
#include "proc/spawn.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <sys/socket.h>
#include <sys/wait.h>
#include <exception>
#include <utility>

namespace sublet::pause {
namespace {

namespace asio = boost::asio;
using asio::local::stream_protocol;
constexpr auto quiet = asio::as_tuple(asio::use_awaitable);
constexpr auto look_interval = std::chrono::seconds(1);
constexpr auto second_look = std::chrono::milliseconds(500);
// Whether the call is for a process that is or may be parked already.
bool brings_back(gpu::CheckpointCall call) {
  using Call = gpu::CheckpointCall;
  return call != Call::preflight && call != Call::lock && call != Call::checkpoint;
}

// Whether the process may not be traced.
bool is_closed(const CheckpointHelper::Answer& answer) {
  using Refusal = gpu::CheckpointRefusal;
  if (answer.kind == CheckpointHelper::Answer::Kind::lost) return answer.denied;
  return answer.reply.refusal == Refusal::no_right || answer.reply.refusal == Refusal::not_dumpable;
}

// Whether another helper may do better. The helper has no usable driver, or its driver fails on the way back, perhaps
// because it was opened before the device was lost. A helper that keeps its process locked is never useless.
bool is_useless(const gpu::CheckpointReply& reply) {
  using Refusal = gpu::CheckpointRefusal;
  if (reply.refusal == Refusal::no_driver || reply.refusal == Refusal::unsupported_driver) return true;
  const bool failed = reply.refusal == Refusal::driver && !reply.final && reply.state != gpu::ParkState::locked;
  return failed && brings_back(reply.call);
}

constexpr Duration first_pause = std::chrono::milliseconds(20), longest_pause = std::chrono::seconds(2);

// The daemon reads the host memory itself. The user may control a helper, and the ledger serves all users.
Bytes on_host(ProcessRef process) {
  const auto root = proc::ProcRoot::open();
  const auto memory = root ? proc::process_memory(*root, process) : std::nullopt;
  return memory ? memory->resident + memory->swapped : Bytes{};
}

}  // namespace

ParkerOptions local_parking(asio::io_context& io, LocalParking options) {
  const Duration lock_timeout = options.lock_timeout;
  const auto make = [&io, options = std::move(options), reaper = std::make_shared<Reaper>(io)](
                        LeaseId lease, ProcessRef process) -> std::shared_ptr<CheckpointHelper> {
    LocalCheckpointHelper::Options of_helper{.program = options.helper, .driver = options.driver, .start = {}};
    if (options.start) {
      of_helper.start = [start = options.start, lease, process](bool to_bring_back, machine::HelperStarted done) {
        start(lease, process, to_bring_back, std::move(done));
      };
    }
    return std::make_shared<LocalCheckpointHelper>(io, std::move(of_helper), process, reaper);
  };
  return {.helper = make, .resident = on_host, .lock_timeout = lock_timeout};
}

// --- children that end

void Reaper::add(pid_t child) {
  children_.push_back(child);
  reap();
  look_later();
}

// A child that is not reaped keeps its pid.
void Reaper::reap() {
  std::erase_if(children_, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) != 0; });
}

void Reaper::look_later() {
  if (looking_ || children_.empty()) return;
  looking_ = true;
  timer_.expires_after(look_interval);
  timer_.async_wait([weak = weak_from_this()](const boost::system::error_code& error) {
    const auto self = weak.lock();
    if (!self) return;
    self->looking_ = false;
    if (error) return;
    self->reap();
    self->look_later();
  });
}

// --- a single helper

struct LocalCheckpointHelper::Link {
  explicit Link(asio::io_context& io) : socket(io), lines(gpu::max_checkpoint_line) {}
  stream_protocol::socket socket;
  pid_t pid = 0;  // 0: not our child
  gpu::LineSplitter lines;
  std::array<char, 4096> buffer;
};

LocalCheckpointHelper::LocalCheckpointHelper(asio::io_context& io, Options options, ProcessRef target,
                                             std::shared_ptr<Reaper> reaper)
    : io_(io), options_(std::move(options)), target_(target), reaper_(std::move(reaper)), wake_(io) {}

LocalCheckpointHelper::~LocalCheckpointHelper() {
  if (!link_) return;
  boost::system::error_code ignored;
  link_->socket.close(ignored);
  if (link_->pid > 0) reaper_->add(link_->pid);
}

// A set-user-ID program that a tree starts for a moment ends soon, or continues with other rights. So the question is
// repeated, and the later answer counts.
asio::awaitable<CheckpointHelper::Answer> LocalCheckpointHelper::ask(gpu::CheckpointCommand command, Duration timeout) {
  const auto self = shared_from_this();
  Answer answer = co_await ask_once(command, timeout);
  if (command.call != gpu::CheckpointCall::preflight || !is_closed(answer) || dismissed_) co_return answer;
  opening_ = true;
  wake_.expires_after(second_look);
  co_await wake_.async_wait(quiet);
  opening_ = false;
  co_return co_await ask_once(std::move(command), timeout);
}

asio::awaitable<CheckpointHelper::Answer> LocalCheckpointHelper::ask_once(gpu::CheckpointCommand command,
                                                                          Duration timeout) {
  const auto self = shared_from_this();
  if (asked_ || opening_) co_return Answer{.kind = Answer::Kind::stuck};
  if (!link_) {
    if (const Status opened = co_await open(brings_back(command.call)); !opened) {
      // The actor checks the process before it starts a helper. Its error means the same as the helper's answer.
      if (options_.start && opened.error().code == Code::NotFound) {
        Answer gone{.kind = Answer::Kind::replied};
        gone.reply.call = command.call;
        gone.reply.refusal = gpu::CheckpointRefusal::gone;
        gone.reply.detail = opened.error().detail;
        co_return gone;
      }
      co_return Answer{
          .kind = Answer::Kind::lost, .problem = opened.error().detail, .denied = opened.error().code == Code::Denied};
    }
  }
  command.id = ++last_id_;
  last_call_ = command.call;
  reply_.reset();
  problem_.clear();
  asked_ = true;
  wake_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(timeout));
  if (send(gpu::encode(command))) co_await wake_.async_wait(quiet);
  if (reply_) co_return Answer{.kind = Answer::Kind::replied, .reply = *std::exchange(reply_, std::nullopt)};
  if (!asked_) co_return Answer{.kind = Answer::Kind::lost, .problem = problem_};
  stuck_ = true;
  co_return Answer{.kind = Answer::Kind::stuck};
}

asio::awaitable<Status> LocalCheckpointHelper::open(bool to_bring_back) {
  const Error dismissed = unavailable(fmt::format("the helper of process {} was dismissed", target_.pid));
  if (dismissed_) co_return dismissed;
  if (!options_.start) co_return spawn();
  opening_ = true;
  auto socket = co_await have_started(to_bring_back);
  opening_ = false;
  if (dismissed_) co_return dismissed;
  if (!socket) co_return socket.error();
  co_return serve_on(std::move(*socket), 0);
}

// A helper that was dismissed may not have ended yet, and a process never has two helpers.
asio::awaitable<Result<Fd>> LocalCheckpointHelper::have_started(bool to_bring_back) {
  for (Duration pause = first_pause;; pause *= 2) {
    const auto came = std::make_shared<std::optional<Result<Fd>>>();
    wake_.expires_at(asio::steady_timer::time_point::max());
    options_.start(to_bring_back, [came, weak = weak_from_this()](Result<Fd> result) {
      *came = std::move(result);
      if (const auto self = weak.lock()) self->wake_.cancel();
    });
    while (!*came && !dismissed_) co_await wake_.async_wait(quiet);
    if (dismissed_) co_return unavailable("dismissed");
    if (**came || (*came)->error().code != Code::InUse || pause > longest_pause) co_return std::move(**came);
    wake_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(pause));
    co_await wake_.async_wait(quiet);
  }
}

Status LocalCheckpointHelper::spawn() {
  std::vector<std::string> words{"checkpoint", "--fd", std::to_string(proc::helper_socket), "--pid",
                                 std::to_string(target_.pid)};
  if (target_.start_ticks != 0) words.insert(words.end(), {"--start", std::to_string(target_.start_ticks)});
  if (!options_.driver.empty()) words.insert(words.end(), {"--driver", options_.driver});
  // The environment names the place of simulated cards.
  auto started = proc::spawn_helper(
      {.program = options_.program, .arguments = std::move(words), .socket_type = SOCK_STREAM, .bare = false});
  if (!started) return started.error();
  return serve_on(std::move(started->socket), started->pid);
}

Status LocalCheckpointHelper::serve_on(Fd socket, pid_t child) {
  auto link = std::make_shared<Link>(io_);
  link->pid = child;
  boost::system::error_code failed;
  link->socket.assign(stream_protocol(), socket.get(), failed);
  if (failed) {
    if (child > 0) reaper_->add(child);  // its socket closes with ours
    return unavailable("sublet-gpu's socket: " + failed.message());
  }
  socket.release();
  link_ = std::move(link);
  read();
  return {};
}

// A socket holds far more than one question.
bool LocalCheckpointHelper::send(const std::string& line) {
  const ssize_t sent = ::send(link_->socket.native_handle(), line.data(), line.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent == static_cast<ssize_t>(line.size())) return true;
  lose("it takes no more requests");
  return false;
}

void LocalCheckpointHelper::read() {
  link_->socket.async_read_some(
      asio::buffer(link_->buffer),
      [weak = weak_from_this(), link = link_](const boost::system::error_code& error, std::size_t size) {
        const auto self = weak.lock();
        if (!self || self->link_ != link) return;
        if (error) return self->lose("it has ended");
        try {
          self->take(link, size);
        } catch (const std::exception& failure) {
          self->lose(failure.what());
        }
      });
}

void LocalCheckpointHelper::take(const std::shared_ptr<Link>& from, std::size_t size) {
  const Status fed = from->lines.feed({from->buffer.data(), size});
  while (const auto line = from->lines.next()) {
    take_line(*line);
    if (link_ != from) return;
  }
  if (!fed) return lose(fed.error().detail);
  read();
}

void LocalCheckpointHelper::take_line(std::string_view line) {
  auto reply = gpu::decode_checkpoint_reply(line);
  if (!reply) return lose(reply.error().detail);
  if (!asked_ || reply->id != last_id_) return lose("its answer does not match the request");
  failed_for_good_ |= reply->final;
  const bool useless = is_useless(*reply);
  if (!stuck_) reply_ = std::move(*reply);
  if (useless) return lose("its driver cannot park programs");
  answered();
}

// Wakes the caller if it still waits; else reports the return.
void LocalCheckpointHelper::answered() {
  asked_ = false;
  if (!std::exchange(stuck_, false)) wake_.cancel();
  else if (const auto told = returned_) told();  // the callback may replace returned_
}

void LocalCheckpointHelper::lose(std::string why) {
  problem_ = fmt::format("the helper of process {}: {}", target_.pid, why);
  const auto link = std::exchange(link_, nullptr);
  boost::system::error_code ignored;
  link->socket.close(ignored);
  if (link->pid > 0) reaper_->add(link->pid);
  if (asked_) answered();
}

void LocalCheckpointHelper::rest() {
  if (options_.start && link_ && !asked_) lose("it was let go");
}

void LocalCheckpointHelper::dismiss() {
  returned_ = nullptr;
  dismissed_ = true;
  if (opening_) wake_.cancel();
  if (link_) lose("it was dismissed");
}

}  // namespace sublet::pause
