// SPDX-License-Identifier: Apache-2.0
// The SQL of the store: writing batches, loading at a start, reading, and pruning. One thread at a time. The database
// has recorded every error, so that the caller can ask the database whether the file is corrupt.
#pragma once

#include "store/sqlite.h"
#include "store/store.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace sublet::store {

using AnswerKey = std::pair<std::uint32_t, std::string>;  // uid and key of a remembered answer

class Tables final : public Reader {
 public:
  // The database must have the newest schema.
  Tables(std::unique_ptr<Database> database, const Limits& limits);

  Result<Loaded> load();
  Status each_answer_key(const std::function<void(std::uint32_t uid, std::string_view key)>& visit);

  Status begin();
  // Writes a batch. Call between begin and commit. Adds to `dropped` each key whose new answer was ignored because an
  // answer is stored already.
  Status put(const Batch& batch, std::vector<AnswerKey>& dropped);
  // Prunes. Call between begin and commit. Removes at most `slice` leases that are too old, `slice` leases above the
  // limit, and `slice` answers. Adds the keys of the answers to `dropped`. Returns whether anything was removed.
  Result<bool> prune(Time now, std::size_t slice, std::vector<AnswerKey>& dropped);
  Status commit();

  Result<std::optional<core::Lease>> lease(LeaseId id) override;
  Result<std::optional<core::Lease>> by_tag(std::string_view tag, std::optional<std::uint32_t> uid) override;
  Result<std::vector<core::Lease>> ended(std::size_t limit, std::optional<std::uint32_t> uid,
                                         std::optional<EndedBefore> before) override;
  Result<std::vector<core::Reason>> reasons(LeaseId id) override;
  Result<std::optional<Remembered>> remembered(std::uint32_t uid, std::string_view key) override;
  Result<Time> forgotten() override;
  Result<std::vector<LoggedEvent>> events(std::uint64_t after, std::size_t limit) override;

  Database& database() { return *database_; }

 private:
  // Counts the ended leases of a user.
  struct Ended {
    std::size_t at_most = 0;   // upper bound of their number
    std::size_t too_many = 0;  // how many of them must be removed before the next count
  };

  // Leases that are about to be removed.
  struct Dropping {
    std::vector<std::int64_t> ids;
    std::int64_t latest_end = 0;
  };

  Status put_lease(const core::Lease& lease);
  Status put_reason(const core::Reason& reason);
  Result<std::int64_t> last_reason(std::int64_t lease);
  Status put_answer(const Remembered& answer, std::vector<AnswerKey>& dropped);
  Status put_events(const Batch& batch);
  Status put_moves(const Batch& batch);
  Status put_records(const Batch& batch);
  Status put_tokens(const Batch& batch);
  Status put_grants(const Batch& batch);
  Status put_rows(const Batch& batch);
  Status put_meta(const Batch& batch);
  Result<bool> prune_leases(Time before, std::size_t slice);
  Status count_ended(std::uint32_t uid, Ended& of_user);
  Result<bool> prune_users(std::size_t slice);
  Result<bool> drop_leases(const Dropping& dropping);
  Result<bool> prune_answers(Time before, std::size_t slice, std::vector<AnswerKey>& dropped);
  Status load_history(Loaded& loaded);
  Status load_moves(Loaded& loaded);
  Status load_records(Loaded& loaded);
  Status load_counts();
  Status load_meta(Loaded& loaded);
  Status load_last_event(Loaded& loaded);
  Status load_tokens(Loaded& loaded);
  Status load_grants(Loaded& loaded);
  Status load_rows(Loaded& loaded);
  Result<std::vector<core::Lease>> leases(Statement& rows);
  Result<std::optional<core::Lease>> one_lease(Statement& rows);

  std::unique_ptr<Database> database_;  // declared first, because it must outlive the statements
  Limits limits_;
  Statement begin_, commit_;
  Statement put_lease_, update_living_, settle_, last_reason_, put_reason_, trim_reasons_, put_answer_, max_meta_,
      set_meta_;
  Statement old_leases_, count_ended_, oldest_of_user_, drop_lease_, drop_reasons_, old_answers_, drop_answer_,
      answer_bounds_;
  Statement lease_by_id_, lease_by_tag_, lease_by_tag_and_user_, ended_, ended_of_user_, reasons_, answer_, forgotten_;
  Statement put_event_, drop_events_, events_, first_event_;
  std::uint64_t newest_id_ = 0;  // highest id that may have a row
  // The number of the last reason of leases that had one lately. Asking the table takes a third of the time of adding a
  // reason.
  std::unordered_map<std::int64_t, std::int64_t> last_reasons_;
  std::uint64_t last_id_ = 0;  // of the current transaction
  std::optional<Time> last_time_;
  std::map<std::uint32_t, Ended> counts_;  // by uid
  std::uint64_t oldest_event_ = 0;         // number of the oldest kept event; 0: not known yet
};

}  // namespace sublet::store
