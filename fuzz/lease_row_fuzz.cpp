// SPDX-License-Identifier: Apache-2.0
// A row of the store from a damaged file: it gives a lease that can be stored again, or an error.
#include "fuzz.h"
#include "store/lease_row.h"
#include "store/sqlite.h"

#include <algorithm>

namespace {

using namespace sublet;

// Makes a value for every column from the input: a byte gives the kind, and its text or number follows.
void bind(store::Statement& statement, std::string_view input, std::size_t columns) {
  const auto take = [&](std::size_t count) {
    const std::string_view part = input.substr(0, count);
    input.remove_prefix(part.size());
    return part;
  };
  for (std::size_t i = 0; i < columns; ++i) {
    const auto kind = input.empty() ? 0U : static_cast<unsigned char>(take(1)[0]);
    if (kind % 4 == 0) {
      statement << std::optional<std::int64_t>();
    } else if (kind % 4 == 1) {
      std::uint64_t value = 0;
      for (const char c : take(8)) value = value << 8 | static_cast<unsigned char>(c);
      statement << static_cast<std::int64_t>(value);
    } else if (kind % 4 == 2) {
      statement << std::int64_t{kind / 4};
    } else {
      const auto end = std::min(input.find(';'), input.size());
      statement.copy(take(end));
      (void)take(1);
    }
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto database = store::Database::open(":memory:", store::Database::Mode::create);
  FUZZ_CHECK(database);
  const std::string& names = store::lease_columns();
  const std::size_t columns = 1 + static_cast<std::size_t>(std::count(names.begin(), names.end(), ','));
  std::string sql = "SELECT ?";
  for (std::size_t i = 1; i < columns; ++i) sql += ", ?";
  store::Statement statement(**database, sql);
  bind(statement, text_of(data, size), columns);
  const auto row = statement.step();
  FUZZ_CHECK(row && *row);
  const auto lease = store::read_lease(statement);
  if (!lease) return 0;
  FUZZ_CHECK(lease->id && lease->vram.count >= 0);
  store::Statement again(**database, sql + ", ?, ?");  // the two columns that only the store knows
  store::bind_lease(again, *lease);
  const auto stored = again.step();
  FUZZ_CHECK(stored && *stored);
  const auto same = store::read_lease(again);
  FUZZ_CHECK(same && same->id == lease->id && same->state == lease->state && same->booked == lease->booked);
  return 0;
}
