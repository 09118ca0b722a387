// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/fd.h"
#include "base/units.h"
#include <string>
#include <string_view>
namespace sublet::keep {
struct LogLimits { std::string path; Bytes max_size; int keep = 0; };
class LogFile {
 public:
  explicit LogFile(LogLimits limits) : limits_(std::move(limits)) {}
  void write(std::string_view bytes, Time now);
  void finish(Time) {}
  const std::string& problem() const { return problem_; }
 private:
  LogLimits limits_;
  Fd fd_;
  std::string problem_;
};
}  // namespace sublet::keep
