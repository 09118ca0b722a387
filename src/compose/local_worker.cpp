// SPDX-License-Identifier: Apache-2.0
#include "compose/local_worker.h"

#include "base/text.h"
#include "compose/description.h"
#include "compose/discovery.h"
#include "compose/file_signature.h"
#include "compose/files_read.h"
#include "compose/private_file.h"
#include "compose/yaml.h"

#include <fmt/format.h>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace sublet::compose {
namespace {

namespace asio = boost::asio;
constexpr auto quiet = asio::as_tuple(asio::use_awaitable);

constexpr std::size_t most_texts = 1000;
constexpr Duration shortest_timeout = std::chrono::seconds(1), longest_timeout = std::chrono::hours(24);

Status check_call(const std::string& name, const std::string& project, Duration timeout) {
  if (!is_stack_name(name)) return bad_request(fmt::format("'{}' cannot name a stack", printable(name)));
  if (!is_project_name(project)) {
    return bad_request(fmt::format("'{}' cannot name a Compose project", printable(project)));
  }
  if (timeout >= shortest_timeout && timeout <= longest_timeout) return {};
  return bad_request(fmt::format("the time limit of stack '{}' is not between 1 s and 24 h", name));
}

Error unknown_text(const std::string& name) {
  return {.code = Code::Stale,
          .detail = fmt::format("the configuration of stack '{}' is not one that was read", name),
          .hint = "read the stacks again: the file has changed, or sublet-stacks was restarted"};
}

}  // namespace

LocalWorker::LocalWorker(asio::io_context& io, const LocalOptions& options, std::string socket)
    : io_(io),
      options_(options),
      program_(io, {.program = options.program, .engine = options.engine, .runtime = options.runtime}),
      watch_(std::make_shared<EngineWatch>(io, std::move(socket), options.look_every)),
      described_(io, std::chrono::steady_clock::time_point::max()) {}

LocalWorker::~LocalWorker() { watch_->stop(); }

Result<std::shared_ptr<LocalWorker>> LocalWorker::make(asio::io_context& io, const LocalOptions& options) {
  auto socket = engine_socket(options.engine);
  if (!socket) return socket.error();
  std::shared_ptr<LocalWorker> worker(new LocalWorker(io, options, std::move(*socket)));
  worker->start();
  return worker;
}

template <typename Work>
void LocalWorker::spawn(Work work) {
  asio::co_spawn(
      io_, [self = shared_from_this(), work = std::move(work)]() mutable -> asio::awaitable<void> { co_await work(); },
      [](const std::exception_ptr& failure) {
        if (failure) std::rethrow_exception(failure);
      });
}

void LocalWorker::start() {
  EngineWatch::Listeners listeners;
  listeners.observation = [this](const Observation& seen) {
    if (observation_) observation_(seen);
  };
  listeners.engine = [this](const Engine&) { tell_engine(); };
  watch_->start(std::move(listeners));
  spawn([this]() -> asio::awaitable<void> {
    const Status found = co_await program_.find();
    program_problem_ = found ? "" : found.error().detail;
    program_sought_ = true;
    tell_engine();
  });
}

void LocalWorker::stop() {
  stopped_ = true;
  observation_ = {};
  engine_ = {};
  watch_->stop();
  while (!readings_.empty()) stop_logs(readings_.begin()->first);
  program_.end_all();
  described_.cancel();
}

void LocalWorker::on_observation(std::function<void(const Observation&)> listener) {
  observation_ = std::move(listener);
}

void LocalWorker::on_engine(std::function<void(const Engine&)> listener) {
  engine_ = std::move(listener);
  told_.reset();
  asio::post(io_, [self = shared_from_this()] { self->tell_engine(); });
}

