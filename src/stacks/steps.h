// SPDX-License-Identifier: Apache-2.0
// The life of a stack: what follows a grant, the end of `up`, an observation, a release. Pure functions on a Stack,
// which change its phase only as the phase allows.
#pragma once

#include "stacks/readiness.h"
#include "stacks/stack.h"

namespace sublet::stacks {

// After `up` has ended, the engine may still report the containers of a moment before. A failure counts from then on.
inline constexpr Duration settle_time = std::chrono::seconds(1);
// A container that somebody restarts by hand is gone for a moment. It has this long to come back.
inline constexpr Duration return_time = std::chrono::seconds(10);

// Somebody has acquired it, and its lease waits.
void acquire(Stack& stack, Use use, Time now);
// Its lease is granted: `up` is next.
void granted(Stack& stack, Time now);
// `up` has ended well.
void created(Stack& stack, Duration ready_timeout, Time now);
// The engine shows these containers. `fresh`: they were listed after the end of `up`. `is_away`: its processes are
// parked, so that their memory does not come back with new ones. Returns whether the stack has changed.
bool observe(Stack& stack, const Readiness& seen, bool fresh, Time now, bool is_away = false);
// Time has passed. Returns whether the stack has changed; an acquired stack whose time to live is over is released.
bool pass_time(Stack& stack, Time now);
// When pass_time() or observe() is due next.
Time next_step(const Stack& stack, Time now);
// The fate of a stack that is given back. Nothing that is still being created stays up.
enum class After {
  up_if_ready,  // a stack that is not ready yet is brought down
  up,           // it stays up, ready or not
  down,
};
// The acquirer has given it back, or its time to live is over.
void release(Stack& stack, After after, std::string why, Time now);
// Somebody acquires the released stack. `usable`: it is ready at once. If not, it is starting until observe() sees it
// ready, and `why` is the reason.
void take_over(Stack& stack, Use use, bool usable, std::string why, Duration ready_timeout, Time now);
// The containers of an acquired stack are replaced: `up` is next again.
void restart(Stack& stack, Time now);
// Its use is over, and `down` is next. A stack of which nothing was started is down at once.
void stop(Stack& stack, std::string why, Time now);
// The same after a failure.
void fail(Stack& stack, std::string why, Time now);
// `down` has ended well.
void stopped(Stack& stack, Time now);
// The daemon did not run, or there was a clock gap: the time to live is at least this long.
void forgive(Stack& stack, Duration least, Time now);
// Its processes were paused, or there was a clock gap, for this time: it counts for no limit.
void stand_still(Stack& stack, Duration stood_still);

}  // namespace sublet::stacks
