// SPDX-License-Identifier: Apache-2.0
// The document of a lease from a damaged store: it gives a lease that can be stored again, or nothing.
#include "fuzz.h"
#include "store/lease_document.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sublet;
  const auto lease = store::decode_lease(text_of(data, size));
  if (!lease) return 0;
  FUZZ_CHECK(lease->id && lease->vram.count >= 0);
  const auto same = store::decode_lease(store::encode_lease(*lease));
  FUZZ_CHECK(same && *same == *lease);
  return 0;
}