// Nothing is told before both are known.
void LocalWorker::tell_engine() {
  if (!program_sought_ || !watch_->was_asked()) return;
  Engine now = watch_->engine();
  now.program = program_.title();
  if (now.reachable && now.program.empty()) now.why = program_problem_;
  const bool same = told_ && told_->reachable == now.reachable && told_->version == now.version &&
                    told_->program == now.program && told_->why == now.why && told_->gpu_runtime == now.gpu_runtime;
  if (same || stopped_ || !engine_) return;
  told_ = now;
  engine_(now);
}

void LocalWorker::watch(const std::vector<std::string>& projects) { watch_->watch(projects); }

// --- describing

void LocalWorker::describe(const Sources& sources, Described done) {
  ++describing_;
  spawn([this, sources, done = std::move(done)]() -> asio::awaitable<void> {
    auto stacks = co_await find_stacks(sources);
    --describing_;
    described_.cancel();
    if (!stopped_) done(std::move(stacks));
  });
}

asio::awaitable<std::vector<Description>> LocalWorker::find_stacks(Sources sources) {
  using namespace asio::experimental::awaitable_operators;
  std::vector<Description> stacks = discover(sources, options_.trust);
  const Status found = co_await program_.find();
  program_problem_ = found ? "" : found.error().detail;
  tell_engine();
  if (!sources.env_file.empty()) {
    const Status safe = check_trusted(sources.env_file, options_.trust);
    const bool lacks = !safe && safe.error().code == Code::NotFound && sources.env_file_may_lack;
    if (lacks) sources.env_file.clear();
    for (Description& stack : stacks) {
      if (!safe && !lacks && !stack.error) stack.error = safe.error();
    }
  }
  for (Description& stack : stacks) {
    if (!found && !stack.error) stack.error = found.error();
  }
  std::size_t next = 0;  // a slow file holds up one of the lanes
  co_await (resolve(stacks, next, sources.env_file) && resolve(stacks, next, sources.env_file) &&
            resolve(stacks, next, sources.env_file) && resolve(stacks, next, sources.env_file));
  refuse_shared_projects(stacks);
  std::set<std::string> files;
  for (const Description& stack : stacks) files.insert(stack.file);
  std::erase_if(known_, [&](const auto& entry) { return !files.contains(entry.first); });
  co_return stacks;
}

asio::awaitable<void> LocalWorker::resolve(std::vector<Description>& stacks, std::size_t& next, std::string env_file) {
  while (next < stacks.size() && !stopped_) {
    Description& stack = stacks[next++];
    if (!stack.error) co_await resolve_one(stack, env_file);
  }
}

asio::awaitable<void> LocalWorker::resolve_one(Description& stack, std::string env_file) {
  const auto files = files_read(stack, env_file, program_.environment(), options_.trust);
  if (!files) {
    stack.error = files.error();
    co_return;
  }
  const std::string signature = fmt::format("{}\n{}", program_.title(), sign_files(stack.file, *files));
  const auto known = known_.find(stack.file);
  if (known != known_.end() && known->second.signature == signature) {
    Description copy = known->second.stack;
    copy.name = stack.name;
    copy.origin = stack.origin;
    stack = std::move(copy);
    co_return;
  }
  // Compose names no line of a broken file in all its versions.
  const auto raw = read_private_file(stack.file, most_yaml);
  const auto parsed = raw ? read_yaml(*raw, stack.file) : Result<Document>(raw.error());
  if (!parsed) {
    stack.error = parsed.error();
    co_return;
  }
  const auto resolved = co_await program_.config(stack, env_file);
  const Status read = resolved ? read_resolved(*resolved, *raw, stack) : Status(resolved.error());
  if (!read) {
    stack.error = read.error();
    co_return;
  }
  remember(stack.resolved, env_file);
  known_[stack.file] = {signature, stack};
}

void LocalWorker::remember(const std::string& resolved, const std::string& env_file) {
  if (env_files_.insert_or_assign(resolved, env_file).second) texts_.push_back(resolved);
  if (texts_.size() <= most_texts) return;
  env_files_.erase(texts_.front());
  texts_.pop_front();
}

