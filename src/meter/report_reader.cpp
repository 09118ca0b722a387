// SPDX-License-Identifier: Apache-2.0
#include "meter/report_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

namespace sublet::meter {

using store::Statement;

namespace {

const std::string nobody = "(no lease)";  // holds the memory that no lease holds
constexpr std::array<Ms, 12> steps{minute,   2 * minute, 5 * minute, 15 * minute, 30 * minute, hour,
                                   3 * hour, 6 * hour,   12 * hour,  day,         7 * day,     28 * day};
constexpr Ms most_points = 240;

// The sums of the cells, with bytes as MiB, so that a sum over years is a number of SQLite.
constexpr std::string_view cell_columns =
    "CAST(total(leased) / 1048576 AS INTEGER), CAST(total(paused) / 1048576 AS INTEGER), "
    "CAST(total(used) / 1048576 AS INTEGER), CAST(total(judged) / 1048576 AS INTEGER), "
    "CAST(total(idle) / 1048576 AS INTEGER), "
    "CAST(total(idle_waited) / 1048576 AS INTEGER), CAST(total(parked) / 1048576 AS INTEGER), sum(used_ms), "
    "sum(busy), sum(busy_ms), sum(waited_ms), max(peak), sum(moved), sum(pauses_caused), sum(pauses_suffered)";

// Runs `read` for each row.
template <typename Read>
Status each(store::Database& database, const std::string& sql, const Read& read) {
  Statement statement(database, sql);
  for (;;) {
    const auto row = statement.step();
    if (!row) return row.error();
    if (!*row) return {};
    read(statement);
  }
}

}  // namespace

void Row::add(const Row& other) {
  for (const auto field :
       {&Row::leases, &Row::active, &Row::waiting, &Row::leased, &Row::paused, &Row::never_used, &Row::used,
        &Row::judged, &Row::idle, &Row::idle_waited, &Row::parked, &Row::used_ms, &Row::busy, &Row::busy_ms,
        &Row::waited_ms, &Row::moved, &Row::checkpoints, &Row::pauses_caused, &Row::pauses_suffered})
    this->*field += other.*field;
  peak = std::max(peak, other.peak);
  caused_ms += other.caused_ms;
  if (other.work && !work) work = other.work;
  else if (other.work) work->add(*other.work);
  waits.insert(waits.end(), other.waits.begin(), other.waits.end());
  for (const auto& [reason, count] : other.ended) ended[reason] += count;
}

// Whole days and hours are sums already. The rest are single minutes at both ends.
std::vector<ReportReader::Range> ReportReader::ranges() const {
  const auto inside = [&](Ms unit) {
    return Range{"", (query_.from + unit - 1) / unit * unit, query_.to / unit * unit};
  };
  const Range whole{"", query_.from / minute * minute, (query_.to + minute - 1) / minute * minute};
  std::vector<Range> all;
  Range rest[2]{whole, {}};
  const auto take = [&](const char* table, Ms unit) {
    const Range in = inside(unit);
    if (in.from >= in.to || !all.empty()) return;
    all.push_back({table, in.from / unit, in.to / unit});
    rest[0].to = in.from;
    rest[1] = {"", in.to, whole.to};
  };
  take("days", day);
  const bool has_days = !all.empty();
  if (!has_days) take("hours", hour);
  for (Range part : rest) {
    if (has_days) {
      const Range hours{"hours", (part.from + hour - 1) / hour, part.to / hour};
      if (hours.from < hours.to) {
        all.push_back(hours);
        all.push_back({"minutes", part.from / minute, hours.from * 60});
        part.from = hours.to * hour;
      }
    }
    all.push_back({"minutes", part.from / minute, part.to / minute});
  }
  std::erase_if(all, [](const Range& range) { return range.from >= range.to; });
  return all;
}

const std::string& ReportReader::name_of(std::int64_t account) const {
  static const std::string unknown = "(unknown)";
  const auto found = accounts_.find(account);
  return found == accounts_.end() ? unknown : found->second;
}

Row& ReportReader::row_of(std::int64_t account, std::int64_t device) {
  if (query_.by != By::device) return rows_[name_of(account)];
  const auto found = devices_.find(device);
  const std::string uuid = found == devices_.end() ? "" : found->second;
  const auto name = query_.names.find(uuid);
  return rows_[name == query_.names.end() ? uuid : name->second];
}

Status ReportReader::read() {
  for (const auto part :
       {&ReportReader::read_names, &ReportReader::read_cells, &ReportReader::read_checkpoints, &ReportReader::read_work,
        &ReportReader::read_leases, &ReportReader::read_own_waits, &ReportReader::read_pairs, &ReportReader::read_gaps})
    if (auto done = (this->*part)(); !done) return done;
  return {};
}

Status ReportReader::read_names() {
  auto done = each(database_, "SELECT id, user, tenant, consumer, session FROM accounts", [&](Statement& row) {
    const std::int64_t id = row.integer();
    const std::string user = row.text(), tenant = row.text(), consumer = row.text(), session = row.text();
    users_[id] = user;
    // An empty account stands for memory that no lease held.
    const bool is_empty = user.empty() && tenant.empty() && consumer.empty();
    accounts_[id] = is_empty                    ? nobody
                    : query_.by == By::tenant   ? tenant
                    : query_.by == By::consumer ? consumer
                    : query_.by != By::session  ? user
                    : session.empty()           ? "(no session)"
                                                : session;
  });
  if (!done) return done;
  return each(database_, "SELECT id, uuid FROM devices", [&](Statement& row) {
    const std::int64_t id = row.integer();
    devices_[id] = row.text();
  });
}

Status ReportReader::read_cells() {
  const bool by_device = query_.by == By::device;
  const auto take = [&](Statement& row) {
    const std::int64_t account = row.integer(), device = row.integer();
    Row sum;
    for (const auto field : {&Row::leased, &Row::paused, &Row::used, &Row::judged, &Row::idle, &Row::idle_waited,
                             &Row::parked, &Row::used_ms, &Row::busy, &Row::busy_ms, &Row::waited_ms, &Row::peak,
                             &Row::moved, &Row::pauses_caused, &Row::pauses_suffered})
      sum.*field = row.integer();
    row_of(account, device).add(sum);
  };
  const char* group = by_device ? "0, device" : "account, 0";
  for (const Range& range : ranges()) {
    const bool minutes = std::string_view(range.table) == "minutes";
    const std::string sql = fmt::format(
        "SELECT {}, {} FROM {} WHERE slot >= {} AND slot < {} AND {} GROUP BY {}", group, cell_columns,
        minutes ? "(SELECT minutes.*, (SELECT account FROM leases WHERE leases.lease = minutes.lease) AS account FROM "
                  "minutes)"
                : range.table,
        range.from, range.to, by_device ? "device <> 0" : "1", by_device ? "device" : "account");
    if (auto done = each(database_, sql, take); !done) return done;
  }
  return {};
}

Status ReportReader::read_checkpoints() {
  if (query_.by == By::device) return {};
  return each(database_,
              fmt::format("SELECT account, sum(bytes) FROM checkpoints JOIN leases USING (lease) WHERE slot >= {} AND "
                          "slot < {} GROUP BY account",
                          query_.from / minute, (query_.to + minute - 1) / minute),
              [&](Statement& from) {
                Row& row = row_of(from.integer(), 0);
                row.checkpoints += from.integer();
              });
}

// The sums of SQLite's total() have no bound: a program may say any numbers.
Status ReportReader::read_work() {
  if (query_.by == By::device) return {};
  std::string sums;
  for (const char* column : {"launches", "copied", "allocated", "errors", "charged_us", "waited_us"})
    sums += fmt::format(", CAST(total({}) AS INTEGER)", column);
  return each(database_,
              fmt::format("SELECT account{} FROM work JOIN leases USING (lease) WHERE slot >= {} AND slot < {} "
                          "GROUP BY account",
                          sums, query_.from / minute, (query_.to + minute - 1) / minute),
              [&](Statement& from) {
                Row sum;
                const std::int64_t account = from.integer();
                Work& work = sum.work.emplace();
                for (const auto field : {&Work::launches, &Work::copied, &Work::allocated, &Work::errors,
                                         &Work::charged_us, &Work::waited_us})
                  work.*field = from.integer();
                row_of(account, 0).add(sum);
              });
}

// `never_used` is the part of a lease above its own peak, as if spread evenly over its life.
double ReportReader::never_used(const LeaseRow& lease) const {
  const auto part = [](double value) { return std::max(0.0, value); };
  const Ms begin = lease.granted.value_or(lease.created), end = lease.ended.value_or(query_.now);
  const double unused =
      part(lease.leased - static_cast<double>(lease.peak) / 1048576 * static_cast<double>(lease.held));
  const double inside = part(static_cast<double>(std::min(end, query_.to) - std::max(begin, query_.from)) /
                             static_cast<double>(std::max<Ms>(1, end - begin)));
  return unused * inside;  // MiB × ms
}

// There may be half a million leases: one pass, without a sort.
Status ReportReader::read_leases() {
  if (query_.by == By::device) return {};
  const std::string sql = fmt::format(
      "SELECT account, created, granted, ended, leased, peak, held, lease, state = 'queued', reason FROM leases "
      "WHERE created < {0} AND ({2}ended IS NULL OR {2}ended >= {1})",
      query_.to, query_.from, query_.to - query_.from > 3 * day ? "+" : "");  // "+": without the index of ends
  const std::set<std::uint64_t> in_place(query_.waiting_in_place.begin(), query_.waiting_in_place.end());
  std::unordered_map<std::int64_t, Row*> rows;
  return each(database_, sql, [&](Statement& from) {
    const std::int64_t account = from.integer();
    LeaseRow lease;
    lease.created = from.integer();
    lease.granted = from.maybe_integer();
    lease.ended = from.maybe_integer();
    lease.leased = static_cast<double>(from.integer());  // MiB × ms
    lease.peak = from.integer();
    lease.held = from.integer();
    const bool waits_in_place = in_place.contains(static_cast<std::uint64_t>(from.integer()));
    const bool queued = from.integer() != 0;
    Row*& row = rows[account];
    if (row == nullptr) row = &row_of(account, 0);
    ++row->leases;
    row->peak = std::max(row->peak, lease.peak);
    row->never_used += static_cast<std::int64_t>(never_used(lease));
    if (lease.ended) {
      if (*lease.ended <= query_.to) ++row->ended[from.text()];
      return;
    }
    row->active += queued ? 0 : 1;
    row->waiting += queued || waits_in_place ? 1 : 0;
    if (queued) row->waits.push_back(std::max<Ms>(0, std::min(query_.to, query_.now) - lease.created));
  });
}

// Waits that are over.
Status ReportReader::read_own_waits() {
  if (query_.by == By::device) return {};
  std::unordered_map<std::int64_t, Row*> rows;
  return each(database_,
              fmt::format("SELECT account, waited FROM waits WHERE at >= {} AND at <= {}", query_.from, query_.to),
              [&](Statement& from) {
                const std::int64_t account = from.integer();
                Row*& row = rows[account];
                if (row == nullptr) row = &row_of(account, 0);
                row->waits.push_back(from.integer());
              });
}

// The minutes of pairs are not kept for long: earlier, an hour that lies partly in the period counts in full.
Status ReportReader::read_pairs() {
  if (query_.by == By::device && !query_.whole) return {};
  // There may be a million rows: they are added up by number.
  std::unordered_map<std::string_view, std::uint64_t> numbers;
  std::unordered_map<std::int64_t, std::uint64_t> number_of;
  std::vector<std::string_view> names;
  for (const auto& [account, name] : accounts_) {
    const auto [entry, fresh] = numbers.emplace(name, names.size());
    if (fresh) names.push_back(name);
    number_of[account] = entry->second;
  }
  std::unordered_map<std::uint64_t, std::int64_t> sums;  // in µs, by waiter and holder
  const auto add = [&](const char* table, Ms from, Ms to) -> Status {
    if (from >= to) return {};
    return each(database_,
                fmt::format("SELECT waiter, holder, us FROM {} WHERE slot >= {} AND slot < {}", table, from, to),
                [&](Statement& row) {
                  const std::uint64_t waiter = number_of[row.integer()], holder = number_of[row.integer()];
                  sums[waiter << 32 | holder] += row.integer();
                });
  };
  const Ms kept = query_.now - pairs_kept + hour;
  const Ms first_minute = query_.from / minute, last_minute = (query_.to + minute - 1) / minute;
  const Ms first = query_.from < kept ? query_.from / hour : first_hour();
  const Ms last = query_.to < kept ? (query_.to + hour - 1) / hour : last_hour();
  const bool hours = first < last;
  if (auto done = add("pair_hours", first, last); !done) return done;
  if (auto done = add("pair_minutes", first_minute, hours ? first * 60 : last_minute); !done) return done;
  if (auto done = add("pair_minutes", hours ? last * 60 : last_minute, last_minute); !done) return done;
  for (const auto& [key, us] : sums) {
    const std::string waiter(names[key >> 32]), holder(names[key & 0xffffffff]);
    const double ms = static_cast<double>(us) / 1000;
    pairs_[{waiter, holder}] += ms;
    if (query_.by != By::device && holder != nobody) rows_[holder].caused_ms += ms;
  }
  return {};
}

Status ReportReader::read_gaps() {
  const std::string sql =
      fmt::format("SELECT from_at, to_at, what, why FROM gaps WHERE to_at >= {} AND from_at < {} ORDER BY from_at",
                  query_.from, query_.to);
  const auto take = [&](Gap gap) {
    if (gap.what == "leased") complete_since_ = std::max(complete_since_, std::min(gap.to, query_.to));
    gaps_.push_back(std::move(gap));
  };
  auto done = each(database_, sql, [&](Statement& row) {
    Gap gap;
    gap.from = row.integer();
    gap.to = row.integer();
    gap.what = row.text();
    gap.why = row.text();
    take(std::move(gap));
  });
  for (const Gap& gap : query_.missing)
    if (gap.to >= query_.from && gap.from < query_.to) take(gap);
  return done;
}

Result<std::vector<WaitSample>> ReportReader::read_waits(Ms since) {
  std::vector<WaitSample> waits;
  auto done =
      each(database_,
           fmt::format("SELECT at, wanted, waited, account FROM waits WHERE at >= {} AND at <= {}", since, query_.to),
           [&](Statement& row) {
             WaitSample wait;
             wait.at = row.integer();
             wait.wanted = row.integer();
             wait.waited = row.integer();
             wait.user = users_[row.integer()];
             waits.push_back(std::move(wait));
           });
  if (!done) return done.error();
  return waits;
}

Result<Ms> ReportReader::read_known_since() {
  const auto first = database_.integer("SELECT coalesce(min(slot), 0) FROM device_hours");
  if (!first) return first.error();
  const std::string sql = fmt::format(
      "SELECT coalesce(max(to_at), 0) FROM gaps WHERE what = 'leased' AND to_at < {} AND to_at - from_at >= {}",
      query_.to, hour);
  const auto gap = database_.integer(sql.c_str());
  if (!gap) return gap.error();
  return std::max(*first * hour, *gap);
}

// The time of the first amount of a device; 0: there is none.
Result<Ms> ReportReader::read_first() {
  const auto in_hours = database_.integer("SELECT coalesce(min(slot), 0) FROM device_hours");
  if (!in_hours) return in_hours.error();
  const auto in_minutes = database_.integer("SELECT coalesce(min(slot), 0) FROM device_minutes");
  if (!in_minutes) return in_minutes.error();
  const Ms first_hour = *in_hours * hour, first_minute = *in_minutes * minute;
  return first_minute < first_hour + hour ? std::max(first_hour, first_minute) : first_hour;
}

// Begins with the first amount, since a plot of a day of nothing hides the rest.
Result<Series> ReportReader::read_series() {
  const auto first = read_first();
  if (!first) return first.error();
  const Ms from = *first < query_.to ? std::max(query_.from, *first) : query_.from;
  Series series;
  series.step =
      *std::find_if(steps.begin(), steps.end() - 1, [&](Ms step) { return (query_.to - from) / step < most_points; });
  const bool by_hour = series.step >= hour;
  const Ms unit = by_hour ? hour : minute;
  series.from = from - from % series.step;
  const auto count = static_cast<std::size_t>((query_.to - series.from + series.step - 1) / series.step);
  for (std::size_t i = 0; i < count; ++i) {
    const Ms begin = series.from + static_cast<Ms>(i) * series.step;
    // The amounts are those of whole slots; the last slot ends now.
    const Ms end = std::min((query_.to + unit - 1) / unit * unit, query_.now);
    series.covered.push_back(std::min(begin + series.step, end) - begin);
  }
  series.waiting.assign(count, 0);
  const auto index = [&](Ms slot) { return static_cast<std::size_t>((slot * unit - series.from) / series.step); };
  auto done =
      each(database_,
           fmt::format("SELECT slot, device, leased, used, used_ms, busy, busy_ms, total FROM {} WHERE slot >= "
                       "{} AND slot < {}",
                       by_hour ? "device_hours" : "device_minutes", series.from / unit, (query_.to + unit - 1) / unit),
           [&](Statement& row) {
             const std::size_t at = index(row.integer());
             const std::string uuid = devices_[row.integer()];
             if (at >= count || uuid.empty()) return;
             auto& points = series.devices[uuid];
             points.resize(count);
             for (const auto field : {&DeviceCell::leased, &DeviceCell::used, &DeviceCell::used_ms, &DeviceCell::busy,
                                      &DeviceCell::busy_ms})
               points[at].*field += row.integer();
             points[at].total = std::max(points[at].total, row.integer());
           });
  if (!done) return done.error();
  done = each(database_,
              fmt::format("SELECT slot, ms FROM waiting_minutes WHERE slot >= {} AND slot < {}", series.from / minute,
                          (query_.to + minute - 1) / minute),
              [&](Statement& row) {
                const Ms slot = row.integer();
                const auto at = static_cast<std::size_t>((slot * minute - series.from) / series.step);
                if (at < count) series.waiting[at] += row.integer();
              });
  if (!done) return done.error();
  return series;
}

}  // namespace sublet::meter
