// SPDX-License-Identifier: Apache-2.0
// Launches: checks, arguments (copied at the call, as the program may free them), and the work of the built-in kernels.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>

#include "context.h"
#include "graph.h"
#include "module.h"
#include "simgpu/tools/kernels.h"
#include "transfer.h"
#include "work.h"

using namespace simgpu;

namespace {

using Words = std::vector<std::uint64_t>;

constexpr std::uint64_t short_ns = 50'000;  // shorter kernels are added to the next sleep

// The kernels of this process that a card runs at the same time. They share the time slices of the process: each gets a
// part of it, in the order in which they ask.
class Running {
 public:
  void begin() {
    const std::lock_guard lock(mutex_);
    ++kernels_;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    --kernels_;
  }
  // Waits until the process may have a slice for this kernel. -> its part of a slice
  std::uint64_t enter(std::uint64_t slice) {
    std::unique_lock lock(mutex_);
    const std::uint64_t number = asked_++;
    changed_.wait(lock, [&] { return served_ == number; });
    return std::max(slice / kernels_, short_ns);
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    ++served_;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t kernels_ = 0, asked_ = 0, served_ = 0;
};

Running& running_on(unsigned device) {
  static auto* all = new std::array<Running, max_places>;
  return (*all)[device];
}

// Books `ns` of computing on the card, in slices between which other processes' kernels can run.
void compute(unsigned device, std::uint64_t ns) {
  auto& table = *driver().table;
  const std::uint64_t slice = table.get(Setting::timeslice_us) * 1000;
  Running& running = running_on(device);
  running.begin();
  for (std::uint64_t left = ns; left != 0;) {
    const std::uint64_t part = std::min(left, running.enter(slice));
    card_time() = take_time(table.device(device).compute_busy_until, part, card_time());
    if (card_time() > now_ns() + short_ns) sleep_until_ns(card_time());
    driver().process->add_busy(device, part);
    running.leave();
    left -= part;
  }
  running.end();
}

CUresult add_to(const Context& by, std::uint64_t address, std::uint64_t amount) {
  if (address % 8 != 0) return CUDA_ERROR_MISALIGNED_ADDRESS;
  std::vector<Segment> segments;
  if (const CUresult result = look_up(by, address, 8, true, segments); result != CUDA_SUCCESS) return result;
  std::uint64_t value = 0;
  walk(segments, [&](std::uint64_t at, const Piece& piece, const std::uint8_t* data) {
    for (std::uint64_t i = 0; i < piece.size; ++i) {
      const std::uint64_t byte = data ? data[i] : piece.pattern[(at + i) % 16];
      value |= byte << (8 * (at + i));
    }
  });
  value += amount;
  std::uint8_t bytes[8];
  std::memcpy(bytes, &value, 8);
  put(segments, 0, bytes, 8);
  return CUDA_SUCCESS;
}

// A kernel reaches another card's memory only with peer access; copies need no permission.
bool reachable(const Context& by, const std::vector<Segment>& segments) {
  const Lock lock(driver_mutex());
  return std::all_of(segments.begin(), segments.end(), [&](const Segment& segment) {
    if (segment.host || segment.granted || segment.device == by.device) return true;
    return std::any_of(by.peers.begin(), by.peers.end(),
                       [&](const Context* peer) { return peer->device == segment.device; });
  });
}

CUresult range_of(const Context& by, std::uint64_t address, std::uint64_t size, std::uint64_t alignment, bool write,
                  std::vector<Segment>& segments) {
  if (address % alignment != 0) return CUDA_ERROR_MISALIGNED_ADDRESS;
  const CUresult result = look_up(by, address, size, write, segments);
  if (result != CUDA_SUCCESS) return result;
  return reachable(by, segments) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

CUresult run_fill(const Context& by, const Words& a) {
  std::vector<Segment> segments;
  if (const CUresult result = range_of(by, a[0], a[1] * 8, 8, true, segments); result != CUDA_SUCCESS) return result;
  std::array<std::uint64_t, 512> page;
  for (std::uint64_t i = 0; i < a[1]; i += page.size()) {
    const std::uint64_t n = std::min<std::uint64_t>(page.size(), a[1] - i);
    for (std::uint64_t k = 0; k < n; ++k) page[k] = kernels::random_word(a[2], i + k);
    put(segments, i * 8, reinterpret_cast<const std::uint8_t*>(page.data()), n * 8);
  }
  return CUDA_SUCCESS;
}

// Calls visit(word, index) for each word. A piece never splits a word, as allocations and pages are whole words.
template <typename Each>
void each_word(const std::vector<Segment>& segments, Each visit) {
  walk(segments, [&](std::uint64_t at, const Piece& piece, const std::uint8_t* data) {
    for (std::uint64_t i = 0; i < piece.size; i += 8) {
      std::uint64_t word;
      std::memcpy(&word, data ? data + i : piece.pattern.data() + (at + i) % 16, 8);
      visit(word, (at + i) / 8);
    }
  });
}

CUresult run_check(const Context& by, const Words& a) {
  std::vector<Segment> segments;
  if (const CUresult result = range_of(by, a[0], a[1] * 8, 8, false, segments); result != CUDA_SUCCESS) return result;
  std::uint64_t wrong = 0;
  each_word(segments, [&](std::uint64_t word, std::uint64_t i) { wrong += word != kernels::random_word(a[2], i); });
  return add_to(by, a[3], wrong);
}

CUresult run_hash(const Context& by, const Words& a) {
  std::vector<Segment> segments;
  if (const CUresult result = range_of(by, a[0], a[1] * 8, 8, false, segments); result != CUDA_SUCCESS) return result;
  std::uint64_t sum = 0;
  walk(segments, [&](std::uint64_t at, const Piece& piece, const std::uint8_t* data) {
    const std::uint64_t words = piece.size / 8, first = at / 8;
    if (data) {
      std::array<std::uint64_t, 512> page;
      for (std::uint64_t i = 0; i < words; i += page.size()) {
        const std::uint64_t n = std::min<std::uint64_t>(page.size(), words - i);
        std::memcpy(page.data(), data + i * 8, n * 8);
        sum += kernels::hash_of_words(page.data(), n, first + i);
      }
      return;
    }
    const Pattern turn = turned(piece.pattern, at, 0);
    std::uint64_t pair[2];
    std::memcpy(pair, turn.data(), 16);
    sum += kernels::hash_of_pattern(pair[0], pair[1], words / 2, first);
    if (words % 2 != 0) sum += kernels::hash_of_words(pair, 1, first + words - 1);
  });
  return add_to(by, a[2], sum);
}

Pattern pattern_of(std::uint64_t low, std::uint64_t high) {
  Pattern pattern;
  std::memcpy(pattern.data(), &low, 8);
  std::memcpy(pattern.data() + 8, &high, 8);
  return pattern;
}

CUresult run_fill16(const Context& by, const Words& a) {
  std::vector<Segment> segments;
  if (const CUresult result = range_of(by, a[0], a[1] * 16, 16, true, segments); result != CUDA_SUCCESS) return result;
  put_pattern(segments, pattern_of(a[2], a[3]));
  return CUDA_SUCCESS;
}

CUresult run_check16(const Context& by, const Words& a) {
  std::vector<Segment> segments;
  if (const CUresult result = range_of(by, a[0], a[1] * 16, 16, false, segments); result != CUDA_SUCCESS) return result;
  const Pattern wanted = pattern_of(a[2], a[3]);
  std::uint64_t wrong = 0;
  walk(segments, [&](std::uint64_t at, const Piece& piece, const std::uint8_t* data) {
    if (!data && piece.pattern == wanted) return;
    for (std::uint64_t i = 0; i < piece.size; i += 8)
      wrong +=
          std::memcmp(data ? data + i : piece.pattern.data() + (at + i) % 16, wanted.data() + (at + i) % 16, 8) != 0;
  });
  return add_to(by, a[4], wrong);
}

struct Builtin {
  const char* name;
  unsigned arguments;
  CUresult (*run)(const Context&, const Words&);  // null: the kernel only takes time
  std::vector<Touch> (*touches)(const Words&);
};

const Builtin builtins[] = {
    {kernels::busy, 1, nullptr, [](const Words&) { return std::vector<Touch>{}; }},
    {kernels::fill, 3, run_fill,
     [](const Words& a) {
       return std::vector<Touch>{{a[0], a[1] * 8}};
     }},
    {kernels::check, 4, run_check,
     [](const Words& a) {
       return std::vector<Touch>{{a[0], a[1] * 8}, {a[3], 8}};
     }},
    {kernels::hash, 3, run_hash,
     [](const Words& a) {
       return std::vector<Touch>{{a[0], a[1] * 8}, {a[2], 8}};
     }},
    {kernels::fill16, 4, run_fill16,
     [](const Words& a) {
       return std::vector<Touch>{{a[0], a[1] * 16}};
     }},
    {kernels::check16, 5, run_check16,
     [](const Words& a) {
       return std::vector<Touch>{{a[0], a[1] * 16}, {a[4], 8}};
     }},
};

const Builtin* builtin_of(const Function& function) {
  for (const auto& builtin : builtins)
    if (function.entry.name == builtin.name && function.entry.parameters_known &&
        function.entry.parameters.size() == builtin.arguments)
      return &builtin;
  return nullptr;
}

// Names of kernels that are not simulated are printed once each.
void say_unknown(const std::string& name) {
  static auto* said = new std::set<std::string>;
  if (said->insert(name).second)
    std::fprintf(stderr, "simgpu: the kernel '%s' is not simulated: it takes time and changes nothing\n", name.c_str());
}

// ------------------------------------------------------------------------------------------- arguments

// Collects every parameter's bytes, widened to a word; larger parameters give their leading words. False if the caller
// gives no arguments for a kernel that has some.
bool read_arguments(const Function& function, void** parameters, void** extra, Words& words) {
  if (!function.entry.parameters_known || function.entry.parameters.empty()) return true;
  const char* packed = nullptr;
  std::size_t packed_size = 0;
  for (void** at = extra; at && *at != CU_LAUNCH_PARAM_END; at += 2) {
    if (*at == CU_LAUNCH_PARAM_BUFFER_POINTER) packed = static_cast<const char*>(at[1]);
    if (*at == CU_LAUNCH_PARAM_BUFFER_SIZE) packed_size = *static_cast<const std::size_t*>(at[1]);
  }
  if (!parameters && !packed) return false;
  for (std::size_t i = 0; i < function.entry.parameters.size(); ++i) {
    const auto& parameter = function.entry.parameters[i];
    const char* from = parameters ? static_cast<const char*>(parameters[i]) : packed + parameter.offset;
    if (!from || (!parameters && parameter.offset + parameter.size > packed_size)) return false;
    for (std::size_t at = 0; at == 0 || at + 8 <= parameter.size; at += 8) {
      std::uint64_t word = 0;
      std::memcpy(&word, from + at, std::min<std::size_t>(8, parameter.size - at));
      words.push_back(word);
    }
  }
  return true;
}

// An unknown kernel touches at least the memory that its arguments point at, as far as they are known.
std::vector<Touch> pointed_at(const Words& words) {
  std::vector<Touch> touches;
  for (const std::uint64_t word : words)
    if (driver().addresses.ours(word) && driver().addresses.find(word)) touches.push_back({word, 1});
  return touches;
}

// ------------------------------------------------------------------------------------------- launching

struct Shape {
  unsigned grid[3], block[3];
  std::size_t shared = 0;
};

CUresult check(const Shape& shape, const Function& function) {
  const auto& [grid, block, shared] = shape;
  if (!grid[0] || !grid[1] || !grid[2] || !block[0] || !block[1] || !block[2]) return CUDA_ERROR_INVALID_VALUE;
  if (grid[0] > 0x7fffffff || grid[1] > 65535 || grid[2] > 65535) return CUDA_ERROR_INVALID_VALUE;
  if (block[0] > 1024 || block[1] > 1024 || block[2] > 64) return CUDA_ERROR_INVALID_VALUE;
  if (std::uint64_t{block[0]} * block[1] * block[2] > max_threads_per_block) return CUDA_ERROR_INVALID_VALUE;
  const int most = function_attribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  return shared > static_cast<std::size_t>(most) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

CUresult run_kernel(const Context& by, const Builtin* builtin, const Words& words) {
  auto& table = *driver().table;
  const int device = static_cast<int>(by.device);
  if (table.meet(FaultKind::ecc, device)) return CUDA_ERROR_ECC_UNCORRECTABLE;
  if (const auto fault = table.meet(FaultKind::launch_hang, device))
    hang(FaultKind::launch_hang, device, fault->duration_ns), card_time() = now_ns();
  if (builtin && !builtin->run) {
    compute(by.device, words[0]);
    return CUDA_SUCCESS;
  }
  compute(by.device, table.get(Setting::kernel_ns));
  return builtin ? builtin->run(by, words) : CUDA_SUCCESS;
}

CUresult launch(CUfunction handle, const Shape& shape, CUstream stream_handle, void** parameters, void** extra,
                bool per_thread) {
  SIMGPU_CONTEXT();
  const Function* function = known_function(handle);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<Stream> stream;
  if (const CUresult result = find_any_stream(stream_handle, *context, per_thread, stream); result != CUDA_SUCCESS)
    return result;
  if (function->code->context && function->code->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
  if (parameters && extra) return CUDA_ERROR_INVALID_VALUE;
  if (const CUresult result = check(shape, *function); result != CUDA_SUCCESS) return result;
  Words words;
  if (!read_arguments(*function, parameters, extra, words)) return CUDA_ERROR_INVALID_VALUE;
  const Builtin* builtin = builtin_of(*function);
  if (!builtin) say_unknown(function->entry.name);
  auto touches = builtin ? builtin->touches(words) : pointed_at(words);
  return submit_or_capture(stream, {[by = stream->context, builtin, words] { return run_kernel(*by, builtin, words); },
                                    std::move(touches)});
}

CUresult launch_config(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra,
                       bool per_thread) {
  if (!config || (config->numAttrs != 0 && !config->attrs)) return CUDA_ERROR_INVALID_VALUE;
  const Shape shape{{config->gridDimX, config->gridDimY, config->gridDimZ},
                    {config->blockDimX, config->blockDimY, config->blockDimZ},
                    config->sharedMemBytes};
  return launch(function, shape, config->hStream, parameters, extra, per_thread);
}

}  // namespace

#define SIMGPU_LAUNCH(name, per_thread)                                                                              \
  SIMGPU_API name(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
                  unsigned shared, CUstream stream, void** parameters, void** extra) {                               \
    SIMGPU_ENTER(name);                                                                                              \
    return launch(function, {{gx, gy, gz}, {bx, by, bz}, shared}, stream, parameters, extra, per_thread);            \
  }
#define SIMGPU_COOPERATIVE(name, per_thread)                                                                         \
  SIMGPU_API name(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, \
                  unsigned shared, CUstream stream, void** parameters) {                                             \
    SIMGPU_ENTER(name);                                                                                              \
    return launch(function, {{gx, gy, gz}, {bx, by, bz}, shared}, stream, parameters, nullptr, per_thread);          \
  }
#define SIMGPU_LAUNCH_EX(name, per_thread)                                                              \
  SIMGPU_API name(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra) { \
    SIMGPU_ENTER(name);                                                                                 \
    return launch_config(config, function, parameters, extra, per_thread);                              \
  }

SIMGPU_LAUNCH(cuLaunchKernel, false)
SIMGPU_LAUNCH(cuLaunchKernel_ptsz, true)
SIMGPU_COOPERATIVE(cuLaunchCooperativeKernel, false)
SIMGPU_COOPERATIVE(cuLaunchCooperativeKernel_ptsz, true)
SIMGPU_LAUNCH_EX(cuLaunchKernelEx, false)
SIMGPU_LAUNCH_EX(cuLaunchKernelEx_ptsz, true)
