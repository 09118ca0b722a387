// SPDX-License-Identifier: Apache-2.0
// Evidence that a process uses a GPU: its open and mapped files. The names of files are no proof, because a process in
// a mount namespace of its own chooses them. The bytes that the driver books to the process are the daemon's part.
#pragma once

#include "proc/process_files.h"

#include <string>
#include <string_view>

namespace sublet::actor {

struct GpuEvidence {
  bool device_file = false;  // a device file of the GPU is open
  bool mapping = false;      // memory of the GPU is mapped
};

// Whether the path names a file of a GPU. `cards`: directory of the simulated cards, without symbolic links; "": none.
bool is_gpu_file(std::string_view path, std::string_view cards);
// Whether an open file with that path is evidence. The control file alone is open in programs that only look.
bool is_open_gpu_file(std::string_view path, std::string_view cards);

// `directory`: from proc::open_process_files(). A process that blocks its readers shows nothing more after two seconds.
GpuEvidence find_gpu_evidence(int directory, const std::string& cards);

}  // namespace sublet::actor
