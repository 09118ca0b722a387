// SPDX-License-Identifier: Apache-2.0
// Streams and events.
#include <algorithm>
#include <cmath>

#include "context.h"
#include "graph.h"
#include "memory.h"
#include "work.h"

using namespace simgpu;

namespace {

constexpr int least_priority = 0, greatest_priority = -5;

CUresult create(CUstream* out, unsigned flags, int priority) {
  SIMGPU_CONTEXT();
  if (!out || (flags & ~CU_STREAM_NON_BLOCKING) != 0) return CUDA_ERROR_INVALID_VALUE;
  auto stream = make_stream(*context, flags, std::clamp(priority, greatest_priority, least_priority));
  *out = reinterpret_cast<CUstream>(stream.get());
  driver().streams[stream.get()] = std::move(stream);
  return CUDA_SUCCESS;
}

// Returns at once; queued work runs to its end.
CUresult destroy(CUstream handle) {
  SIMGPU_CONTEXT();
  if (handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD || !handle) return CUDA_ERROR_INVALID_HANDLE;
  return driver().streams.erase(handle) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult synchronize(CUstream handle, bool per_thread) {
  SIMGPU_CONTEXT();
  std::shared_ptr<Stream> stream;
  if (const CUresult result = find_stream(handle, *context, per_thread, stream); result != CUDA_SUCCESS) return result;
  lock.unlock();
  meet_sync_hang(static_cast<int>(stream->context->device));
  lock.lock();
  // Waiting for the legacy stream means waiting for everything that its work would wait for.
  const CUresult result = stream == stream->context->legacy ? wait_for_context(lock, *stream->context)
                                                            : wait_for(lock, stream, stream->enqueued);
  trim_pools(stream->context->device);
  return result;
}

CUresult query(CUstream handle, bool per_thread) {
  SIMGPU_CONTEXT();
  std::shared_ptr<Stream> stream;
  if (const CUresult result = find_stream(handle, *context, per_thread, stream); result != CUDA_SUCCESS) return result;
  return stream->completed == stream->enqueued ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

std::shared_ptr<Event> find_event(CUevent handle) {
  const auto at = driver().events.find(handle);
  return at == driver().events.end() ? nullptr : at->second;
}

bool complete(const Event& event) { return !event.last.stream || event.last.stream->completed >= event.last.sequence; }

// Work that the card only comes by.
std::shared_ptr<Work> make_mark(std::function<void()> run) {
  auto work = make_work([run = std::move(run)] {
    run();
    return CUDA_SUCCESS;
  });
  work->takes_no_time = true;
  return work;
}

CUresult wait_event(CUstream handle, CUevent event_handle, unsigned flags, bool per_thread) {
  SIMGPU_CONTEXT();
  std::shared_ptr<Stream> stream;
  if (const CUresult result = find_stream(handle, *context, per_thread, stream); result != CUDA_SUCCESS) return result;
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  const auto event = find_event(event_handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  if (complete(*event)) return CUDA_SUCCESS;
  // As a work item of its own, so that the stream is not done before the event is.
  stream->waits.push_back(event->last);
  submit(stream, make_mark([] {}));
  return CUDA_SUCCESS;
}

CUresult record(CUevent event_handle, CUstream handle, unsigned flags, bool per_thread) {
  SIMGPU_CONTEXT();
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  const auto event = find_event(event_handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<Stream> stream;
  if (const CUresult result = find_stream(handle, *context, per_thread, stream); result != CUDA_SUCCESS) return result;
  if (stream->context != event->context) return CUDA_ERROR_INVALID_HANDLE;
  // Each recording has a stamp of its own: a later recording must not change an earlier recording's time.
  auto stamp = std::make_shared<Timestamp>();
  event->time = stamp;
  const bool alone = (stream->flags & CU_STREAM_NON_BLOCKING) != 0;
  if (stream->queue.empty() && (alone || idle(*stream->context))) {
    stamp->ns = std::max(now_ns(), stream->card_time);
    event->last = {stream, stream->enqueued};
    return CUDA_SUCCESS;
  }
  submit(stream, make_mark([stamp] { stamp->ns = card_time(); }));
  event->last = {stream, stream->enqueued};
  return CUDA_SUCCESS;
}

CUresult elapsed(float* milliseconds, CUevent start_handle, CUevent end_handle) {
  SIMGPU_CONTEXT();
  if (const CUresult result = refuse_unsafe(); result != CUDA_SUCCESS) return result;
  const auto start = find_event(start_handle), end = find_event(end_handle);
  if (!milliseconds) return CUDA_ERROR_INVALID_VALUE;
  if (!start || !end || !start->last.stream || !end->last.stream) return CUDA_ERROR_INVALID_HANDLE;
  if (((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0) return CUDA_ERROR_INVALID_HANDLE;
  if (!complete(*start) || !complete(*end)) return CUDA_ERROR_NOT_READY;
  const auto difference = static_cast<double>(static_cast<std::int64_t>(end->time->ns - start->time->ns));
  *milliseconds = static_cast<float>(std::round(difference / 500.0) * 0.0005);  // half a microsecond, as documented
  return CUDA_SUCCESS;
}

CUresult destroy_event(CUevent handle) {
  SIMGPU_CONTEXT();
  return driver().events.erase(handle) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult call_host(CUstream handle, std::function<void()> function, bool per_thread) {
  SIMGPU_CONTEXT();
  std::shared_ptr<Stream> stream;
  if (const CUresult result = find_stream(handle, *context, per_thread, stream); result != CUDA_SUCCESS) return result;
  submit(stream, make_work([function = std::move(function)] {
           in_host_function = true;
           function();
           in_host_function = false;
           return CUDA_SUCCESS;
         }));
  return CUDA_SUCCESS;
}

template <typename Get>
CUresult ask(CUstream handle, bool per_thread, const void* out, Get get) {
  SIMGPU_CONTEXT();
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Stream> stream;
  if (const CUresult result = find_any_stream(handle, *context, per_thread, stream); result != CUDA_SUCCESS)
    return result;
  get(*stream);
  return CUDA_SUCCESS;
}

}  // namespace

SIMGPU_API cuStreamCreate(CUstream* out, unsigned flags) {
  SIMGPU_ENTER(cuStreamCreate);
  return create(out, flags, 0);
}
SIMGPU_API cuStreamCreateWithPriority(CUstream* out, unsigned flags, int priority) {
  SIMGPU_ENTER(cuStreamCreateWithPriority);
  return create(out, flags, priority);
}
SIMGPU_API cuStreamDestroy_v2(CUstream handle) {
  SIMGPU_ENTER(cuStreamDestroy_v2);
  return destroy(handle);
}
SIMGPU_API cuStreamDestroy(CUstream handle) {
  SIMGPU_ENTER(cuStreamDestroy);
  return destroy(handle);
}
SIMGPU_API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  SIMGPU_ENTER(cuCtxGetStreamPriorityRange);
  SIMGPU_CONTEXT();
  if (least) *least = least_priority;
  if (greatest) *greatest = greatest_priority;
  return CUDA_SUCCESS;
}

SIMGPU_BOTH(cuStreamSynchronize, (CUstream handle), synchronize(handle, per_thread))
SIMGPU_BOTH(cuStreamQuery, (CUstream handle), query(handle, per_thread))
SIMGPU_BOTH(cuStreamWaitEvent, (CUstream handle, CUevent event, unsigned flags),
            wait_event(handle, event, flags, per_thread))
SIMGPU_BOTH(cuStreamGetPriority, (CUstream handle, int* out),
            ask(handle, per_thread, out, [&](Stream& stream) { *out = stream.priority; }))
SIMGPU_BOTH(cuStreamGetFlags, (CUstream handle, unsigned* out),
            ask(handle, per_thread, out, [&](Stream& stream) { *out = stream.flags; }))
SIMGPU_BOTH(cuStreamGetId, (CUstream handle, unsigned long long* out),
            ask(handle, per_thread, out, [&](Stream& stream) { *out = stream.id; }))
SIMGPU_BOTH(cuStreamGetCtx, (CUstream handle, CUcontext* out),
            ask(handle, per_thread, out, [&](Stream& stream) { *out = handle_of(stream.context); }))
SIMGPU_BOTH(cuStreamGetDevice, (CUstream handle, CUdevice* out),
            ask(handle, per_thread, out, [&](Stream& stream) { *out = stream.context->ordinal; }))
SIMGPU_BOTH(cuLaunchHostFunc, (CUstream handle, CUhostFn function, void* data),
            function ? call_host(
                           handle, [=] { function(data); }, per_thread)
                     : CUDA_ERROR_INVALID_VALUE)
SIMGPU_BOTH(cuStreamAddCallback, (CUstream handle, CUstreamCallback function, void* data, unsigned flags),
            function&& flags == 0 ? call_host(
                                        handle, [=] { function(handle, CUDA_SUCCESS, data); }, per_thread)
                                  : CUDA_ERROR_INVALID_VALUE)
SIMGPU_BOTH(cuEventRecord, (CUevent event, CUstream handle), record(event, handle, 0, per_thread))
SIMGPU_BOTH(cuEventRecordWithFlags, (CUevent event, CUstream handle, unsigned flags),
            record(event, handle, flags, per_thread))

namespace {

CUresult context_and_green(CUstream handle, CUcontext* out, CUgreenCtx* green, bool per_thread) {
  const CUresult result = ask(handle, per_thread, out, [&](Stream& stream) { *out = handle_of(stream.context); });
  if (result == CUDA_SUCCESS && green) *green = nullptr;
  return result;
}

}  // namespace

SIMGPU_BOTH(cuStreamGetCtx_v2, (CUstream handle, CUcontext* out, CUgreenCtx* green),
            context_and_green(handle, out, green, per_thread))

// ------------------------------------------------------------------------------------------- events

SIMGPU_API cuEventCreate(CUevent* out, unsigned flags) {
  SIMGPU_ENTER(cuEventCreate);
  SIMGPU_CONTEXT();
  if (!out || (flags & ~7U) != 0) return CUDA_ERROR_INVALID_VALUE;
  // An event shared by processes cannot measure time, and is not simulated.
  if ((flags & CU_EVENT_INTERPROCESS) != 0)
    return (flags & CU_EVENT_DISABLE_TIMING) != 0 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
  auto event = std::make_shared<Event>();
  event->context = context;
  event->flags = flags;
  *out = reinterpret_cast<CUevent>(event.get());
  driver().events[event.get()] = std::move(event);
  return CUDA_SUCCESS;
}
SIMGPU_API cuEventDestroy_v2(CUevent handle) {
  SIMGPU_ENTER(cuEventDestroy_v2);
  return destroy_event(handle);
}
SIMGPU_API cuEventDestroy(CUevent handle) {
  SIMGPU_ENTER(cuEventDestroy);
  return destroy_event(handle);
}
SIMGPU_API cuEventQuery(CUevent handle) {
  SIMGPU_ENTER(cuEventQuery);
  SIMGPU_CONTEXT();
  if (const CUresult result = refuse_unsafe(); result != CUDA_SUCCESS) return result;
  const auto event = find_event(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  return complete(*event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
SIMGPU_API cuEventSynchronize(CUevent handle) {
  SIMGPU_ENTER(cuEventSynchronize);
  SIMGPU_CONTEXT();
  const auto event = find_event(handle);
  if (!event) return CUDA_ERROR_INVALID_HANDLE;
  const Dependency last = event->last;
  lock.unlock();
  meet_sync_hang(static_cast<int>(context->device));
  lock.lock();
  return last.stream ? wait_for(lock, last.stream, last.sequence) : CUDA_SUCCESS;
}
SIMGPU_API cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) {
  SIMGPU_ENTER(cuEventElapsedTime);
  return elapsed(milliseconds, start, end);
}
SIMGPU_API cuEventElapsedTime_v2(float* milliseconds, CUevent start, CUevent end) {
  SIMGPU_ENTER(cuEventElapsedTime_v2);
  return elapsed(milliseconds, start, end);
}

// ------------------------------------------------------------------------------------------- the whole
// context

namespace {

CUresult synchronize_context(Lock& lock, Context& context) {
  if (const CUresult result = refuse_unsafe(); result != CUDA_SUCCESS) return result;
  lock.unlock();
  meet_sync_hang(static_cast<int>(context.device));
  lock.lock();
  const CUresult result = wait_for_context(lock, context);
  trim_pools(context.device);
  return result;
}

}  // namespace

SIMGPU_API cuCtxSynchronize() {
  SIMGPU_ENTER(cuCtxSynchronize);
  SIMGPU_CONTEXT();
  return synchronize_context(lock, *context);
}
SIMGPU_API cuCtxSynchronize_v2(CUcontext handle) {
  SIMGPU_ENTER(cuCtxSynchronize_v2);
  Lock lock(driver_mutex());
  Context* context = handle ? known_context(handle) : top_context();
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->alive) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (context->error != 0) return static_cast<CUresult>(context->error.load());
  return synchronize_context(lock, *context);
}
