// SPDX-License-Identifier: Apache-2.0
// The queries of a report.
#pragma once

#include "meter/report.h"
#include "meter/trend.h"

#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace sublet::meter {

// The amounts of a row. Byte amounts are MiB × ms.
struct Row {
  std::int64_t leases = 0, active = 0, waiting = 0;
  std::int64_t leased = 0, paused = 0, never_used = 0, used = 0, judged = 0, idle = 0, idle_waited = 0, parked = 0;
  std::int64_t used_ms = 0, busy = 0, busy_ms = 0, waited_ms = 0;  // busy: percent × ms
  std::int64_t peak = 0, moved = 0, checkpoints = 0;               // bytes
  std::int64_t pauses_caused = 0, pauses_suffered = 0;
  std::optional<Work> work{};  // unset: none of its processes ran behind the interposer
  double caused_ms = 0;        // time that others waited for it
  std::vector<Ms> waits{};
  std::map<std::string, std::int64_t> ended{};  // number by reason

  void add(const Row& other);
};

// Points at equal distances over the period.
struct Series {
  Ms from = 0, step = 0;
  std::vector<Ms> covered{};                                 // the part of each step that lies in the period
  std::map<std::string, std::vector<DeviceCell>> devices{};  // by uuid
  std::vector<Ms> waiting{};                                 // leases × ms
};

class ReportReader {
 public:
  ReportReader(store::Database& database, const Query& query) : database_(database), query_(query) {}

  Status read();
  Result<Series> read_series();
  Result<Ms> read_first();
  Result<std::vector<WaitSample>> read_waits(Ms since);
  // The end of the last long gap before the end of the period, or the time of the first amount.
  Result<Ms> read_known_since();

  const std::map<std::string, Row>& rows() const { return rows_; }
  const std::map<std::pair<std::string, std::string>, double>& pairs() const { return pairs_; }
  const std::vector<Gap>& gaps() const { return gaps_; }
  Ms complete_since() const { return complete_since_; }  // 0: since ever

 private:
  Status read_names();
  Status read_cells();
  Status read_checkpoints();
  Status read_work();
  Status read_leases();
  Status read_own_waits();
  Status read_pairs();
  Status read_gaps();
  // A table, and the slots of it that are read.
  struct Range {
    const char* table = "";
    Ms from = 0, to = 0;
  };
  std::vector<Range> ranges() const;
  double never_used(const LeaseRow& lease) const;  // MiB × ms
  const std::string& name_of(std::int64_t account) const;
  Row& row_of(std::int64_t account, std::int64_t device);
  Ms first_hour() const { return (query_.from + hour - 1) / hour; }
  Ms last_hour() const { return query_.to / hour; }

  store::Database& database_;
  const Query& query_;
  std::unordered_map<std::int64_t, std::string> accounts_;  // the name of each account in this report
  std::unordered_map<std::int64_t, std::string> users_;
  std::unordered_map<std::int64_t, std::string> devices_;
  std::map<std::string, Row> rows_;
  std::map<std::pair<std::string, std::string>, double> pairs_;
  std::vector<Gap> gaps_;
  Ms complete_since_ = 0;
};

}  // namespace sublet::meter
