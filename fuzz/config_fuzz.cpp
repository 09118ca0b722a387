// SPDX-License-Identifier: Apache-2.0
// The configuration file: any text gives a configuration, or problems with places and messages.
#include "base/text.h"
#include "config/config.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sublet;
  const config::Loaded loaded = config::parse(text_of(data, size), "sublet.toml");
  for (const config::Problem& problem : loaded.problems) {
    FUZZ_CHECK(!problem.text.empty());
    FUZZ_CHECK(is_printable(config::to_string(problem)));
  }
  if (!loaded.problems.empty()) FUZZ_CHECK(!config::to_error(loaded.problems).detail.empty());
  return 0;
}
