// SPDX-License-Identifier: Apache-2.0
#include "simgpu/tools/load.h"

#include "simgpu/tools/kernels.h"
#include "simgpu/tools/kernels_ptx.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace simgpu::tools {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

constexpr std::uint64_t word = 8, pair = 16;

std::string size(std::uint64_t bytes) { return sublet::format_size({static_cast<std::int64_t>(bytes)}); }

}  // namespace

Piece make_piece(std::uint64_t seed, std::uint64_t number, DevicePointer address, std::uint64_t bytes) {
  const auto draw = [&](std::uint64_t i) { return kernels::random_word(seed, number * 4 + i); };
  Piece piece{.address = address, .bytes = bytes, .page_seed = draw(0), .low = draw(1), .high = draw(2)};
  piece.page_offset = draw(3) % (bytes / page_bytes) * page_bytes;
  return piece;
}

Load::Load(const CudaDriver& driver, const LoadOptions& options, Wait wait)
    : driver_(driver), options_(options), wait_(std::move(wait)) {
  result_.seed = options.seed;
  if (driver.device_count() == 0) throw CudaError("the CUDA driver shows no device", -1);
  device_ = driver.device(0);
  result_.device = driver.name(device_);
  open_device();
}

void Load::open_device() {
  driver_.retain_primary_context(device_);
  context_held_ = true;
  stream_ = driver_.create_stream();
  module_ = driver_.load_module(kernels::ptx);
  kernels_ = {driver_.function(module_, kernels::busy), driver_.function(module_, kernels::fill),
              driver_.function(module_, kernels::check), driver_.function(module_, kernels::fill16),
              driver_.function(module_, kernels::check16)};
  found_ = driver_.allocate(word);
}

Load::~Load() {
  try {
    release();
  } catch (const CudaError&) {  // after a sticky error every call fails; the end of the process frees the memory
  }
}

void Load::release() {
  if (!context_held_) return;
  for (const Allocation& allocation : allocations_) {
    if (allocation.address != 0) driver_.free(allocation.address);
  }
  allocations_.clear();
  close_device();
}

void Load::close_device() {
  context_held_ = false;
  if (found_ != 0) driver_.free(std::exchange(found_, 0));
  if (module_ != nullptr) driver_.unload_module(std::exchange(module_, nullptr));
  if (stream_ != nullptr) driver_.destroy_stream(std::exchange(stream_, nullptr));
  driver_.release_primary_context(device_);
}

// --- yielding

void Load::yield(int share) {
  driver_.synchronize(stream_);
  std::size_t count = allocations_.size() * static_cast<std::size_t>(share) / 100;
  for (auto last = allocations_.rbegin(); count > 0; ++last, --count) {
    last->copy.resize(last->bytes);
    driver_.copy_to_host(last->copy.data(), last->address, last->bytes);
    driver_.free(std::exchange(last->address, 0));
  }
  if (share == 100) close_device();
}

void Load::take_again() {
  if (!context_held_) open_device();
  std::size_t piece = 0;
  for (Allocation& allocation : allocations_) {
    const std::size_t pieces = (allocation.bytes + piece_bytes - 1) / piece_bytes;
    if (allocation.address == 0) {
      allocation.address = driver_.allocate(allocation.bytes);
      driver_.copy_to_device(allocation.address, allocation.copy.data(), allocation.bytes);
      std::vector<std::byte>().swap(allocation.copy);
      for (std::size_t i = 0; i < pieces && piece + i < pieces_.size(); ++i)
        pieces_[piece + i].address = allocation.address + i * piece_bytes;
    }
    piece += pieces;
  }
}

// A process that is locked to be parked waits in its next driver call, whatever the call is, and not only in a wait.
template <typename Call>
void Load::timed(Call call, nanoseconds expected) {
  const auto start = Clock::now();
  call();
  result_.longest_stall = std::max<nanoseconds>(result_.longest_stall, Clock::now() - start - expected);
}

void Load::launch(Handle kernel, std::uint64_t threads, std::vector<std::uint64_t> arguments) {
  timed([&] { driver_.launch(kernel, threads, stream_, arguments.data(), static_cast<int>(arguments.size())); });
  ++result_.launches;
}

// `busy` is the time that sublet_busy was launched with. Every other kernel here touches 2 MiB at most and is allowed a
// millisecond. Time beyond that is not the work's.
void Load::wait_for_device(nanoseconds busy) {
  const auto kernels = static_cast<std::int64_t>(result_.launches - launches_waited_for_);
  const nanoseconds expected = busy + kernels * std::chrono::milliseconds(1);
  launches_waited_for_ = result_.launches;
  timed([&] { driver_.synchronize(stream_); }, expected);
}

void Load::prove_kernels() {
  const DevicePointer page = driver_.allocate(page_bytes);
  allocations_.push_back({page, page_bytes, {}});
  const auto count_after = [&](Handle checker, std::vector<std::uint64_t> arguments) {
    driver_.clear(found_, word);
    arguments.push_back(found_);
    const std::uint64_t threads = arguments[1];
    launch(checker, threads, std::move(arguments));
    driver_.synchronize(stream_);
    std::uint64_t found = 0;
    driver_.copy_to_host(&found, found_, word);
    return found;
  };
  const std::uint64_t words = page_bytes / word, pairs = page_bytes / pair;
  launch(kernels_.fill, words, {page, words, 1});
  const bool fill_right =
      count_after(kernels_.check, {page, words, 1}) == 0 && count_after(kernels_.check, {page, words, 2}) == words;
  launch(kernels_.fill16, pairs, {page, pairs, 3, 4});
  const bool pattern_right = count_after(kernels_.check16, {page, pairs, 3, 4}) == 0 &&
                             count_after(kernels_.check16, {page, pairs, 3, 5}) == pairs;
  driver_.free(page);
  allocations_.pop_back();
  if (!fill_right || !pattern_right)
    throw CudaError("the device does not run the kernels that fill and check memory", -1);
}

