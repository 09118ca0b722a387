// SPDX-License-Identifier: Apache-2.0
#include "share/audit.h"

#include <algorithm>

namespace sublet::share {
namespace {

constexpr double busy_enough = 5;     // percent of a window; less says nothing about the gain
constexpr double busy_at_most = 400;  // more was charged before the window, and became known in it
constexpr double smoothing = 0.25;
constexpr Duration longest_wait = std::chrono::seconds(60);  // of a launch, as in interposer/share.c

double ns(Duration time) { return static_cast<double>(time.count()); }

}  // namespace

void Audit::look(Time at, std::int64_t busy, std::optional<int> percent, std::optional<int> of_held, int share) {
  if (last_ && at <= *last_) return;
  if (!last_ || at - *last_ > longest_ || busy < busy_then_) {
    used_.reset(), over_since_.reset(), excess_.reset(), paid_ns_ = 0;
    begin_window(at, busy);
  } else {
    shown_ns_ += ns(at - *last_) * percent.value_or(0) / 100;
    held_ns_ += ns(at - *last_) * of_held.value_or(0) / 100;
    is_shown_ = is_shown_ && percent.has_value();
    if (at - begun_ >= window) close_window(at, busy, share), begin_window(at, busy);
  }
  last_ = at;
}

void Audit::begin_window(Time at, std::int64_t busy) {
  begun_ = at;
  busy_then_ = busy;
  shown_ns_ = held_ns_ = 0;
  is_shown_ = true;
}

void Audit::close_window(Time at, std::int64_t busy, int share) {
  const double length = ns(at - begun_);
  const double charged = static_cast<double>(busy - busy_then_) * 100 / length, shown = shown_ns_ * 100 / length;
  const double of_held = held_ns_ * 100 / length;
  used_ = is_shown_ ? shown : charged;
  if (is_shown_) {
    judge(at, static_cast<double>(busy - busy_then_), share);
    if (charged >= busy_enough && charged <= busy_at_most && of_held >= busy_enough) follow(charged, of_held);
  } else {
    over_since_.reset(), excess_.reset();
  }
}

// A kernel of 8 s under a share of 30 % is charged at once, and the next one waits for 18 s. Nothing is over for long
// that was paid like that.
void Audit::judge(Time at, double charged_ns, int share) {
  const double longest_paid = ns(longest_wait) * share / 100;
  const double unpaid = std::max(shown_ns_ - charged_ns - paid_ns_, 0.0);
  paid_ns_ = std::clamp(paid_ns_ + charged_ns - shown_ns_, 0.0, longest_paid);
  if (*used_ <= share + tolerance) {
    over_since_.reset(), excess_.reset();
    return;
  }
  if (!over_since_) over_since_ = begun_, over_ns_ = unpaid_ns_ = 0;
  over_ns_ += shown_ns_;
  unpaid_ns_ += unpaid;
  const Duration over = at - *over_since_;
  if (excess_ || over < lasting || unpaid_ns_ * 100 <= tolerance * ns(over)) return;
  excess_ = Excess{*over_since_, over_ns_ * 100 / ns(over)};
}

// `charged` has the present gain in it.
void Audit::follow(double charged, double shown) {
  const double measured = charged * usual_gain / gain_;
  const double target = std::clamp(shown * usual_gain / measured, double{least_gain}, double{most_gain});
  gain_ += (target - gain_) * smoothing;
}

}  // namespace sublet::share
