// SPDX-License-Identifier: Apache-2.0
// Order and execution of work: streams, the implicit order of the legacy stream, and waiting. Each stream has a thread,
// which starts with work and ends when idle. All functions take the driver's lock, and release it while they wait.
#pragma once

#include "driver.h"

namespace simgpu {

// Finds the stream of a handle under a current context; `per_thread` says which stream 0 means. A stream that is being
// captured refuses the call, and the capture is lost.
CUresult find_stream(CUstream handle, Context& current, bool per_thread, std::shared_ptr<Stream>& stream);
// The same for calls that a capture allows.
CUresult find_any_stream(CUstream handle, Context& current, bool per_thread, std::shared_ptr<Stream>& stream);
// A number for the calling thread, which no other thread has.
std::uint64_t thread_number();
std::shared_ptr<Stream> make_stream(Context& context, unsigned flags, int priority);

// Puts work at the end of the stream. A thread of the driver runs the work.
void submit(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Work>& work);
// Puts work at the end of the stream. The calling thread runs it in the stream's order and returns its result.
CUresult run_in_order(Lock& lock, const std::shared_ptr<Stream>& stream, std::shared_ptr<Work> work);
std::shared_ptr<Work> make_work(std::function<CUresult()> run, std::vector<Touch> touches = {});

// Wait for the work that has been submitted so far. Return the context's sticky error, if there is one.
CUresult wait_for(Lock& lock, const std::shared_ptr<Stream>& stream, std::uint64_t sequence);
CUresult wait_for_context(Lock& lock, Context& context);
bool idle(Context& context);

// Tells whether unfinished work of any context will touch [base, base + size).
bool pending_touch(std::uint64_t base, std::uint64_t size);

// Meets the fault sync-hang. Synchronising calls do this before anything else. Not under the lock.
void meet_sync_hang(int device);
// Sleeps while the fault stays set, for `duration_ns` at most (0: until the fault is cleared).
void hang(FaultKind kind, int device, std::uint64_t duration_ns);

std::uint64_t now_ns();
void sleep_until_ns(std::uint64_t when);
// Takes the next `ns` of a resource that all processes share (a word of the table), from now or from `ready` on, and
// returns when they end.
std::uint64_t take_time(layout::Word& busy_until, std::uint64_t ns);
std::uint64_t take_time(layout::Word& busy_until, std::uint64_t ns, std::uint64_t ready);

// The time on the card of the work that this thread runs. It begins with the time at which the card could start the
// work. Work that computes moves it on; all other work ends when its function returns. A thread that comes late
// therefore takes nothing from the card's time.
std::uint64_t& card_time();

}  // namespace simgpu
