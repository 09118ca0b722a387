// SPDX-License-Identifier: Apache-2.0
#include "credit/counts.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <numeric>

namespace sublet::credit {
namespace {

constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
// No process grows by more from one reading to the next: a page that says so was scribbled on.
constexpr std::int64_t most_calls = 10'000'000'000, most_bytes = std::int64_t{1} << 50, most_ns = 100'000'000'000'000;

template <typename Word>
Word read(const Word& word) {
  return std::atomic_ref<Word>(const_cast<Word&>(word)).load(std::memory_order_relaxed);
}

std::int64_t amount(const std::uint64_t& word) {
  return static_cast<std::int64_t>(std::min(read(word), static_cast<std::uint64_t>(largest)));
}

std::int64_t sum(std::int64_t a, std::int64_t b) { return a > largest - b ? largest : a + b; }

}  // namespace

void Counts::add_errors(std::uint32_t code, std::int64_t number) {
  if (number <= 0) return;
  const bool is_code = code > 0 && code <= largest_code;
  if (!is_code || (!errors.contains(code) && errors.size() >= most_codes)) other_errors = sum(other_errors, number);
  else errors[code] = sum(errors[code], number);
}

void Counts::add(const Counts& more) {
  launches = sum(launches, more.launches);
  copied = sum(copied, more.copied);
  allocated = sum(allocated, more.allocated);
  other_errors = sum(other_errors, more.other_errors);
  for (const auto& [code, number] : more.errors) add_errors(code, number);
  for (std::size_t i = 0; i < busy.size(); ++i) {
    busy[i] = sum(busy[i], more.busy[i]);
    waited[i] = sum(waited[i], more.waited[i]);
  }
}

std::int64_t Counts::all_errors() const {
  std::int64_t all = other_errors;
  for (const auto& [code, number] : errors) all = sum(all, number);
  return all;
}
std::int64_t Counts::all_busy() const { return std::accumulate(busy.begin(), busy.end(), std::int64_t{0}, sum); }
std::int64_t Counts::all_waited() const { return std::accumulate(waited.begin(), waited.end(), std::int64_t{0}, sum); }

Counts Counts::since(const Counts& before) const {
  const auto growth = [](std::int64_t now, std::int64_t then, std::int64_t most) {
    return now > then ? std::min(now - then, most) : 0;
  };
  Counts grown{.launches = growth(launches, before.launches, most_calls),
               .copied = growth(copied, before.copied, most_bytes),
               .allocated = growth(allocated, before.allocated, most_bytes),
               .other_errors = growth(other_errors, before.other_errors, most_calls)};
  for (const auto& [code, number] : errors) {
    const auto then = before.errors.find(code);
    grown.add_errors(code, growth(number, then == before.errors.end() ? 0 : then->second, most_calls));
  }
  for (std::size_t i = 0; i < busy.size(); ++i) {
    grown.busy[i] = growth(busy[i], before.busy[i], most_ns);
    grown.waited[i] = growth(waited[i], before.waited[i], most_ns);
  }
  return grown;
}

Counts read_counts(const sublet_use_page& page) {
  Counts counts;
  if (read(page.size) != sizeof page) return counts;
  for (const sublet_use_shard& shard : page.shard)
    counts.add(
        {.launches = amount(shard.launches), .copied = amount(shard.copied), .allocated = amount(shard.allocated)});
  for (const sublet_use_error& error : page.error) counts.add_errors(read(error.code), amount(error.count));
  counts.other_errors = sum(counts.other_errors, amount(page.other_errors));
  for (std::size_t i = 0; i < counts.busy.size(); ++i) {
    counts.busy[i] = amount(page.device[i].busy);
    counts.waited[i] = amount(page.device[i].held);
  }
  return counts;
}

}  // namespace sublet::credit
