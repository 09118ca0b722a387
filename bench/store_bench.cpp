// SPDX-License-Identifier: Apache-2.0
// Speed of durable decisions: the store against plain writes and fdatasyncs of as many bytes. Both alternate in the
// same run, so that a slow or busy disk slows both.
// store_bench [DIRECTORY] [SECONDS PER ROW]
#include "base/clock.h"
#include "base/fd.h"
#include "store/sqlite_store.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <vector>

namespace {

using namespace sublet;

constexpr std::size_t log_bytes = 4 << 20;  // the raw file is overwritten in a circle, like the store's log

// Bytes that this process has given to write(2) so far.
std::uint64_t bytes_written() {
  std::ifstream io("/proc/self/io");
  std::string name;
  std::uint64_t value = 0;
  while (io >> name >> value) {
    if (name == "wchar:") return value;
  }
  return 0;
}

struct Latencies {
  std::vector<double> us;
  double at(double fraction) {
    if (us.empty()) return 0;
    const auto nth = us.begin() + static_cast<std::ptrdiff_t>(fraction * static_cast<double>(us.size() - 1));
    std::nth_element(us.begin(), nth, us.end());
    return *nth;
  }
};

class Durable {
 public:
  explicit Durable(const std::filesystem::path& path) : store_(path) {
    const auto loaded = store_.open({[this](std::uint64_t sequence) {
                                       const std::lock_guard lock(mutex_);
                                       committed_ = sequence;
                                       told_.notify_one();
                                     },
                                     [](const Error& error) {
                                       fmt::print(stderr, "store_bench: {}\n", error.detail);
                                       std::_Exit(1);
                                     }});
    if (!loaded) {
      fmt::print(stderr, "store_bench: {}\n", loaded.error().detail);
      std::exit(1);
    }
  }

  // A batch of `transitions` changed leases, each with its reason.
  std::uint64_t intend(int transitions) {
    store::Batch batch;
    batch.now = {monotonic_ns()};
    for (int i = 0; i < transitions; ++i) {
      core::Lease lease;
      lease.id.number = 1 + next_++ % 10'000;
      lease.generation = next_;
      lease.state = core::LeaseState::active;
      lease.user = lease.tenant = "bench";
      lease.consumer = "bench";
      lease.command = "python3 train.py --epochs 3";
      lease.vram = 6 * GiB;
      lease.token = "0123456789abcdef0123456789abcdef";
      lease.devices = {"GPU-8f1c2d3e-0000-1111-2222-333344445555"};
      lease.granted_at = batch.now;
      batch.reasons.push_back(
          {lease.id, batch.now, core::ReasonKind::granted,
           core::args("vram", 6 * GiB, "devices", std::vector<std::string>{"gpu0"}, "free", 18 * GiB)});
      batch.changed.push_back(std::move(lease));
    }
    return store_.intend(std::move(batch));
  }

  std::uint64_t wait_for(std::uint64_t sequence) {
    std::unique_lock lock(mutex_);
    told_.wait(lock, [&] { return committed_ >= sequence; });
    return committed_;
  }

 private:
  store::SqliteStore store_;
  std::mutex mutex_;
  std::condition_variable told_;
  std::uint64_t committed_ = 0;
  std::uint64_t next_ = 0;
};

class Raw {
 public:
  explicit Raw(const std::filesystem::path& path)
      : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)), data_(log_bytes, 'x') {
    if (!file_ || ::pwrite(file_.get(), data_.data(), log_bytes, 0) != static_cast<ssize_t>(log_bytes)) std::exit(1);
  }
  void commit(std::size_t bytes) {
    bytes = std::min(bytes, log_bytes);
    if (offset_ + bytes > log_bytes) offset_ = 0;
    if (::pwrite(file_.get(), data_.data(), bytes, static_cast<off_t>(offset_)) < 0) std::exit(1);
    if (::fdatasync(file_.get()) != 0) std::exit(1);
    offset_ += bytes;
  }

 private:
  Fd file_;
  std::vector<char> data_;
  std::size_t offset_ = 0;
};

struct Row {
  Latencies store, raw;
  double store_seconds = 0;
  std::uint64_t transitions = 0;
  std::uint64_t commits = 0;
  std::uint64_t bytes = 0;
};

