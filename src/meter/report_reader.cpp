// SPDX-License-Identifier: Apache-2.0
#include "meter/report_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace sublet::meter {

using store::Statement;

namespace {

constexpr Ms day = 24 * hour;
constexpr std::array<Ms, 12> steps{minute,   2 * minute, 5 * minute, 15 * minute, 30 * minute, hour,
                                   3 * hour, 6 * hour,   12 * hour,  day,         7 * day,     28 * day};
constexpr Ms most_points = 240;

// The sums of the cells, with bytes as MiB, so that a sum over years is a number of SQLite.
constexpr std::string_view cell_columns =
    "CAST(total(leased) / 1048576 AS INTEGER), CAST(total(paused) / 1048576 AS INTEGER), "
    "CAST(total(used) / 1048576 AS INTEGER), CAST(total(idle) / 1048576 AS INTEGER), "
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
  for (const auto field : {&Row::leases, &Row::active, &Row::waiting, &Row::leased, &Row::paused, &Row::never_used,
                           &Row::used, &Row::idle, &Row::idle_waited, &Row::parked, &Row::used_ms, &Row::busy,
                           &Row::busy_ms, &Row::waited_ms, &Row::moved, &Row::pauses_caused, &Row::pauses_suffered})
    this->*field += other.*field;
  peak = std::max(peak, other.peak);
  caused_ms += other.caused_ms;
  waits.insert(waits.end(), other.waits.begin(), other.waits.end());
  for (const auto& [reason, count] : other.ended) ended[reason] += count;
}

std::string ReportReader::in_hours() const {
  return fmt::format("slot >= {} AND slot < {}", first_hour(), std::max(first_hour(), last_hour()));
}

std::string ReportReader::in_minutes() const {
  const Ms first = query_.from / minute, last = (query_.to + minute - 1) / minute;
  if (last_hour() <= first_hour()) return fmt::format("slot >= {} AND slot < {}", first, last);
  return fmt::format("((slot >= {} AND slot < {}) OR (slot >= {} AND slot < {}))", first, first_hour() * 60,
                     last_hour() * 60, last);
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
       {&ReportReader::read_names, &ReportReader::read_cells, &ReportReader::read_leases, &ReportReader::read_ends,
        &ReportReader::read_own_waits, &ReportReader::read_pairs, &ReportReader::read_gaps})
    if (auto done = (this->*part)(); !done) return done;
  return {};
}

