// SPDX-License-Identifier: Apache-2.0
// The command line of simgpu-load.
#pragma once

#include "base/units.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace simgpu::tools {

// What it does when it is asked to yield.
enum class OnPause {
  not_asked,      // it does not say that it yields by itself
  honest,         // copies all it holds to the host, frees it and its context, and comes back with every byte
  liar,           // says that it has yielded, and keeps everything
  half,           // frees half of it, and says that it has yielded
  late,           // yields half a second after the time for that is over
  again,          // yields, and holds half as much again a second later
  again_at_usr1,  // the same, at SIGUSR1
  deaf,           // never gets to a place where it could yield
};

struct LoadOptions {
  sublet::Bytes alloc;                                  // VRAM to allocate and fill, a multiple of 4 KiB
  sublet::Bytes step = 256 * sublet::MiB;               // allocated at a time
  sublet::Bytes rate;                                   // per second while filling; 0: as fast as it goes
  sublet::Duration seconds = std::chrono::seconds(30);  // of computing, after the fill
  int busy = 50;                                        // percent of that time in which a kernel runs
  std::uint64_t seed = 0;                               // of the contents; 0: the process id
  bool verify = false;                                  // check while computing too, not only at the end
  bool dense = false;                                   // random everywhere instead of one page in 2 MiB
  bool json = false;
  OnPause on_pause = OnPause::not_asked;
  bool help = false;
  bool version = false;
};

extern const std::string_view load_help;

// An error's detail is one sentence for stderr; the caller exits with 2.
sublet::Result<LoadOptions> parse_load_options(const std::vector<std::string_view>& arguments);

}  // namespace simgpu::tools
