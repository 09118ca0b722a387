// SPDX-License-Identifier: Apache-2.0
#include "lease/cost.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>

namespace sublet::core {
namespace {

using Line = MoveCurve::Line;

constexpr double gib = 1024.0 * 1024.0 * 1024.0;
// A line is no longer true if two samples in a row are further from it than this factor.
constexpr double far_off = 1.75, far_off_settling = 2.5;
constexpr double recency = 0.92;  // what a sample counts for, relative to the next newer one
// How far the expected line is believed before there are samples, relative to its own figures, for lines that were
// measured with others and for lines that are merely assumed; and the spread that is expected, in so many samples'
// worth.
constexpr double noise = 0.1;
constexpr double trusted = 0.5;
// Seconds for each GiB: where none are expected, the first samples still tell whether there are.
constexpr double least_slope = 0.05;
constexpr double spread_expected = 0.15, spread_worth = 3;
// When a driver shows what is gone is not the work of a link: what takes 2.5 times as long is nothing special.
constexpr double settling_spreads = 0.4;
// From the spread to the limits: 95 of 100 below 1.9 of them (a little more than the 1.645 of a normal distribution
// whose spread is known), and nobody beyond 7, or 10 where the tail is heavy.
constexpr double to_p95 = 1.9, to_longest = 7.0, to_longest_settling = 10.0;
constexpr std::size_t entries_kept = 8192;
constexpr std::size_t known_kept = 8192;  // fits; they are made again when they are asked for

// Before anything was measured on this machine. Driver: about what was measured elsewhere, on an H200 (docs/gpu.md has
// the figures). The others: at the speed of a bus of the last generation, which nobody measured.
Line assumed(PauseMethod method, Move move) {
  if (move == Move::settle) return {0.1, 0, settling_spreads};
  if (method == PauseMethod::driver)
    return move == Move::pause ? Line{0.8, gib / 2e9, spread_expected} : Line{0.4, gib / 5e9, spread_expected};
  return {0.5, gib / 10e9, spread_expected};
}

Duration seconds(double s) { return Duration(std::llround(std::min(s, 1e6) * 1e9)); }

int side_of(double took, double expected, double far) {
  if (took > expected * far) return 1;
  return took * far < expected ? -1 : 0;
}

double took_s(const MoveSample& sample) { return static_cast<double>(sample.took.count()) / 1e9; }

struct Word {
  Move move;
  std::string_view text;
};
constexpr std::array words{Word{Move::pause, "pause"}, Word{Move::settle, "settle"}, Word{Move::resume, "resume"}};

}  // namespace

std::string_view to_string(Move move) {
  return std::find_if(words.begin(), words.end(), [move](const Word& word) { return word.move == move; })->text;
}

std::optional<Move> parse_move(std::string_view text) {
  for (const Word& word : words)
    if (word.text == text) return word.move;
  return std::nullopt;
}

double Line::at(Bytes bytes) const {
  return std::max(fixed_s + s_per_gib * static_cast<double>(bytes.count) / gib, 1e-3);
}

void MoveCurve::add(const MoveSample& sample, const Line& expected, double far) {
  const int off = samples_.empty() ? 0 : side_of(took_s(sample), fit(expected).at(sample.bytes), far);
  if (off != 0 && off == off_) samples_.erase(samples_.begin(), samples_.end() - 1);
  else if (samples_.size() == moves_kept) samples_.erase(samples_.begin());
  samples_.push_back(sample);
  off_ = off;
}

Line MoveCurve::fit(const Line& expected) const {
  // The error of a sample is relative to the line, which is not known yet. The first fit takes each sample relative to
  // itself, so that very long samples count little. The second fit nearly knows the line, and limits the error of
  // samples that lie far off.
  const Line near = fit(expected, nullptr);
  return with_spread(fit(expected, &near), expected);
}

Line MoveCurve::fit(const Line& expected, const Line* near) const {
  // Normal equations of: Σ weight·(took − fixed − slope·size)² + how far both are from what is expected of them.
  const double a0 = std::max(expected.fixed_s, 1e-3), b0 = std::max(expected.s_per_gib, least_slope);
  const double hold_a = std::pow(noise / (trusted * a0), 2), hold_b = std::pow(noise / (trusted * b0), 2);
  double aa = hold_a, ab = 0, bb = hold_b, ay = hold_a * expected.fixed_s, by = hold_b * expected.s_per_gib;
  double age = 1;
  for (auto sample = samples_.rbegin(); sample != samples_.rend(); ++sample, age *= recency) {
    const double size = static_cast<double>(sample->bytes.count) / gib;
    const double line = near == nullptr ? std::max(took_s(*sample), 1e-3) : near->at(sample->bytes);
    const double took = std::clamp(took_s(*sample), line / far_off, line * far_off);
    const double weight = age / (line * line);
    aa += weight, ab += weight * size, bb += weight * size * size;
    ay += weight * took, by += weight * size * took;
  }
  const double determinant = aa * bb - ab * ab;  // above zero: both are held to something
  Line line{(ay * bb - by * ab) / determinant, (by * aa - ay * ab) / determinant, 0};
  if (line.fixed_s < 0) line = {0, by / bb, 0};
  if (line.s_per_gib < 0) line = {ay / aa, 0, 0};
  return line;
}

Line MoveCurve::with_spread(Line line, const Line& expected) const {
  double squares = spread_worth * std::pow(expected.spread, 2), worth = spread_worth;
  double age = 1;
  for (auto sample = samples_.rbegin(); sample != samples_.rend(); ++sample, age *= recency) {
    squares += age * std::pow(took_s(*sample) / line.at(sample->bytes) - 1, 2);
    worth += age;
  }
  line.spread = std::sqrt(squares / worth);
  return line;
}

Line CostModel::line(const Key& key, const Line& expected) const {
  const auto entry = entries_.find(key);
  return entry == entries_.end() ? expected : entry->second.curve.fit(expected);
}

Line CostModel::line(const Key& key) const {
  const Line machine = line({{}, "", key.method, key.move}, assumed(key.method, key.move));
  return key.consumer.name.empty() && key.device.empty() ? machine : line(key, machine);
}

void CostModel::learn(const LearnedMove& learned) {
  known_.clear();
  const auto add = [&](const Consumer& consumer, const std::string& device, const Line& expected) {
    const Key key{consumer, device, learned.method, learned.move};
    Entry& entry = entries_[key];
    entry.curve.add(learned.sample, expected, learned.move == Move::settle ? far_off_settling : far_off);
    const Time before = std::exchange(entry.last_at, learned.at);
    if (consumer.name.empty() && device.empty()) return;  // what is known of the machine is kept
    by_age_.erase({before, key});
    by_age_.insert({learned.at, key});
  };
  const Line here = line({{}, learned.device, learned.method, learned.move});
  const Line machine = line({{}, "", learned.method, learned.move});
  if (!learned.consumer.name.empty()) add(learned.consumer, "", here);
  if (!learned.device.empty()) add({}, learned.device, machine);
  add({}, "", assumed(learned.method, learned.move));
  if (entries_.size() <= entries_kept || by_age_.empty()) return;
  entries_.erase(by_age_.begin()->second);
  by_age_.erase(by_age_.begin());
}

void CostModel::know_link(const std::string& device, Bytes per_second) {
  links_[device] = per_second;
  known_.clear();
}

MoveCurve::Line CostModel::on_device(const std::string& device, PauseMethod method, Move move) const {
  Line its = line({{}, device, method, move});
  const auto link = links_.find(device);
  const bool moved = entries_.contains({{}, device, method, move});
  if (moved || move == Move::settle || link == links_.end() || link->second <= Bytes{}) return its;
  its.s_per_gib = std::max(its.s_per_gib, gib / static_cast<double>(link->second.count));
  return its;
}

Prediction CostModel::Known::of(Bytes bytes, Move move) const {
  const double likely = line.at(bytes);
  const double spreads = move == Move::settle ? to_longest_settling : to_longest;
  return {seconds(likely), seconds(likely * (1 + to_p95 * line.spread)), seconds(likely * (1 + spreads * line.spread)),
          samples};
}

const CostModel::Known& CostModel::known(const Consumer& consumer, const std::string& device, PauseMethod method,
                                         Move move) const {
  const auto found = known_.find(Asked{method, move, consumer.uid, consumer.name, device});
  if (found != known_.end()) return found->second;
  Known its;
  if (consumer.name.empty()) {
    its.line = on_device(device, method, move);
  } else {
    its.line = known({}, device, method, move).line;
    if (const auto own = entries_.find({consumer, "", method, move}); own != entries_.end())
      its = {own->second.curve.fit(its.line), own->second.curve.samples().size()};
  }
  if (known_.size() >= known_kept) known_.clear();
  return known_.emplace(Key{consumer, device, method, move}, its).first->second;
}

Prediction CostModel::predict(const Consumer& consumer, const std::vector<std::string>& devices, PauseMethod method,
                              Move move, Bytes bytes) const {
  static const std::vector<std::string> anywhere{""};
  std::optional<Prediction> slowest;
  for (const std::string& device : devices.empty() ? anywhere : devices) {
    const Prediction its = known(consumer, device, method, move).of(bytes, move);
    if (!slowest || slowest->likely < its.likely) slowest = its;
  }
  return *slowest;
}

int MethodRecord::failed() const { return tries - std::popcount(outcomes & ((1U << tries) - 1)); }

double MethodRecord::reliability() const { return (1.0 + tries - failed()) / (1.0 + tries); }

// A consumer whose pauses succeeded every other time is expected to need one more attempt.
Duration MethodRecord::penalty() const {
  // The price of each attempt that comes to nothing; their number is expected from earlier pauses.
  constexpr Duration futile_try = std::chrono::seconds(10);
  const double more = 1 / reliability() - 1;
  return Duration(static_cast<std::int64_t>(more * static_cast<double>(futile_try.count())));
}

}  // namespace sublet::core
