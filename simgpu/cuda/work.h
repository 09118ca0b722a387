// SPDX-License-Identifier: Apache-2.0
// Order and execution of work: streams with a thread each (started when there is work, gone when idle), the
// legacy stream's implicit order, and waiting. All functions take the driver's lock, which they give up while
// they wait.
#pragma once

#include "driver.h"

namespace simgpu {

// What a handle means under a current context; `per_thread` says what 0 stands for.
CUresult find_stream(CUstream handle, Context& current, bool per_thread, std::shared_ptr<Stream>& stream);
std::shared_ptr<Stream> make_stream(Context& context, unsigned flags, int priority);

// Puts work at the end of the stream; a thread of the driver runs it.
void submit(const std::shared_ptr<Stream>& stream, const std::shared_ptr<Work>& work);
// The same, but the calling thread runs it when its turn comes, and returns its result.
CUresult run_in_order(Lock& lock, const std::shared_ptr<Stream>& stream, std::shared_ptr<Work> work);
std::shared_ptr<Work> make_work(std::function<CUresult()> run, std::vector<Touch> touches = {});

// Wait for what has been submitted so far. The context's sticky error, if there is one.
CUresult wait_for(Lock& lock, const std::shared_ptr<Stream>& stream, std::uint64_t sequence);
CUresult wait_for_context(Lock& lock, Context& context);
bool idle(Context& context);

// Whether unfinished work of any context will touch [base, base + size).
bool pending_touch(std::uint64_t base, std::uint64_t size);

// The fault sync-hang, met by synchronising calls before they look at anything. Not under the lock.
void meet_sync_hang(int device);
// Sleeps while the fault stays set, for `duration_ns` at most (0: as long as it stays set).
void hang(FaultKind kind, int device, std::uint64_t duration_ns);

std::uint64_t now_ns();
void sleep_until_ns(std::uint64_t when);
// Takes the next `ns` of a resource that all processes share (a word of the table), and says when they end.
std::uint64_t take_time(layout::Word& busy_until, std::uint64_t ns);

}  // namespace simgpu
