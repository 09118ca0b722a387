// SPDX-License-Identifier: Apache-2.0
#include "work.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <thread>

#include "graph.h"

namespace simgpu {
namespace {

// A worker ends after this idle time; the next work starts another worker.
constexpr auto worker_patience = std::chrono::milliseconds(300);

bool met(const std::vector<Dependency>& after) {
  return std::all_of(after.begin(), after.end(), [](const Dependency& d) { return d.stream->completed >= d.sequence; });
}

thread_local std::uint64_t time_on_card = 0;

// Runs work without the lock. -> its result; the stream's time on the card is that of its end
CUresult run(Lock& lock, Stream& stream, const Work& work) {
  std::uint64_t ready = std::max(work.submitted, stream.card_time);
  for (const auto& each : work.after) ready = std::max(ready, each.stream->card_time);
  lock.unlock();
  time_on_card = ready;
  const CUresult result = work.run();
  const std::uint64_t end = time_on_card == ready && !work.takes_no_time ? now_ns() : time_on_card;
  lock.lock();
  stream.card_time = std::max(ready, end);
  return result;
}

void finish(Stream& stream, CUresult result) {
  if (result != CUDA_SUCCESS) {
    int none = 0;
    stream.context->error.compare_exchange_strong(none, result);
  }
  stream.completed = stream.queue.front()->sequence;
  stream.queue.pop_front();
  driver().progress.notify_all();
  stream.changed.notify_all();
}

void serve(const std::shared_ptr<Stream>& stream) {
  Lock lock(driver_mutex());
  for (;;) {
    if (stream->queue.empty()) {
      stream->changed.wait_for(lock, worker_patience);
      if (!stream->queue.empty()) continue;
      stream->worker = false;
      return;
    }
    const auto work = stream->queue.front();
    if (work->by_caller) {
      stream->changed.wait(lock);
      continue;
    }
    driver().progress.wait(lock, [&] { return met(work->after); });
    CUresult result = CUDA_SUCCESS;
    // After a sticky error no work of the context runs; it only leaves the queue.
    if (stream->context->error == 0) result = run(lock, *stream, *work);
    finish(*stream, result);
  }
}

// The legacy stream waits for all blocking streams of its context, and they wait for it.
void order(const std::shared_ptr<Stream>& stream, Work& work) {
  Context& context = *stream->context;
  const auto add = [&](const std::shared_ptr<Stream>& other) {
    if (other->completed < other->enqueued) work.after.push_back({other, other->enqueued});
  };
  if (stream == context.legacy) {
    std::erase_if(context.streams, [](const auto& weak) { return weak.expired(); });
    for (const auto& weak : context.streams)
      if (const auto other = weak.lock(); other && other != stream && !(other->flags & CU_STREAM_NON_BLOCKING))
        add(other);
  } else if (!(stream->flags & CU_STREAM_NON_BLOCKING)) {
    add(context.legacy);
  }
  for (auto& wait : stream->waits)
    if (wait.stream->completed < wait.sequence) work.after.push_back(wait);
  stream->waits.clear();
}

void enqueue(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Work>& work) {
  order(stream, *work);
  work->submitted = now_ns();
  work->sequence = ++stream->enqueued;
  stream->queue.push_back(work);
}

}  // namespace

std::uint64_t thread_number() {
  static std::atomic<std::uint64_t> next{1};
  static thread_local const std::uint64_t mine = next.fetch_add(1);
  return mine;
}

std::uint64_t now_ns() {
  timespec now;
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

void sleep_until_ns(std::uint64_t when) {
  const timespec at{static_cast<time_t>(when / 1'000'000'000), static_cast<long>(when % 1'000'000'000)};
  while (::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) == EINTR) {
  }
}

std::uint64_t take_time(layout::Word& busy_until, std::uint64_t ns, std::uint64_t ready) {
  std::uint64_t until = busy_until.load();
  for (;;) {
    const std::uint64_t end = std::max(until, ready) + ns;
    if (busy_until.compare_exchange_weak(until, end)) return end;
  }
}

std::uint64_t take_time(layout::Word& busy_until, std::uint64_t ns) { return take_time(busy_until, ns, now_ns()); }

std::uint64_t& card_time() { return time_on_card; }

std::shared_ptr<Stream> make_stream(Context& context, unsigned flags, int priority) {
  auto stream = std::make_shared<Stream>();
  stream->context = &context;
  stream->flags = flags;
  stream->priority = priority;
  stream->id = driver().next_id++;
  context.streams.push_back(stream);
  return stream;
}

CUresult find_any_stream(CUstream handle, Context& current, bool per_thread, std::shared_ptr<Stream>& stream) {
  if (handle == nullptr) handle = per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
  if (handle == CU_STREAM_LEGACY) {
    stream = current.legacy;
    return CUDA_SUCCESS;
  }
  if (handle == CU_STREAM_PER_THREAD) {
    auto& mine = current.per_thread[thread_number()];
    if (!mine) mine = make_stream(current, CU_STREAM_DEFAULT, 0);
    stream = mine;
    return CUDA_SUCCESS;
  }
  const auto at = driver().streams.find(handle);
  if (at == driver().streams.end()) return CUDA_ERROR_INVALID_HANDLE;
  stream = at->second;
  return static_cast<CUresult>(stream->context->error.load());
}

CUresult find_stream(CUstream handle, Context& current, bool per_thread, std::shared_ptr<Stream>& stream) {
  const CUresult result = find_any_stream(handle, current, per_thread, stream);
  return result == CUDA_SUCCESS ? refuse_in_capture(*stream) : result;
}

std::shared_ptr<Work> make_work(std::function<CUresult()> run, std::vector<Touch> touches) {
  auto work = std::make_shared<Work>();
  work->run = std::move(run);
  work->touches = std::move(touches);
  return work;
}

void submit(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Work>& work) {
  enqueue(stream, work);
  if (!stream->worker) {
    stream->worker = true;
    std::thread(serve, stream).detach();
  } else {
    stream->changed.notify_all();
  }
}

CUresult run_in_order(Lock& lock, const std::shared_ptr<Stream>& stream, std::shared_ptr<Work> work) {
  work->by_caller = true;
  enqueue(stream, work);
  driver().progress.wait(lock, [&] { return stream->queue.front() == work && met(work->after); });
  auto result = static_cast<CUresult>(stream->context->error.load());
  if (result == CUDA_SUCCESS) result = run(lock, *stream, *work);
  finish(*stream, result);
  return result;
}

CUresult wait_for(Lock& lock, const std::shared_ptr<Stream>& stream, std::uint64_t sequence) {
  driver().progress.wait(lock, [&] { return stream->completed >= sequence; });
  return static_cast<CUresult>(stream->context->error.load());
}

CUresult wait_for_context(Lock& lock, Context& context) {
  std::vector<Dependency> all;
  for (const auto& weak : context.streams)
    if (auto stream = weak.lock()) {
      const std::uint64_t last = stream->enqueued;
      all.push_back({std::move(stream), last});
    }
  for (const auto& one : all) wait_for(lock, one.stream, one.sequence);
  return static_cast<CUresult>(context.error.load());
}

bool idle(Context& context) {
  return std::all_of(context.streams.begin(), context.streams.end(), [](const auto& weak) {
    const auto stream = weak.lock();
    return !stream || stream->completed == stream->enqueued;
  });
}

namespace {

bool touches(const Context& context, std::uint64_t base, std::uint64_t size) {
  for (const auto& weak : context.streams) {
    const auto stream = weak.lock();
    if (!stream) continue;
    for (const auto& work : stream->queue)
      for (const auto& touch : work->touches)
        if (touch.address < base + size && base < touch.address + touch.size) return true;
  }
  return false;
}

}  // namespace

bool pending_touch(std::uint64_t base, std::uint64_t size) {
  for (const auto* contexts : {&driver().primary, &driver().created})
    for (const auto& context : *contexts)
      if (context && context->alive && touches(*context, base, size)) return true;
  return false;
}

void hang(FaultKind kind, int device, std::uint64_t duration_ns) {
  const std::uint64_t end = duration_ns == 0 ? ~std::uint64_t{0} : now_ns() + duration_ns;
  while (driver().table->still_set(kind, device) && now_ns() < end) sleep_until_ns(std::min(end, now_ns() + 2'000'000));
}

void meet_sync_hang(int device) {
  if (const auto fault = driver().table->meet(FaultKind::sync_hang, device))
    hang(FaultKind::sync_hang, device, fault->duration_ns);
}

}  // namespace simgpu