template <typename Work>
double timed(Latencies& latencies, Work work) {
  const std::int64_t start = monotonic_ns();
  work();
  const double us = static_cast<double>(monotonic_ns() - start) / 1e3;
  latencies.us.push_back(us);
  return us / 1e6;
}

// Commits one after the other, `batch` transitions each, alternating with raw writes of as many bytes.
Row one_by_one(Durable& durable, Raw& raw, int batch, double seconds) {
  Row row;
  constexpr int turn = 20;
  const std::int64_t end = monotonic_ns() + static_cast<std::int64_t>(seconds * 1e9);
  while (monotonic_ns() < end) {
    const std::uint64_t before = bytes_written();
    for (int i = 0; i < turn; ++i) {
      row.store_seconds += timed(row.store, [&] { durable.wait_for(durable.intend(batch)); });
    }
    row.bytes += bytes_written() - before;
    row.commits += turn;
    row.transitions += static_cast<std::uint64_t>(turn) * static_cast<std::uint64_t>(batch);
    const std::size_t bytes = row.bytes / row.commits;
    for (int i = 0; i < turn; ++i) timed(row.raw, [&] { raw.commit(bytes); });
  }
  return row;
}

// 64 clients that each wait for a transition before the next request: the case for group commit.
Row clients(Durable& durable, double seconds) {
  Row row;
  std::deque<std::pair<std::uint64_t, std::int64_t>> waiting;  // sequence number, and the time of the request
  const std::int64_t start = monotonic_ns(), end = start + static_cast<std::int64_t>(seconds * 1e9);
  for (std::int64_t now = start; now < end; now = monotonic_ns()) {
    while (waiting.size() < 64) waiting.emplace_back(durable.intend(1), monotonic_ns());
    const std::uint64_t committed = durable.wait_for(waiting.front().first);
    now = monotonic_ns();
    while (!waiting.empty() && waiting.front().first <= committed) {
      row.store.us.push_back(static_cast<double>(now - waiting.front().second) / 1e3);
      waiting.pop_front();
      ++row.transitions;
    }
  }
  row.store_seconds = static_cast<double>(monotonic_ns() - start) / 1e9;
  if (!waiting.empty()) durable.wait_for(waiting.back().first);
  return row;
}

void print(std::string_view name, Row& row) {
  fmt::print("{:<12} {:>13.0f} {:>9.0f} {:>9.0f}", name, static_cast<double>(row.transitions) / row.store_seconds,
             row.store.at(0.5), row.store.at(0.99));
  if (row.raw.us.empty()) {
    fmt::print("\n");
    return;
  }
  fmt::print(" {:>10} {:>9.0f} {:>9.0f} {:>7.2f} {:>7.2f}\n", row.bytes / row.commits, row.raw.at(0.5),
             row.raw.at(0.99), row.store.at(0.5) / row.raw.at(0.5), row.store.at(0.99) / row.raw.at(0.99));
}

}  // namespace

int main(int argc, char** argv) {
  namespace fs = std::filesystem;
  std::string name = ((argc > 1 ? fs::path(argv[1]) : fs::temp_directory_path()) / "sublet-bench-XXXXXX").string();
  const double seconds = argc > 2 ? std::atof(argv[2]) : 3;
  if (::mkdtemp(name.data()) == nullptr || seconds <= 0) {
    fmt::print(stderr, "usage: store_bench [DIRECTORY] [SECONDS PER ROW]\n");
    return 2;
  }
  {
    Durable durable(fs::path(name) / "store.db");
    Raw raw(fs::path(name) / "raw");
    fmt::print("durable transitions in {}; raw = pwrite + fdatasync of the bytes that the store wrote per commit\n\n",
               name);
    fmt::print("{:<12} {:>13} {:>9} {:>9} {:>10} {:>9} {:>9} {:>7} {:>7}\n", "transitions", "transitions/s", "p50 us",
               "p99 us", "bytes", "raw p50", "raw p99", "x p50", "x p99");
    for (const int batch : {1, 8, 64}) {
      Row row = one_by_one(durable, raw, batch, seconds);
      print(std::to_string(batch), row);
    }
    Row row = clients(durable, seconds);
    print("64 clients", row);
  }
  std::error_code ignored;
  fs::remove_all(name, ignored);
  return 0;
}
