// SPDX-License-Identifier: Apache-2.0
// The work of simgpu-load: allocate, fill, compute, and check every byte. One thread.
#pragma once

#include "simgpu/tools/cuda_driver.h"
#include "simgpu/tools/load_options.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace simgpu::tools {

struct LoadResult {
  std::string device;
  std::uint64_t seed = 0;
  std::uint64_t filled_bytes = 0;
  std::uint64_t verified_bytes = 0;  // counted again at each check
  std::uint64_t errors = 0;          // 8-byte words that differ from the written words
  std::uint64_t launches = 0;
  std::chrono::nanoseconds fill_time{};
  std::chrono::nanoseconds compute_time{};
  std::chrono::nanoseconds longest_stall{};  // time of one driver call, without the work that the call waited for
};

// A 2 MiB piece of the filled memory (the last may be shorter) and its expected contents: a pattern of 16 bytes and, at
// `page_offset`, 4 KiB of random words. The seed and the piece's number determine all of them.
struct Piece {
  DevicePointer address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t page_offset = 0;
  std::uint64_t page_seed = 0;
  std::uint64_t low = 0, high = 0;
};
inline constexpr std::uint64_t piece_bytes = 2ULL << 20, page_bytes = 4096;
Piece make_piece(std::uint64_t seed, std::uint64_t number, DevicePointer address, std::uint64_t bytes);

class Load {
 public:
  // Waits until the time is over or an early end is requested; true: end now. Zero does not wait.
  using Wait = std::function<bool(std::chrono::nanoseconds)>;

  Load(const CudaDriver& driver, const LoadOptions& options, Wait wait);
  ~Load();  // frees the memory that it can; if the driver no longer works, its exit frees the rest
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  // Each throws CudaError if the driver refuses; the result tells how far the load came.
  void prove_kernels();  // checks that the checker can find a wrong word
  bool fill();           // false: an early end was requested
  void compute();
  void verify_all();
  void release();

  // Copies the last `share` percent of the allocated memory to the host and frees them; 100 frees the context too. Only
  // between two waits.
  void yield(int share);
  void take_again();  // continues as if the load had never yielded

  const LoadResult& result() const { return result_; }

 private:
  struct Kernels {
    Handle busy, fill, check, fill16, check16;
  };
  struct Allocation {
    DevicePointer address = 0;
    std::uint64_t bytes = 0;
    std::vector<std::byte> copy;  // copy on the host while the load has yielded
  };
  void open_device();
  void close_device();
  void allocate(std::uint64_t bytes);
  void fill_piece(const Piece& piece);
  void check_piece(const Piece& piece);
  void verify(std::size_t first, std::size_t count);
  void check_page_by_copy(const Piece& piece);
  template <typename Call>
  void timed(Call call, std::chrono::nanoseconds expected = {});
  void launch(Handle kernel, std::uint64_t threads, std::vector<std::uint64_t> arguments);
  void wait_for_device(std::chrono::nanoseconds busy = {});

  const CudaDriver& driver_;
  const LoadOptions& options_;
  Wait wait_;
  LoadResult result_;
  std::uint64_t launches_waited_for_ = 0;
  Device device_ = 0;
  Handle stream_ = nullptr, module_ = nullptr;
  bool context_held_ = false;
  Kernels kernels_{};
  DevicePointer found_ = 0;  // device memory where the checkers count wrong words
  std::vector<Allocation> allocations_;
  std::vector<Piece> pieces_;
};

}  // namespace simgpu::tools
