// SPDX-License-Identifier: Apache-2.0
#include "enforcer/ladder.h"

namespace sublet::enforcer {
namespace {

Move of_seen(const Verdict& verdict, const Circumstances& is) {
  if (is.linked || verdict.sightings < sightings_needed || is.policy == Policy::observe) return Move::none;
  if (!verdict.noticed) return Move::notice;
  if (is.policy != Policy::enforce || is.quiet || !is.listed || is.another) return Move::none;
  return is.budget ? Move::look : Move::alarm;
}

}  // namespace

Move next_move(const Verdict& verdict, const Circumstances& is) {
  const bool may_end = is.policy == Policy::enforce && !is.quiet;
  switch (verdict.stage) {
    case Stage::seen: return of_seen(verdict, is);
    case Stage::condemned:
      if (is.policy != Policy::enforce || is.linked) return Move::spare;
      if (!may_end || !is.listed || !is.stored) return Move::none;
      return is.budget ? Move::term : Move::alarm;
    case Stage::terminating:
      if (is.policy != Policy::enforce || is.linked) return Move::spare;
      return may_end && (is.listed || is.gone) && is.now >= verdict.act_at ? Move::kill : Move::none;
    case Stage::killing: return is.now >= verdict.act_at ? Move::give_up : Move::none;
    case Stage::unkillable:
    case Stage::closed: return Move::none;
  }
  return Move::none;
}

}  // namespace sublet::enforcer