Status ReportReader::read_names() {
  auto done = each(database_, "SELECT id, user, tenant, consumer, session FROM accounts", [&](Statement& row) {
    const std::int64_t id = row.integer();
    const std::string user = row.text(), tenant = row.text(), consumer = row.text(), session = row.text();
    users_[id] = user;
    // An empty account stands for memory that no lease held.
    const bool nobody = user.empty() && tenant.empty() && consumer.empty();
    accounts_[id] = nobody                      ? "(no lease)"
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
    for (const auto field : {&Row::leased, &Row::paused, &Row::used, &Row::idle, &Row::idle_waited, &Row::parked,
                             &Row::used_ms, &Row::busy, &Row::busy_ms, &Row::waited_ms, &Row::peak, &Row::moved,
                             &Row::pauses_caused, &Row::pauses_suffered})
      sum.*field = row.integer();
    row_of(account, device).add(sum);
  };
  const std::string which = by_device ? "device <> 0" : "1";
  const char* group = by_device ? "0, device" : "account, 0";
  const char* by = by_device ? "device" : "account";
  if (last_hour() > first_hour()) {
    auto done = each(
        database_,
        fmt::format("SELECT {}, {} FROM hours WHERE {} AND {} GROUP BY {}", group, cell_columns, in_hours(), which, by),
        take);
    if (!done) return done;
  }
  // The columns of leases that have the same names are amounts of their whole lives.
  return each(database_,
              fmt::format("SELECT {}, {} FROM (SELECT minutes.*, (SELECT account FROM leases WHERE leases.lease = "
                          "minutes.lease) AS account FROM minutes) WHERE {} AND {} GROUP BY {}",
                          group, cell_columns, in_minutes(), which, by),
              take);
}

// `never_used` is the part of a lease above its own peak, as if spread evenly over its life.
Status ReportReader::read_leases() {
  if (query_.by == By::device) return {};
  const std::string sql = fmt::format(
      "SELECT account, count(*), sum(ended IS NULL AND state <> 'queued'), sum(ended IS NULL AND state = 'queued'), "
      "max(peak), CAST(total(leased / 1048576 * max(0.0, 1.0 - 1.0 * peak / max(wanted, 1)) * "
      "max(0.0, 1.0 * (min(coalesce(ended, {now}), {to}) - max(coalesce(granted, created), {from})) / "
      "max(1, coalesce(ended, {now}) - coalesce(granted, created)))) AS INTEGER) "
      "FROM leases WHERE created < {to} AND (ended IS NULL OR ended >= {from}) GROUP BY account",
      fmt::arg("now", query_.now), fmt::arg("from", query_.from), fmt::arg("to", query_.to));
  return each(database_, sql, [&](Statement& row) {
    const std::int64_t account = row.integer();
    Row sum;
    for (const auto field : {&Row::leases, &Row::active, &Row::waiting, &Row::peak, &Row::never_used})
      sum.*field = row.integer();
    row_of(account, 0).add(sum);
  });
}

Status ReportReader::read_ends() {
  if (query_.by == By::device) return {};
  const std::string sql = fmt::format(
      "SELECT account, reason, count(*) FROM leases WHERE ended >= {} AND ended <= {} GROUP BY account, reason",
      query_.from, query_.to);
  return each(database_, sql, [&](Statement& row) {
    const std::int64_t account = row.integer();
    const std::string reason = row.text();
    row_of(account, 0).ended[reason] += row.integer();
  });
}

// Finished waits, and those of leases that still wait.
Status ReportReader::read_own_waits() {
  if (query_.by == By::device) return {};
  const std::string sql = fmt::format(
      "SELECT account, waited FROM waits WHERE at >= {0} AND at <= {1} UNION ALL "
      "SELECT account, max(0, min({1}, {2}) - created) FROM leases WHERE ended IS NULL AND state = 'queued' "
      "AND created < {1}",
      query_.from, query_.to, query_.now);
  return each(database_, sql, [&](Statement& row) {
    const std::int64_t account = row.integer();
    row_of(account, 0).waits.push_back(row.integer());
  });
}

Status ReportReader::read_pairs() {
  if (query_.by == By::device && !query_.whole) return {};
  const auto take = [&](Statement& row) {
    const std::int64_t waiter = row.integer(), holder = row.integer();
    const double ms = static_cast<double>(row.integer()) / 1000;
    pairs_[{name_of(waiter), name_of(holder)}] += ms;
    if (query_.by != By::device) row_of(holder, 0).caused_ms += ms;
  };
  if (last_hour() > first_hour()) {
    auto done =
        each(database_,
             fmt::format("SELECT waiter, holder, sum(us) FROM pair_hours WHERE {} GROUP BY waiter, holder", in_hours()),
             take);
    if (!done) return done;
  }
  return each(
      database_,
      fmt::format("SELECT waiter, holder, sum(us) FROM pair_minutes WHERE {} GROUP BY waiter, holder", in_minutes()),
      take);
}

Status ReportReader::read_gaps() {
  const std::string sql =
      fmt::format("SELECT from_at, to_at, what, why FROM gaps WHERE to_at >= {} AND from_at < {} ORDER BY from_at",
                  query_.from, query_.to);
  auto done = each(database_, sql, [&](Statement& row) {
    Gap gap;
    gap.from = row.integer();
    gap.to = row.integer();
    gap.what = row.text();
    gap.why = row.text();
    if (gap.what == "leased") complete_since_ = std::max(complete_since_, std::min(gap.to, query_.to));
    gaps_.push_back(std::move(gap));
  });
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

Result<Series> ReportReader::read_series() {
  Series series;
  series.step = *std::find_if(steps.begin(), steps.end() - 1,
                              [&](Ms step) { return (query_.to - query_.from) / step < most_points; });
  const bool by_hour = series.step >= hour;
  const Ms unit = by_hour ? hour : minute;
  series.from = query_.from - query_.from % series.step;
  const auto count = static_cast<std::size_t>((query_.to - series.from + series.step - 1) / series.step);
  for (std::size_t i = 0; i < count; ++i) {
    const Ms begin = series.from + static_cast<Ms>(i) * series.step;
    // The amounts are those of whole slots; the last slot ends now.
    series.covered.push_back(std::min(begin + series.step, std::min(query_.to, query_.now)) - begin);
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
