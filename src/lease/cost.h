// SPDX-License-Identifier: Apache-2.0
// How long it takes a consumer to yield its VRAM, to be measured gone, and to come back: predicted from how long it
// took before. Plain values; the same samples in the same order give the same predictions, over a restart too.
#pragma once

#include "base/units.h"
#include "lease/lease.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace sublet::core {

// The timed moves. A pause lasts from the order to the answer that the memory is free. Settling lasts from that answer
// until two readings show it. A resume lasts from the order to restore until the program runs.
enum class Move { pause, settle, resume };

std::string_view to_string(Move move);
std::optional<Move> parse_move(std::string_view text);

struct MoveSample {
  Bytes bytes;  // bytes that were moved
  Duration took{};
  bool operator==(const MoveSample&) const = default;
};

// A measured move as it is stored. A restart learns the moves again in the order of `at`.
struct LearnedMove {
  Consumer consumer;  // without a name: the consumer is unknown
  PauseMethod method = PauseMethod::driver;
  Move move = Move::pause;
  MoveSample sample;
  Time at;
  std::string device = {};  // uuid; "": on several devices
  bool operator==(const LearnedMove&) const = default;
};

// The results of a consumer's last pauses by one method.
inline constexpr std::size_t pauses_kept = 16;
struct MethodRecord {
  std::uint32_t outcomes = 0;  // a bit for each of the last `tries`, the newest lowest: 1 is verified
  int tries = 0;               // pauses_kept at most
  // The share of verified pauses, between 0 and 1; 1 without any attempt.
  double reliability() const;
  int failed() const;        // undone pauses among the last `tries`
  Duration penalty() const;  // added to the cost of a victim for the further failures that are expected
  bool operator==(const MethodRecord&) const = default;
};

// The record as it is stored. Without tries, the stored record is erased.
struct LearnedRecord {
  Consumer consumer;
  PauseMethod method = PauseMethod::driver;
  MethodRecord record;
  bool operator==(const LearnedRecord&) const = default;
};

struct Prediction {
  Duration likely{};        // median
  Duration at_most{};       // 95th percentile
  Duration longest{};       // a move that takes longer is a fault
  std::size_t samples = 0;  // samples of this consumer; 0: predicted from other consumers, or assumed
};

// The newest samples of one kind of move, and the line through them: took = fixed + bytes ÷ rate.
inline constexpr std::size_t moves_kept = 16;
class MoveCurve {
 public:
  struct Line {
    double fixed_s = 0;    // seconds
    double s_per_gib = 0;  // seconds for each GiB
    double spread = 0;     // standard deviation of the samples, relative to the line
    double at(Bytes bytes) const;
  };

  // `expected`: the line that holds without samples. Two samples in a row that are off the line by the factor `far`
  // erase the older samples: the link or the program has changed.
  void add(const MoveSample& sample, const Line& expected, double far);
  // The line through the samples, drawn to `expected` if they are few. It is a regularised least-squares fit of
  // relative errors, with newer samples counting more (Bishop, Pattern Recognition and Machine Learning, 2006,
  // equation 3.28).
  Line fit(const Line& expected) const;
  const std::vector<MoveSample>& samples() const { return samples_; }

 private:
  Line fit(const Line& expected, const Line* near) const;
  Line with_spread(Line line, const Line& expected) const;

  std::vector<MoveSample> samples_;  // newest last
  int off_ = 0;                      // the newest sample was far above (1) or far below (-1) the line
};

// There are three curves: of the consumer, of the device with all consumers, and of the machine with all devices. A
// curve with few samples is drawn to the next curve. A move over several devices teaches only consumer and machine,
// because nobody knows on which link the move waited.
//
// Const functions keep fits until something is learned, so that only one thread may use the model at a time.
class CostModel {
 public:
  void learn(const LearnedMove& learned);
  // The bytes that the link of the device carries each way in a second, from the driver; 0: not known. Before the first
  // move on the device, no move is expected to be faster than the link.
  void know_link(const std::string& device, Bytes per_second);
  // `devices`: of the lease; empty: not chosen yet. A consumer with few samples is expected to be as slow as the
  // slowest of the devices.
  Prediction predict(const Consumer& consumer, const std::vector<std::string>& devices, PauseMethod method, Move move,
                     Bytes bytes) const;

  struct Key {
    Consumer consumer;   // without a name: all consumers
    std::string device;  // uuid; "" for the whole machine, and always "" for a named consumer
    PauseMethod method = PauseMethod::driver;
    Move move = Move::pause;
    auto operator<=>(const Key&) const = default;
  };
  struct Entry {
    MoveCurve curve;
    Time last_at;
  };
  // The knowledge about such moves, for any number of bytes.
  struct Known {
    MoveCurve::Line line;
    std::size_t samples = 0;  // samples of this consumer
    Prediction of(Bytes bytes, Move move) const;
  };
  const std::map<Key, Entry>& entries() const { return entries_; }
  MoveCurve::Line line(const Key& key) const;

 private:
  // A view of a Key, so that a lookup copies nothing.
  struct Asked {
    PauseMethod method;
    Move move;
    std::uint32_t uid;
    std::string_view name, device;
    auto operator<=>(const Asked&) const = default;
  };
  struct ByParts {
    using is_transparent = void;
    static Asked parts(const Key& key) {
      return {key.method, key.move, key.consumer.uid, key.consumer.name, key.device};
    }
    static const Asked& parts(const Asked& asked) { return asked; }
    bool operator()(const auto& a, const auto& b) const { return parts(a) < parts(b); }
  };

  MoveCurve::Line line(const Key& key, const MoveCurve::Line& expected) const;
  const Known& known(const Consumer& consumer, const std::string& device, PauseMethod method, Move move) const;
  MoveCurve::Line on_device(const std::string& device, PauseMethod method, Move move) const;
  std::map<Key, Entry> entries_;
  std::set<std::pair<Time, Key>> by_age_;  // the same by Entry::last_at, but those of the machine
  std::map<std::string, Bytes, std::less<>> links_;  // by device
  mutable std::map<Key, Known, ByParts> known_;      // by consumer and device; without a name: all consumers there
};

}  // namespace sublet::core
