// SPDX-License-Identifier: Apache-2.0
// How long it takes a consumer to yield its VRAM, to be measured gone, and to come back: predicted from how long it
// took before. Plain values; the same samples in the same order give the same predictions, over a restart too.
#pragma once

#include "base/units.h"
#include "core/lease.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace sublet::core {

// What is timed: from the order to the answer that it has yielded; from there until two measurements show it; from the
// order to restore until it runs.
enum class Move { pause, settle, resume };

std::string_view to_string(Move move);
std::optional<Move> parse_move(std::string_view text);

struct MoveSample {
  Bytes bytes;  // that were moved
  Duration took{};
  bool operator==(const MoveSample&) const = default;
};

// One that was measured, as it is stored: a restart learns them again in the order of `at`.
struct LearnedMove {
  Consumer consumer;  // without a name: nobody knows whose it was
  PauseMethod method = PauseMethod::driver;
  Move move = Move::pause;
  MoveSample sample;
  Time at;
  std::string device = {};  // uuid; "": it was on several
  bool operator==(const LearnedMove&) const = default;
};

// Which of a consumer's pauses by one method were verified.
inline constexpr std::size_t pauses_kept = 16;
struct MethodRecord {
  std::uint32_t outcomes = 0;  // of the last `tries`, the newest in the lowest bit: 1 is verified
  int tries = 0;               // pauses_kept at most
  // Between 0 and 1; 1 of one that was never tried.
  double reliability() const;
  bool operator==(const MethodRecord&) const = default;
};

// The same as it is stored. Without tries: it is forgotten.
struct LearnedRecord {
  Consumer consumer;
  PauseMethod method = PauseMethod::driver;
  MethodRecord record;
  bool operator==(const LearnedRecord&) const = default;
};

struct Prediction {
  Duration likely{};        // as often longer as shorter
  Duration at_most{};       // 95 of 100 take no longer
  Duration longest{};       // longer than that is a fault
  std::size_t samples = 0;  // of this very consumer; 0: as others did there, or assumed
};

// The newest samples of one kind of move, and the line through them: took = fixed + bytes ÷ rate.
inline constexpr std::size_t moves_kept = 16;
class MoveCurve {
 public:
  struct Line {
    double fixed_s = 0;    // seconds
    double s_per_gib = 0;  // seconds for each GiB
    double spread = 0;     // standard deviation of what was measured, relative to the line
    double at(Bytes bytes) const;
  };

  // `expected`: the line that holds where nothing is known yet. What two samples in a row contradict by far is
  // forgotten: the link, or the program, is another now. `far`: from that factor on.
  void add(const MoveSample& sample, const Line& expected, double far);
  // The line through the samples, drawn to `expected` where they say little: a regularised least-squares fit of
  // relative errors, the newer counting more (Bishop, Pattern Recognition and Machine Learning, 2006, eq. 3.28).
  Line fit(const Line& expected) const;
  const std::vector<MoveSample>& samples() const { return samples_; }

 private:
  Line fit(const Line& expected, const Line* near) const;
  Line with_spread(Line line, const Line& expected) const;

  std::vector<MoveSample> samples_;  // newest last
  int off_ = 0;                      // the newest was far above (1) or below (-1) what was expected of it
};

// Three curves, each drawn to the next where it has little to go by: of the consumer; of the device, all consumers
// together, for cards may sit on different links; of the machine, all devices together. A move over several devices
// teaches consumer and machine alone: nobody knows on which link it waited, or whether they were used side by side.
//
// What was fitted is kept until something is learned, in const functions too: one thread at a time.
class CostModel {
 public:
  void learn(const LearnedMove& learned);
  // What the device's link carries each way in a second, as the driver tells; 0: not known. Until something has moved
  // on it nothing is expected to move faster.
  void know_link(const std::string& device, Bytes per_second);
  // `devices`: of the lease. Where the consumer itself says little, all of it is expected to take as long as on the
  // slowest of them. None: they are not chosen yet.
  Prediction predict(const Consumer& consumer, const std::vector<std::string>& devices, PauseMethod method, Move move,
                     Bytes bytes) const;

  struct Key {
    Consumer consumer;   // without a name for all, …
    std::string device;  // … on this one; and "" for all of this machine together. Of a consumer always ""
    PauseMethod method = PauseMethod::driver;
    Move move = Move::pause;
    auto operator<=>(const Key&) const = default;
  };
  struct Entry {
    MoveCurve curve;
    Time last_at;
  };
  // What is known of such moves, for whatever bytes.
  struct Known {
    MoveCurve::Line line;
    std::size_t samples = 0;  // of this very consumer
    Prediction of(Bytes bytes, Move move) const;
  };
  const std::map<Key, Entry>& entries() const { return entries_; }
  MoveCurve::Line line(const Key& key) const;

 private:
  // A Key of which nothing is copied.
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
  std::map<std::string, Bytes, std::less<>> links_;  // by device
  mutable std::map<Key, Known, ByParts> known_;      // of a consumer on a device; without a name: of all there
};

}  // namespace sublet::core
