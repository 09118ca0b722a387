// SPDX-License-Identifier: Apache-2.0
// The command line of simgpu-load.
#pragma once

#include "base/units.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace simgpu::tools {

// The reaction of simgpu-load to a request to yield.
enum class OnPause {
  not_asked,  // does not announce that it can yield
  // copies all its memory to the host, frees the memory and its context, and restores every byte at the resume
  honest,
  liar,           // reports that it has yielded, and keeps everything
  half,           // frees half of its memory, and reports that it has yielded
  late,           // yields half a second after the deadline
  again,          // yields, and allocates half as much again a second later
  again_at_usr1,  // the same, at SIGUSR1
  unresponsive,   // never reaches a safe point
};

struct LoadOptions {
  sublet::Bytes alloc;                                  // VRAM to allocate and fill, a multiple of 4 KiB
  sublet::Bytes step = 256 * sublet::MiB;               // bytes of one allocation
  sublet::Bytes rate;                                   // bytes per second while filling; 0: unlimited
  sublet::Duration seconds = std::chrono::seconds(30);  // time of computing, after the fill
  int busy = 50;                                        // percent of that time in which a kernel runs
  std::uint64_t seed = 0;                               // seed of the contents; 0: the process id
  bool verify = false;                                  // check while computing too, not only at the end
  bool dense = false;                                   // random words everywhere instead of on one page in 2 MiB
  bool json = false;
  OnPause on_pause = OnPause::not_asked;
  bool help = false;
  bool version = false;
};

extern const std::string_view load_help;

// Parses the command line. An error's detail is one sentence for stderr; the caller exits with 2.
sublet::Result<LoadOptions> parse_load_options(const std::vector<std::string_view>& arguments);

}  // namespace simgpu::tools