void Load::allocate(std::uint64_t bytes) {
  try {
    timed([&] { allocations_.push_back({driver_.allocate(bytes), bytes, {}}); });
  } catch (const CudaError& error) {
    std::size_t free_bytes = 0, total_bytes = 0;
    driver_.memory_info(free_bytes, total_bytes);
    throw CudaError(fmt::format("cannot allocate {} more after {} of {}; {} has {} free of {}: {}", size(bytes),
                                size(result_.filled_bytes), size(static_cast<std::uint64_t>(options_.alloc.count)),
                                result_.device, size(free_bytes), size(total_bytes), error.what()),
                    error.code());
  }
}

bool Load::fill() {
  const auto start = Clock::now();
  const auto total = static_cast<std::uint64_t>(options_.alloc.count);
  while (result_.filled_bytes < total) {
    const std::uint64_t bytes =
        std::min<std::uint64_t>(total - result_.filled_bytes, static_cast<std::uint64_t>(options_.step.count));
    allocate(bytes);
    for (std::uint64_t at = 0; at < bytes; at += piece_bytes) {
      pieces_.push_back(make_piece(result_.seed, pieces_.size(), allocations_.back().address + at,
                                   std::min(piece_bytes, bytes - at)));
      fill_piece(pieces_.back());
    }
    wait_for_device();
    result_.filled_bytes += bytes;
    result_.fill_time = Clock::now() - start;
    nanoseconds ahead{0};
    if (options_.rate.count != 0)
      ahead = std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(
                  static_cast<double>(result_.filled_bytes) / static_cast<double>(options_.rate.count))) -
              result_.fill_time;
    if (wait_(std::max(ahead, nanoseconds(0)))) return false;
  }
  result_.fill_time = Clock::now() - start;
  return true;
}

void Load::fill_piece(const Piece& piece) {
  if (options_.dense)
    return launch(kernels_.fill, piece.bytes / word, {piece.address, piece.bytes / word, piece.page_seed});
  launch(kernels_.fill16, piece.bytes / pair, {piece.address, piece.bytes / pair, piece.low, piece.high});
  launch(kernels_.fill, page_bytes / word, {piece.address + piece.page_offset, page_bytes / word, piece.page_seed});
}

void Load::check_piece(const Piece& piece) {
  if (options_.dense)
    return launch(kernels_.check, piece.bytes / word, {piece.address, piece.bytes / word, piece.page_seed, found_});
  const auto check_pattern = [&](std::uint64_t from, std::uint64_t to) {
    const std::uint64_t pairs = (to - from) / pair;
    if (pairs != 0) launch(kernels_.check16, pairs, {piece.address + from, pairs, piece.low, piece.high, found_});
  };
  check_pattern(0, piece.page_offset);
  launch(kernels_.check, page_bytes / word,
         {piece.address + piece.page_offset, page_bytes / word, piece.page_seed, found_});
  check_pattern(piece.page_offset + page_bytes, piece.bytes);
}

// One page is also compared on the host: the checkers run where the data is, and a fault could affect both.
void Load::check_page_by_copy(const Piece& piece) {
  std::array<std::uint64_t, page_bytes / word> page{};
  const std::uint64_t offset = options_.dense ? 0 : piece.page_offset;
  timed([&] { driver_.copy_to_host(page.data(), piece.address + offset, page_bytes); });
  for (std::uint64_t i = 0; i < page.size(); ++i)
    if (page[i] != kernels::random_word(piece.page_seed, i)) ++result_.errors;
}

void Load::verify(std::size_t first, std::size_t count) {
  const std::size_t end = std::min(first + count, pieces_.size());
  if (first >= end) return;
  timed([&] { driver_.clear(found_, word); });
  for (std::size_t i = first; i < end; ++i) check_piece(pieces_[i]);
  wait_for_device();
  std::uint64_t found = 0;
  timed([&] { driver_.copy_to_host(&found, found_, word); });
  if (found == 0) check_page_by_copy(pieces_[first]);  // else the check would count the same words again
  result_.errors += found;
  for (std::size_t i = first; i < end; ++i) result_.verified_bytes += pieces_[i].bytes;
}

void Load::verify_all() {
  constexpr std::size_t at_a_time = 64;
  for (std::size_t first = 0; first < pieces_.size(); first += at_a_time) verify(first, at_a_time);
}

void Load::compute() {
  constexpr nanoseconds period = std::chrono::milliseconds(20);
  constexpr std::size_t pieces_a_period = 8;
  const nanoseconds busy = period * options_.busy / 100;
  const auto start = Clock::now();
  std::size_t next = 0;
  bool ended = wait_(nanoseconds(0));
  for (auto now = start; !ended && now - start < options_.seconds; now = Clock::now()) {
    if (options_.verify && !pieces_.empty()) {
      verify(next, pieces_a_period);
      next = next + pieces_a_period < pieces_.size() ? next + pieces_a_period : 0;
    }
    if (busy.count() != 0) {
      launch(kernels_.busy, 1, {static_cast<std::uint64_t>(busy.count())});
      wait_for_device(busy);
    }
    const auto end = std::min(now + period, start + options_.seconds);
    ended = wait_(std::max<nanoseconds>(end - Clock::now(), nanoseconds(0)));
  }
  result_.compute_time = Clock::now() - start;
}

}  // namespace simgpu::tools
