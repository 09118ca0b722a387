// SPDX-License-Identifier: Apache-2.0
// CSV files with a line of names, row by row (RFC 4180; a field does not hold a line break).
#pragma once

#include "base/error.h"
#include "base/units.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::simulate {

class CsvRow {
 public:
  CsvRow(const std::string& file, const std::vector<std::string>& names) : file_(file), names_(names) {}

  std::string_view text(std::string_view column) const;  // "" for a column that is not there
  // These note the first problem of the row, and return 0 then.
  std::int64_t number(std::string_view column, std::int64_t least, std::int64_t most);
  Duration duration(std::string_view column);
  Bytes size(std::string_view column);
  std::string_view required(std::string_view column);
  void check_text();  // notes a field that is no UTF-8, or that has control characters
  void wrong(std::string_view column, std::string_view problem, std::string hint = {});

  const std::optional<Error>& problem() const { return problem_; }
  std::size_t line() const { return line_; }

  // For the reader of the file.
  void set(std::size_t line, std::vector<std::string> fields) { line_ = line, fields_ = std::move(fields); }
  const std::vector<std::string>& fields() const { return fields_; }

 private:
  std::optional<std::size_t> find(std::string_view column) const;

  const std::string& file_;
  const std::vector<std::string>& names_;
  std::vector<std::string> fields_;
  std::size_t line_ = 0;
  std::optional<Error> problem_;
};

// A size that is a number alone is in bytes. Below this, its unit was forgotten.
inline constexpr Bytes least_without_unit = MiB;
bool is_plain_number(std::string_view text);

// Calls `row` for each row. Ends at the first problem, also of a file that lacks one of these columns, that has a
// column twice, that ends in the middle of a row, or that has no row. `others`: the further columns that may be there;
// empty: any.
Status each_row(const std::string& path, const std::vector<std::string>& columns,
                const std::function<void(CsvRow&)>& row, const std::vector<std::string_view>& others = {});

}  // namespace sublet::simulate
