// SPDX-License-Identifier: Apache-2.0
// Compares the time that processes of a lease were charged on a device with what the card shows, from reading to
// reading. Values only; one thread at a time.
#pragma once

#include "base/units.h"

#include <cstdint>
#include <optional>

namespace sublet::share {

// A use above the share by more than this is told once it has lasted, if more than this was not charged.
inline constexpr double tolerance = 10;  // percent of the device
inline constexpr Duration lasting = std::chrono::seconds(5);
// The driver takes samples, up to one a second.
inline constexpr Duration window = std::chrono::seconds(1);
// Gain, in thousandths.
inline constexpr std::uint32_t usual_gain = 1000, least_gain = 250, most_gain = 4000;

// More than the share, for some time.
struct Excess {
  Time since;
  double percent = 0;  // of the device, when it was first told: the text of a warning stays the same
};

class Audit {
 public:
  // After `longest` without a reading nothing is concluded: a few intervals of an idle machine.
  explicit Audit(Duration longest) : longest_(longest) {}

  // A reading. `busy`: ns that the held processes were charged until now. `percent`, `of_held`: of the device's time,
  // as the card shows for all processes of the lease, and for the held ones; unset: it does not tell. Readings that are
  // not newer change nothing.
  void look(Time at, std::int64_t busy, std::optional<int> percent, std::optional<int> of_held, int share);

  // Thousandths by which processes multiply the time that they measured. Only windows of a busy lease count.
  std::uint32_t gain() const { return static_cast<std::uint32_t>(gain_); }
  // Whether the newest reading is too old for `used` and `excess` to be true now.
  bool is_stale(Time now) const { return !last_ || now - *last_ > longest_; }
  // When the newest reading was taken; the beginning of time: there is none.
  Time read_at() const { return last_.value_or(Time{}); }
  // Percent of the device in the last window: by the card, or as charged where the card does not tell.
  std::optional<double> used() const { return used_; }
  const std::optional<Excess>& excess() const { return excess_; }

 private:
  void begin_window(Time at, std::int64_t busy);
  void close_window(Time at, std::int64_t busy, int share);
  void judge(Time at, double charged_ns, int share);
  void follow(double charged, double shown);

  Duration longest_;
  std::optional<Time> last_{};  // the newest reading
  Time begun_{};                // of the window
  std::int64_t busy_then_ = 0;  // at its beginning
  double shown_ns_ = 0;         // by the card, since its beginning
  double held_ns_ = 0;          // the same of held processes
  bool is_shown_ = true;        // the card told its figure in each reading of the window
  double gain_ = usual_gain;
  std::optional<double> used_{};
  std::optional<Time> over_since_{};
  double over_ns_ = 0;    // by the card, since then
  double unpaid_ns_ = 0;  // the part of it that was not charged
  double paid_ns_ = 0;    // charged, and not shown by the card so far: a long kernel is charged at its beginning
  std::optional<Excess> excess_{};
};

}  // namespace sublet::share
