// SPDX-License-Identifier: Apache-2.0
// The meter's database, a file of its own: whatever happens to it, leases go on. One thread at a time.
#pragma once

#include "meter/deltas.h"
#include "store/sqlite.h"

#include <map>
#include <memory>
#include <string>

namespace sublet::meter {

// The place up to which the events are counted, stored with the amounts.
struct Mark {
  std::string life{};       // of the store whose events they are; "": nothing was counted yet
  std::uint64_t event = 0;  // the number of the last event that was counted
  std::string state{};      // of the integrator, as JSON
  Ms at = 0;                // time up to which all is counted; not read back
};

// There are many of them; later, they count by hours.
inline constexpr Ms pairs_kept = 48 * hour;

class File {
 public:
  // Opens the file, or makes it. A file that is damaged, or of another program or version, is an error, and sets
  // `unusable`. After other errors, such as a full disk, a later try may succeed.
  static Result<std::unique_ptr<File>> open(const std::string& path, bool& unusable);

  Result<Mark> mark();
  // Adds the amounts and replaces the mark, both or neither.
  Status put(const Deltas& deltas, const Mark& mark);
  // Removes minutes, waits, pairs and leases that ended before `minutes_before`, hours before `hours_before`, and
  // minutes of pairs that are older than `pairs_kept`. At most `slice` rows of each table. Returns whether there may be
  // more.
  Result<bool> prune(Ms now, Ms minutes_before, Ms hours_before, int slice);

  store::Database& database() { return *database_; }

 private:
  explicit File(std::unique_ptr<store::Database> database);
  Result<std::int64_t> account(const Account& account);
  Result<std::int64_t> device(const std::string& uuid);
  Result<std::int64_t> account_of(std::uint64_t lease);
  Status renumber();
  Status put_all(const Deltas& deltas, const Mark& mark);
  Status put_lease(const LeaseRow& row);
  Status put_cells(const Deltas& deltas);
  Status put_cell(store::Statement& into, Ms slot, std::int64_t who, std::int64_t device, const Cell& cell);
  Status put_devices(const Deltas& deltas);
  Status put_waits(const Deltas& deltas);
  Status put_pairs(const Deltas& deltas);
  Status put_gaps(const Deltas& deltas);
  Status put_checkpoints(const Deltas& deltas);
  Status put_work(const Deltas& deltas);

  std::unique_ptr<store::Database> database_;  // first: it outlives the statements
  store::Statement find_account_, add_account_, find_device_, add_device_, lease_account_;
  store::Statement put_lease_, put_minute_, put_hour_, put_day_, put_device_minute_, put_device_hour_;
  store::Statement put_checkpoint_, put_work_, put_waiting_, put_wait_, put_pair_minute_, put_pair_hour_;
  store::Statement extend_gap_, put_gap_, put_meta_, get_meta_;
  std::string life_;  // of the stored mark
  std::map<Account, std::int64_t> accounts_;
  std::map<std::string, std::int64_t> devices_;
  std::map<std::uint64_t, std::int64_t> lease_accounts_;  // of leases that live
};

}  // namespace sublet::meter
