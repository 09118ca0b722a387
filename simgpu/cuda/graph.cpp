// SPDX-License-Identifier: Apache-2.0
// Captures of streams, and graphs. A graph has launches only, in the order of the stream.
#include "graph.h"

#include <algorithm>

#include "context.h"
#include "work.h"

namespace simgpu {
namespace {

bool captures(const Stream& stream) { return stream.capture && !stream.capture->broken; }

// A stream whose capture the legacy stream would have to wait for; null: none.
std::shared_ptr<Stream> capturing_beside(const Stream& legacy) {
  for (const auto& weak : legacy.context->streams)
    if (auto stream = weak.lock(); stream && captures(*stream) && !(stream->flags & CU_STREAM_NON_BLOCKING))
      return stream;
  return nullptr;
}

// All captures of this process.
std::vector<std::shared_ptr<Capture>> all_captures() {
  std::vector<std::shared_ptr<Capture>> all;
  for (const auto& [handle, stream] : driver().streams)
    if (captures(*stream)) all.push_back(stream->capture);
  return all;
}

}  // namespace

CaptureMode& capture_mode() {
  static thread_local auto mode = CaptureMode::global;
  return mode;
}

CUresult refuse_in_capture(Stream& stream) {
  if (stream.capture) {
    stream.capture->broken = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  if (&stream != stream.context->legacy.get()) return CUDA_SUCCESS;
  const auto other = capturing_beside(stream);
  if (!other) return CUDA_SUCCESS;
  other->capture->broken = true;
  return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

CUresult submit_or_capture(const std::shared_ptr<Stream>& stream, Node node) {
  if (captures(*stream)) {
    stream->capture->graph->nodes.push_back(std::move(node));
    return CUDA_SUCCESS;
  }
  if (stream->capture) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (const CUresult result = refuse_in_capture(*stream); result != CUDA_SUCCESS) return result;
  submit(stream, make_work(std::move(node.run), std::move(node.touches)));
  return CUDA_SUCCESS;
}

CUresult refuse_unsafe() {
  CUresult result = CUDA_SUCCESS;
  if (capture_mode() == CaptureMode::relaxed) return result;
  for (const auto& capture : all_captures()) {
    const bool is_mine = capture->thread == thread_number();
    if (capture->mode == CaptureMode::relaxed) continue;
    if (!is_mine && (capture->mode == CaptureMode::of_thread || capture_mode() == CaptureMode::of_thread)) continue;
    capture->broken = true;
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

}  // namespace simgpu

using namespace simgpu;

namespace {

CUresult begin_capture(CUstream handle, int mode, bool per_thread) {
  SIMGPU_CONTEXT();
  std::shared_ptr<Stream> stream;
  if (const CUresult result = find_any_stream(handle, *context, per_thread, stream); result != CUDA_SUCCESS)
    return result;
  if (mode < 0 || mode > 2) return CUDA_ERROR_INVALID_VALUE;
  if (stream == context->legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  stream->capture = std::make_shared<Capture>();
  stream->capture->mode = static_cast<CaptureMode>(mode);
  stream->capture->id = driver().next_id++;
  stream->capture->thread = thread_number();
  return CUDA_SUCCESS;
}

CUresult end_capture(CUstream handle, CUgraph* out, bool per_thread) {
  SIMGPU_CONTEXT();
  std::shared_ptr<Stream> stream;
  if (const CUresult result = find_any_stream(handle, *context, per_thread, stream); result != CUDA_SUCCESS)
    return result;
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  if (!stream->capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (stream->capture->mode != CaptureMode::relaxed && stream->capture->thread != thread_number())
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  const auto capture = std::move(stream->capture);
  stream->capture = nullptr;
  *out = nullptr;
  if (capture->broken) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  *out = reinterpret_cast<CUgraph>(capture->graph.get());
  driver().graphs[capture->graph.get()] = capture->graph;
  return CUDA_SUCCESS;
}

// The status: 0 none, 1 active, 2 invalidated.
CUresult capture_info(CUstream handle, int* status, std::uint64_t* id, bool per_thread) {
  SIMGPU_CONTEXT();
  std::shared_ptr<Stream> stream;
  if (!status) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = find_any_stream(handle, *context, per_thread, stream); result != CUDA_SUCCESS)
    return result;
  if (stream == context->legacy && capturing_beside(*stream)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  *status = !stream->capture ? 0 : stream->capture->broken ? 2 : 1;
  if (id) *id = stream->capture ? stream->capture->id : 0;
  return CUDA_SUCCESS;
}

CUresult instantiate(CUgraphExec* out, CUgraph handle) {
  SIMGPU_CONTEXT();
  if (!out) return CUDA_ERROR_INVALID_VALUE;
  const auto at = driver().graphs.find(handle);
  if (at == driver().graphs.end()) return CUDA_ERROR_INVALID_VALUE;
  auto made = std::make_shared<Graph>(*at->second);
  *out = reinterpret_cast<CUgraphExec>(made.get());
  driver().executable_graphs[made.get()] = std::move(made);
  return CUDA_SUCCESS;
}

CUresult launch_graph(CUgraphExec handle, CUstream stream_handle, bool per_thread) {
  SIMGPU_CONTEXT();
  const auto at = driver().executable_graphs.find(handle);
  if (at == driver().executable_graphs.end()) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Stream> stream;
  if (const CUresult result = find_stream(stream_handle, *context, per_thread, stream); result != CUDA_SUCCESS)
    return result;
  std::vector<Touch> touches;
  for (const auto& node : at->second->nodes) touches.insert(touches.end(), node.touches.begin(), node.touches.end());
  submit(stream, make_work(
                     [graph = at->second] {
                       CUresult result = CUDA_SUCCESS;
                       for (const auto& node : graph->nodes)
                         if (result == CUDA_SUCCESS) result = node.run();
                       return result;
                     },
                     std::move(touches)));
  return CUDA_SUCCESS;
}

CUresult forget(std::unordered_map<void*, std::shared_ptr<Graph>>& graphs, void* handle) {
  return graphs.erase(handle) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

struct InstantiateParameters {
  std::uint64_t flags;
  CUstream upload;
  CUgraphNode failed;
  int result;
};

}  // namespace

SIMGPU_BOTH(cuStreamBeginCapture, (CUstream handle), begin_capture(handle, 0, per_thread))
SIMGPU_BOTH(cuStreamBeginCapture_v2, (CUstream handle, int mode), begin_capture(handle, mode, per_thread))
SIMGPU_BOTH(cuStreamEndCapture, (CUstream handle, CUgraph* out), end_capture(handle, out, per_thread))
SIMGPU_BOTH(cuStreamIsCapturing, (CUstream handle, int* out), capture_info(handle, out, nullptr, per_thread))
SIMGPU_BOTH(cuStreamGetCaptureInfo, (CUstream handle, int* status, std::uint64_t* id),
            capture_info(handle, status, id, per_thread))
SIMGPU_BOTH(cuStreamGetCaptureInfo_v2,
            (CUstream handle, int* status, std::uint64_t* id, CUgraph*, const CUgraphNode**, std::size_t*),
            capture_info(handle, status, id, per_thread))
SIMGPU_BOTH(cuStreamGetCaptureInfo_v3,
            (CUstream handle, int* status, std::uint64_t* id, CUgraph*, const CUgraphNode**, const void**,
             std::size_t*),
            capture_info(handle, status, id, per_thread))
SIMGPU_BOTH(cuGraphLaunch, (CUgraphExec graph, CUstream stream), launch_graph(graph, stream, per_thread))
SIMGPU_BOTH(cuGraphInstantiateWithParams, (CUgraphExec * out, CUgraph graph, InstantiateParameters* parameters),
            ((void)per_thread, parameters && parameters->flags == 0 ? instantiate(out, graph)
                                                                    : CUDA_ERROR_NOT_SUPPORTED))

SIMGPU_API cuThreadExchangeStreamCaptureMode(int* mode) {
  SIMGPU_ENTER(cuThreadExchangeStreamCaptureMode);
  if (!mode || *mode < 0 || *mode > 2) return CUDA_ERROR_INVALID_VALUE;
  const auto wanted = static_cast<CaptureMode>(*mode);
  *mode = static_cast<int>(capture_mode());
  capture_mode() = wanted;
  return CUDA_SUCCESS;
}

SIMGPU_API cuGraphInstantiate(CUgraphExec* out, CUgraph graph, CUgraphNode*, char*, std::size_t) {
  SIMGPU_ENTER(cuGraphInstantiate);
  return instantiate(out, graph);
}
SIMGPU_API cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode*, char*, std::size_t) {
  SIMGPU_ENTER(cuGraphInstantiate_v2);
  return instantiate(out, graph);
}
SIMGPU_API cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
  SIMGPU_ENTER(cuGraphInstantiateWithFlags);
  return flags == 0 ? instantiate(out, graph) : CUDA_ERROR_NOT_SUPPORTED;
}
SIMGPU_API cuGraphDestroy(CUgraph graph) {
  SIMGPU_ENTER(cuGraphDestroy);
  const Lock lock(driver_mutex());
  return forget(driver().graphs, graph);
}
// A launch that is under way keeps what it needs.
SIMGPU_API cuGraphExecDestroy(CUgraphExec graph) {
  SIMGPU_ENTER(cuGraphExecDestroy);
  const Lock lock(driver_mutex());
  return forget(driver().executable_graphs, graph);
}
