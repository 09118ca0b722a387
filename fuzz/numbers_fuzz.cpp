// SPDX-License-Identifier: Apache-2.0
// Sizes, durations and names as users type them.
#include "base/ids.h"
#include "base/text.h"
#include "base/units.h"
#include "fuzz.h"

#include <nlohmann/json.hpp>

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sublet;
  const std::string_view text = text_of(data, size);
  if (const auto bytes = parse_size(text)) {
    FUZZ_CHECK(bytes->count > 0);
    const auto again = parse_size(std::to_string(bytes->count));
    FUZZ_CHECK(again && *again == *bytes);
    FUZZ_CHECK(!format_size(*bytes).empty());
  } else {
    FUZZ_CHECK(!bytes.error().detail.empty());
    FUZZ_CHECK(is_printable(bytes.error().detail));
  }
  if (const auto duration = parse_duration(text)) {
    FUZZ_CHECK(duration->count() >= 0);
    FUZZ_CHECK(!format_duration(*duration).empty());
  } else {
    FUZZ_CHECK(is_printable(duration.error().detail));
  }
  if (const auto id = parse_lease_id(text)) FUZZ_CHECK(*parse_lease_id(to_string(*id)) == *id);
  const std::string shown = visible(text);
  FUZZ_CHECK(is_printable(shown));
  FUZZ_CHECK(visible(shown) == shown);
  FUZZ_CHECK(is_printable(text) == (shown == text));
  FUZZ_CHECK(!nlohmann::json(shown).dump().empty());
  return 0;
}
