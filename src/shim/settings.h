// SPDX-License-Identifier: Apache-2.0
// The settings of a shim: the file .NAME.shim beside the shim NAME, with a line "key = value" for each setting.
#pragma once

#include "base/error.h"
#include "base/units.h"

#include <string>
#include <string_view>

namespace sublet::shim {

// The behaviour of a shim if no daemon answers.
enum class IfAbsent {
  run,   // run the program without a lease
  wait,  // wait for the daemon
  fail,  // exit 69
};

std::string_view to_string(IfAbsent policy);
Result<IfAbsent> parse_if_absent(std::string_view word);

struct Settings {
  Bytes vram;            // size of the lease on its device
  std::string consumer;  // consumer name of the lease
  std::string real;      // absolute path of the real program; "": the next program of this name in PATH
  IfAbsent if_absent = IfAbsent::run;
  bool interposer = false;  // libsublet-cuda.so is preloaded into the program
  int share = 0;            // percent of the computing time of its device; 0: no bound
};

// Pure. An error names the line.
Result<Settings> parse_settings(std::string_view text);
std::string settings_text(const Settings& settings, std::string_view name);

std::string settings_path(const std::string& shim);  // "/DIR/.ffmpeg.shim" of the shim "/DIR/ffmpeg"

// Reads the settings of a shim. Denied if another user than the caller or root could have written the file or the
// directory; NotFound without a file; BadRequest if the file is damaged.
Result<Settings> read_settings(const std::string& shim);

}  // namespace sublet::shim
