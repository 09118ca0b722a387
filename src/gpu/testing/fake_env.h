// SPDX-License-Identifier: Apache-2.0
// Tells the fake management libraries (fake_nvml.cpp) what to report, for one scope.
#pragma once

#include <fmt/format.h>

#include <cstdlib>
#include <string>

namespace sublet::gpu {

class FakeNvml {
 public:
  explicit FakeNvml(const std::string& says = {}) { say(says); }
  ~FakeNvml() { ::unsetenv("FAKE_NVML"); }
  FakeNvml(const FakeNvml&) = delete;
  FakeNvml& operator=(const FakeNvml&) = delete;
  void say(const std::string& text) const { ::setenv("FAKE_NVML", text.c_str(), 1); }
};

inline std::string fake_library(const std::string& kind) {
  return fmt::format("{}libfake_nvml_{}.so", TEST_FAKES, kind);
}

}  // namespace sublet::gpu
