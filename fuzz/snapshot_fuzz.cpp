// SPDX-License-Identifier: Apache-2.0
// Output of sublet-gpu, or of a program in its place: cut into lines at any byte, decoded, judged.
#include "fuzz.h"
#include "gpu/probe_client.h"
#include "gpu/snapshot.h"

#include <algorithm>

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sublet;
  std::string_view rest = text_of(data, size);
  gpu::LineSplitter lines(4096);
  const std::size_t piece = size == 0 ? 1 : 1 + data[0] % 64U;
  bool broken = false;
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, piece);
    rest.remove_prefix(part.size());
    const bool fed = lines.feed(part).has_value();
    FUZZ_CHECK(!(broken && fed));
    broken = !fed;
    while (const auto line = lines.next()) {
      FUZZ_CHECK(line->find('\n') == std::string::npos && line->size() <= 4096);
      (void)gpu::decode_snapshot_command(*line);
      const auto reply = gpu::decode_snapshot(*line);
      if (!reply) continue;
      const auto again = gpu::decode_snapshot(gpu::encode_snapshot(reply->id, reply->snapshot));
      FUZZ_CHECK(again && again->id == reply->id && again->snapshot == reply->snapshot);
      (void)gpu::judge(reply->snapshot);
    }
  }
  return 0;
}