// --- starting and stopping

void LocalWorker::up(const Start& start, Done done) {
  spawn([this, start, done = std::move(done)]() -> asio::awaitable<void> {
    Status status = co_await start_stack(start);
    tell_engine();
    if (!stopped_) done(std::move(status));
  });
}

// The only mounts are those that we make ourselves.
Result<std::string> LocalWorker::overlay_of(const Start& start) const {
  if (start.overlay.empty() || start.interposed.empty())
    return start.overlay.empty() ? Result<std::string>(std::string()) : checked_overlay(start.overlay, start.resolved);
  const auto interposed = interpose(start, options_.interposer, options_.runtime, options_.trust, options_.daemon);
  if (!interposed) return interposed.error();
  return checked_overlay(start.overlay, start.resolved, *interposed);
}

// Only a text that was resolved here is run: the daemon cannot make up a configuration.
asio::awaitable<Status> LocalWorker::start_stack(Start start) {
  if (auto fine = check_call(start.name, start.project, start.timeout); !fine) co_return fine.error();
  if (start.directory.empty() || start.directory[0] != '/') {
    co_return bad_request(fmt::format("the directory of stack '{}' is not absolute", start.name));
  }
  while (!is_known(start.resolved) && describing_ > 0 && !stopped_) {
    co_await described_.async_wait(quiet);
  }
  const bool known = is_known(start.resolved);
  if (!known && !program_.was_given(start.project, start.resolved)) {
    co_return unknown_text(start.name);
  }
  auto overlay = overlay_of(start);
  if (!overlay) co_return overlay.error();
  std::string env_file = known ? env_files_.at(start.resolved) : "";
  // The text has its values already: a file that is gone is not missed.
  if (const Status is_there = env_file.empty() ? Status() : check_trusted(env_file, options_.trust);
      !is_there && is_there.error().code == Code::NotFound)
    env_file.clear();
  Status status = co_await program_.up(std::move(start), std::move(*overlay), std::move(env_file));
  if (status || watch_->engine().reachable) co_return status;
  Error error = status.error();  // Compose failed for want of an engine
  error.code = Code::Unavailable;
  co_return error;
}

// One for each project: later callers wait for the same end.
void LocalWorker::pull(const Start& start, Done done) {
  std::vector<Done>& waiting = pulls_[start.project];
  waiting.push_back(std::move(done));
  if (waiting.size() > 1) return;
  spawn([this, start]() -> asio::awaitable<void> {
    const Status status = co_await pull_images(start);
    const auto ended = pulls_.extract(start.project);
    if (stopped_) co_return;
    for (const Done& each : ended.mapped()) each(status);
  });
}

asio::awaitable<Status> LocalWorker::pull_images(Start start) {
  if (auto fine = check_call(start.name, start.project, start.timeout); !fine) co_return fine.error();
  if (!is_known(start.resolved)) co_return unknown_text(start.name);
  std::string env_file = env_files_.at(start.resolved);
  Status status = co_await program_.pull(std::move(start), std::move(env_file));
  co_return status;
}

void LocalWorker::down(const Stop& stop, Done done) {
  spawn([this, stop, done = std::move(done)]() -> asio::awaitable<void> {
    Status status = co_await stop_stack(stop);
    tell_engine();
    if (!stopped_) done(std::move(status));
  });
}

asio::awaitable<Status> LocalWorker::stop_stack(Stop stop) {
  if (auto fine = check_call(stop.name, stop.project, stop.timeout); !fine) co_return fine.error();
  if (!is_known(stop.resolved) && !program_.was_given(stop.project, stop.resolved)) stop.resolved.clear();
  Status status = co_await program_.down(std::move(stop));
  if (status || watch_->engine().reachable) co_return status;
  Error error = status.error();
  error.code = Code::Unavailable;
  co_return error;
}

}  // namespace sublet::compose
