// SPDX-License-Identifier: Apache-2.0
// Copies of all kinds except arrays, and memset: the checks at the call, and the place in a stream.
#include <algorithm>

#include "context.h"
#include "memory.h"
#include "transfer.h"
#include "work.h"

using namespace simgpu;

namespace {

std::uint64_t address_of(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

// Looks up an address at the call, and refuses wrong addresses before any work.
enum class Side { host, device, any };

bool acceptable(Side side, std::uint64_t address, std::uint64_t size) {
  if (address == 0) return false;
  if (side == Side::host) return !driver().addresses.ours(address);
  if (side == Side::device) return nameable(address, size);
  return nameable(address, size) || !driver().addresses.ours(address);
}

// Ordinary memory of the program. Work may not use it after the call has returned.
bool pageable(std::uint64_t address, std::uint64_t size) {
  return !driver().addresses.ours(address) && !pinned(address, size) && !nameable(address, size);
}

bool on_host(std::uint64_t address) { return !driver().addresses.ours(address); }

struct Copy {
  std::uint64_t target = 0, source = 0, size = 0;
  Side target_side = Side::any, source_side = Side::any;
  Context* target_by = nullptr;  // null: the stream's context
  Context* source_by = nullptr;
};

CUresult copy(const Copy& what, CUstream handle, bool per_thread, bool synchronous) {
  SIMGPU_CONTEXT();
  std::shared_ptr<Stream> stream;
  if (const CUresult result = find_stream(handle, *context, per_thread, stream); result != CUDA_SUCCESS) return result;
  if (what.size == 0) return CUDA_SUCCESS;
  if (!acceptable(what.target_side, what.target, what.size) || !acceptable(what.source_side, what.source, what.size))
    return CUDA_ERROR_INVALID_VALUE;
  const Context* target_by = what.target_by ? what.target_by : stream->context;
  const Context* source_by = what.source_by ? what.source_by : stream->context;
  auto work = make_work([=] { return transfer(*target_by, what.target, *source_by, what.source, what.size); },
                        {{what.target, what.size}, {what.source, what.size}});
  // Between memories of cards even the "synchronous" call returns early. A call on pageable memory never returns early.
  const bool touches_host = on_host(what.target) || on_host(what.source);
  if (pageable(what.target, what.size) || pageable(what.source, what.size) || (synchronous && touches_host))
    return run_in_order(lock, stream, std::move(work));
  submit(stream, work);
  return CUDA_SUCCESS;
}

CUresult copy_in(CUdeviceptr target, const void* source, std::size_t size, CUstream handle, bool per_thread,
                 bool synchronous) {
  return copy({target, address_of(source), size, Side::device, Side::host}, handle, per_thread, synchronous);
}
CUresult copy_out(void* target, CUdeviceptr source, std::size_t size, CUstream handle, bool per_thread,
                  bool synchronous) {
  return copy({address_of(target), source, size, Side::host, Side::device}, handle, per_thread, synchronous);
}
CUresult copy_within(CUdeviceptr target, CUdeviceptr source, std::size_t size, CUstream handle, bool per_thread) {
  return copy({target, source, size, Side::device, Side::device}, handle, per_thread, true);
}
CUresult copy_any(CUdeviceptr target, CUdeviceptr source, std::size_t size, CUstream handle, bool per_thread,
                  bool synchronous) {
  return copy({target, source, size}, handle, per_thread, synchronous);
}

CUresult copy_peer(CUdeviceptr target, CUcontext target_context, CUdeviceptr source, CUcontext source_context,
                   std::size_t size, CUstream handle, bool per_thread) {
  Copy what{target, source, size, Side::device, Side::device};
  {
    const Lock lock(driver_mutex());
    what.target_by = known_context(target_context);
    what.source_by = known_context(source_context);
  }
  if (!what.target_by || !what.source_by) return CUDA_ERROR_INVALID_CONTEXT;
  return copy(what, handle, per_thread, true);
}

// ------------------------------------------------------------------------------------------- several rows

struct Box {
  std::uint64_t base = 0, pitch = 0,
                slice = 0;  // address of the first byte; distances between rows and between slices in bytes
  Side side = Side::any;
};

CUresult box_of(CUmemorytype type, const void* host, CUdeviceptr device, std::size_t x, std::size_t y, std::size_t z,
                std::size_t pitch, std::size_t rows, std::size_t width, std::size_t height, Box& box) {
  switch (type) {
    case CU_MEMORYTYPE_HOST: box.base = address_of(host), box.side = Side::host; break;
    case CU_MEMORYTYPE_DEVICE: box.base = device, box.side = Side::device; break;
    case CU_MEMORYTYPE_UNIFIED: box.base = device, box.side = Side::any; break;
    case CU_MEMORYTYPE_ARRAY: return CUDA_ERROR_NOT_SUPPORTED;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  box.pitch = pitch == 0 ? x + width : pitch;
  if (box.pitch < x + width) return CUDA_ERROR_INVALID_VALUE;
  box.slice = box.pitch * (rows == 0 ? y + height : rows);
  box.base += z * box.slice + y * box.pitch + x;
  return CUDA_SUCCESS;
}

std::uint64_t extent(const Box& box, const CUDA_MEMCPY3D& what) {
  return (what.Depth - 1) * box.slice + (what.Height - 1) * box.pitch + what.WidthInBytes;
}

CUresult copy_rows(const Context& by, const Box& to, const Box& from, const CUDA_MEMCPY3D& what) {
  for (std::size_t z = 0; z < what.Depth; ++z)
    for (std::size_t y = 0; y < what.Height; ++y)
      if (const CUresult result = transfer(by, to.base + z * to.slice + y * to.pitch, by,
                                           from.base + z * from.slice + y * from.pitch, what.WidthInBytes);
          result != CUDA_SUCCESS)
        return result;
  return CUDA_SUCCESS;
}

CUresult copy_box(const CUDA_MEMCPY3D* what, CUstream handle, bool per_thread, bool synchronous) {
  SIMGPU_CONTEXT();
  if (!what) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Stream> stream;
  if (const CUresult result = find_stream(handle, *context, per_thread, stream); result != CUDA_SUCCESS) return result;
  if (what->WidthInBytes == 0 || what->Height == 0 || what->Depth == 0) return CUDA_SUCCESS;
  Box to, from;
  if (const CUresult result = box_of(what->dstMemoryType, what->dstHost, what->dstDevice, what->dstXInBytes, what->dstY,
                                     what->dstZ, what->dstPitch, what->dstHeight, what->WidthInBytes, what->Height, to);
      result != CUDA_SUCCESS)
    return result;
  if (const CUresult result =
          box_of(what->srcMemoryType, what->srcHost, what->srcDevice, what->srcXInBytes, what->srcY, what->srcZ,
                 what->srcPitch, what->srcHeight, what->WidthInBytes, what->Height, from);
      result != CUDA_SUCCESS)
    return result;
  const std::uint64_t to_size = extent(to, *what), from_size = extent(from, *what);
  if (!acceptable(to.side, to.base, to_size) || !acceptable(from.side, from.base, from_size))
    return CUDA_ERROR_INVALID_VALUE;
  auto work = make_work([by = stream->context, to, from, shape = *what] { return copy_rows(*by, to, from, shape); },
                        {{to.base, to_size}, {from.base, from_size}});
  const bool touches_host = on_host(to.base) || on_host(from.base);
  if (pageable(to.base, to_size) || pageable(from.base, from_size) || (synchronous && touches_host))
    return run_in_order(lock, stream, std::move(work));
  submit(stream, work);
  return CUDA_SUCCESS;
}

CUresult copy_plane(const CUDA_MEMCPY2D* what, CUstream handle, bool per_thread, bool synchronous) {
  if (!what) return CUDA_ERROR_INVALID_VALUE;
  CUDA_MEMCPY3D box{};
  box.srcXInBytes = what->srcXInBytes, box.srcY = what->srcY, box.srcMemoryType = what->srcMemoryType;
  box.srcHost = what->srcHost, box.srcDevice = what->srcDevice, box.srcPitch = what->srcPitch;
  box.dstXInBytes = what->dstXInBytes, box.dstY = what->dstY, box.dstMemoryType = what->dstMemoryType;
  box.dstHost = what->dstHost, box.dstDevice = what->dstDevice, box.dstPitch = what->dstPitch;
  box.WidthInBytes = what->WidthInBytes, box.Height = what->Height, box.Depth = 1;
  return copy_box(&box, handle, per_thread, synchronous);
}

CUresult copy_batch(CUdeviceptr* targets, CUdeviceptr* sources, std::size_t* sizes, std::size_t count,
                    std::size_t* failed, CUstream handle, bool per_thread) {
  if (!targets || !sources || !sizes || count == 0) return CUDA_ERROR_INVALID_VALUE;
  // The default streams take no batches.
  if (!handle || handle == CU_STREAM_LEGACY) return CUDA_ERROR_INVALID_VALUE;
  for (std::size_t i = 0; i < count; ++i)
    if (const CUresult result = copy_any(targets[i], sources[i], sizes[i], handle, per_thread, false);
        result != CUDA_SUCCESS) {
      if (failed) *failed = i;
      return result;
    }
  return CUDA_SUCCESS;
}

// ------------------------------------------------------------------------------------------- memset

struct Fill {
  std::uint64_t target = 0;
  std::size_t pitch = 0;  // distance between rows in bytes
  std::uint32_t value = 0;
  unsigned unit = 1;
  std::size_t width = 0, height = 1;  // width in units, height in rows
};

CUresult fill(const Fill& what, CUstream handle, bool per_thread, bool synchronous) {
  SIMGPU_CONTEXT();
  std::shared_ptr<Stream> stream;
  if (const CUresult result = find_stream(handle, *context, per_thread, stream); result != CUDA_SUCCESS) return result;
  if (what.width == 0 || what.height == 0) return CUDA_SUCCESS;
  const std::uint64_t row = what.width * what.unit;
  if (what.width > std::uint64_t{1} << 46 || what.target % what.unit != 0 || what.pitch % what.unit != 0 ||
      (what.height > 1 && what.pitch < row))
    return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t size = (what.height - 1) * what.pitch + row;
  if (!nameable(what.target, size)) return CUDA_ERROR_INVALID_VALUE;
  auto work = make_work(
      [by = stream->context, what, row] {
        for (std::size_t y = 0; y < what.height; ++y)
          if (const CUresult result = fill_memory(*by, what.target + y * what.pitch, what.value, what.unit, row);
              result != CUDA_SUCCESS)
            return result;
        return CUDA_SUCCESS;
      },
      {{what.target, size}});
  if (synchronous && on_host(what.target)) return run_in_order(lock, stream, std::move(work));
  if (stream->queue.empty() && idle(*stream->context)) {
    // A memset is so cheap here that it needs no thread. Its errors are reported later, as if it had run later.
    run_in_order(lock, stream, std::move(work));
    return CUDA_SUCCESS;
  }
  submit(stream, work);
  return CUDA_SUCCESS;
}

}  // namespace

// Synchronous calls have a second form that uses the calling thread's own stream.
#define SIMGPU_SYNC(name, parameters, call) \
  SIMGPU_API name parameters {              \
    SIMGPU_ENTER(name);                     \
    constexpr bool per_thread = false;      \
    constexpr CUstream stream = nullptr;    \
    return call;                            \
  }                                         \
  SIMGPU_API name##_ptds parameters {       \
    SIMGPU_ENTER(name##_ptds);              \
    constexpr bool per_thread = true;       \
    constexpr CUstream stream = nullptr;    \
    return call;                            \
  }

SIMGPU_SYNC(cuMemcpy, (CUdeviceptr target, CUdeviceptr source, std::size_t size),
            copy_any(target, source, size, stream, per_thread, true))
SIMGPU_SYNC(cuMemcpyHtoD_v2, (CUdeviceptr target, const void* source, std::size_t size),
            copy_in(target, source, size, stream, per_thread, true))
SIMGPU_SYNC(cuMemcpyDtoH_v2, (void* target, CUdeviceptr source, std::size_t size),
            copy_out(target, source, size, stream, per_thread, true))
SIMGPU_SYNC(cuMemcpyDtoD_v2, (CUdeviceptr target, CUdeviceptr source, std::size_t size),
            copy_within(target, source, size, stream, per_thread))
SIMGPU_SYNC(cuMemcpyPeer,
            (CUdeviceptr target, CUcontext target_context, CUdeviceptr source, CUcontext source_context,
             std::size_t size),
            copy_peer(target, target_context, source, source_context, size, stream, per_thread))
SIMGPU_SYNC(cuMemcpy2D_v2, (const CUDA_MEMCPY2D* what), copy_plane(what, stream, per_thread, true))
SIMGPU_SYNC(cuMemcpy2DUnaligned_v2, (const CUDA_MEMCPY2D* what), copy_plane(what, stream, per_thread, true))
SIMGPU_SYNC(cuMemcpy3D_v2, (const CUDA_MEMCPY3D* what), copy_box(what, stream, per_thread, true))
SIMGPU_SYNC(cuMemcpy3DPeer, (const CUDA_MEMCPY3D* what), copy_box(what, stream, per_thread, true))

SIMGPU_BOTH(cuMemcpyAsync, (CUdeviceptr target, CUdeviceptr source, std::size_t size, CUstream stream),
            copy_any(target, source, size, stream, per_thread, false))
SIMGPU_BOTH(cuMemcpyHtoDAsync_v2, (CUdeviceptr target, const void* source, std::size_t size, CUstream stream),
            copy_in(target, source, size, stream, per_thread, false))
SIMGPU_BOTH(cuMemcpyDtoHAsync_v2, (void* target, CUdeviceptr source, std::size_t size, CUstream stream),
            copy_out(target, source, size, stream, per_thread, false))
SIMGPU_BOTH(cuMemcpyDtoDAsync_v2, (CUdeviceptr target, CUdeviceptr source, std::size_t size, CUstream stream),
            copy_within(target, source, size, stream, per_thread))
SIMGPU_BOTH(cuMemcpyPeerAsync,
            (CUdeviceptr target, CUcontext target_context, CUdeviceptr source, CUcontext source_context,
             std::size_t size, CUstream stream),
            copy_peer(target, target_context, source, source_context, size, stream, per_thread))
SIMGPU_BOTH(cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D* what, CUstream stream),
            copy_plane(what, stream, per_thread, false))
SIMGPU_BOTH(cuMemcpy3DAsync_v2, (const CUDA_MEMCPY3D* what, CUstream stream), copy_box(what, stream, per_thread, false))
SIMGPU_BOTH(cuMemcpy3DPeerAsync, (const CUDA_MEMCPY3D* what, CUstream stream),
            copy_box(what, stream, per_thread, false))
SIMGPU_BOTH(cuMemcpyBatchAsync,
            (CUdeviceptr * targets, CUdeviceptr* sources, std::size_t* sizes, std::size_t count, void*, std::size_t*,
             std::size_t, std::size_t* failed, CUstream stream),
            copy_batch(targets, sources, sizes, count, failed, stream, per_thread))
SIMGPU_BOTH(cuMemcpyBatchAsync_v2,
            (CUdeviceptr * targets, CUdeviceptr* sources, std::size_t* sizes, std::size_t count, void*, std::size_t*,
             std::size_t, CUstream stream),
            copy_batch(targets, sources, sizes, count, nullptr, stream, per_thread))

SIMGPU_SYNC(cuMemsetD8_v2, (CUdeviceptr target, unsigned char value, std::size_t count),
            fill({target, 0, value, 1, count}, stream, per_thread, true))
SIMGPU_SYNC(cuMemsetD16_v2, (CUdeviceptr target, unsigned short value, std::size_t count),
            fill({target, 0, value, 2, count}, stream, per_thread, true))
SIMGPU_SYNC(cuMemsetD32_v2, (CUdeviceptr target, unsigned value, std::size_t count),
            fill({target, 0, value, 4, count}, stream, per_thread, true))
SIMGPU_SYNC(cuMemsetD2D8_v2,
            (CUdeviceptr target, std::size_t pitch, unsigned char value, std::size_t width, std::size_t height),
            fill({target, pitch, value, 1, width, height}, stream, per_thread, true))
SIMGPU_SYNC(cuMemsetD2D16_v2,
            (CUdeviceptr target, std::size_t pitch, unsigned short value, std::size_t width, std::size_t height),
            fill({target, pitch, value, 2, width, height}, stream, per_thread, true))
SIMGPU_SYNC(cuMemsetD2D32_v2,
            (CUdeviceptr target, std::size_t pitch, unsigned value, std::size_t width, std::size_t height),
            fill({target, pitch, value, 4, width, height}, stream, per_thread, true))

SIMGPU_BOTH(cuMemsetD8Async, (CUdeviceptr target, unsigned char value, std::size_t count, CUstream stream),
            fill({target, 0, value, 1, count}, stream, per_thread, false))
SIMGPU_BOTH(cuMemsetD16Async, (CUdeviceptr target, unsigned short value, std::size_t count, CUstream stream),
            fill({target, 0, value, 2, count}, stream, per_thread, false))
SIMGPU_BOTH(cuMemsetD32Async, (CUdeviceptr target, unsigned value, std::size_t count, CUstream stream),
            fill({target, 0, value, 4, count}, stream, per_thread, false))
SIMGPU_BOTH(cuMemsetD2D8Async,
            (CUdeviceptr target, std::size_t pitch, unsigned char value, std::size_t width, std::size_t height,
             CUstream stream),
            fill({target, pitch, value, 1, width, height}, stream, per_thread, false))
SIMGPU_BOTH(cuMemsetD2D16Async,
            (CUdeviceptr target, std::size_t pitch, unsigned short value, std::size_t width, std::size_t height,
             CUstream stream),
            fill({target, pitch, value, 2, width, height}, stream, per_thread, false))
SIMGPU_BOTH(cuMemsetD2D32Async,
            (CUdeviceptr target, std::size_t pitch, unsigned value, std::size_t width, std::size_t height,
             CUstream stream),
            fill({target, pitch, value, 4, width, height}, stream, per_thread, false))
