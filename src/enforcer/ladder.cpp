// SPDX-License-Identifier: Apache-2.0
#include "enforcer/ladder.h"

namespace sublet::enforcer {
namespace {

Move of_seen(const Verdict& verdict, const Circumstances& is) {
  if (is.linked || verdict.sightings < sightings_needed) return Move::none;
  const bool ends = is.policy == Policy::enforce;
  if (!ends && is.policy != Policy::observe && !verdict.noticed) return Move::notice;
  if (is.quiet || !is.listed) return Move::none;
  if (ends && verdict.looked && verdict.spared.empty()) {
    if (!is.budget) return Move::alarm;
    if (is.evident && !is.another) return verdict.noticed ? Move::condemn : Move::notice;
  }
  // Under the other policies too, so that a preview knows what would be spared.
  return is.look_due && !(ends && is.another) ? Move::look : Move::none;
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
