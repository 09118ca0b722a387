// SPDX-License-Identifier: Apache-2.0
// Errors as values. Inside the program a failure is an Error in a Result. The HTTP layer turns an Error into a problem
// document, and the CLI into a message with a hint. Nothing here throws. One thread at a time uses a Result.
#pragma once

#include <boost/system/result.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace sublet {

// The closed list of error codes of the API, then the codes that never leave the program as such. api/shared.yaml
// repeats the list, and a test compares the two.
enum class Code {
  Memory,    // the lease would have to wait for VRAM
  Priority,  // the lease would have to wait behind a more urgent lease
  Quota,
  Share,
  Settling,  // the lease would have to wait until measured bytes are gone
  External,  // an unleased process has the memory
  HostMemory,
  TooLarge,  // no device can ever hold the lease
  Draining,
  GpuLost,
  PauseUnsafe,  // the lease cannot be paused
  CannotPreempt,
  ResumeBlocked,
  Unverified,  // the GPU's readings are unknown, stale or implausible
  Unkillable,
  InUse,
  Stale,         // an old generation, or a state that does not allow the call
  LeaseExpired,  // the session has ended: idle, out of time, or on request
  Disconnected,  // the session has ended with its program, or its program was lost
  Overcommit,    // the session has ended because its program used too much memory
  NotFound,
  Denied,
  BadRequest,
  Unavailable,  // the daemon cannot answer now (store, shutdown)
};

std::string_view to_string(Code code);
int http_status(Code code);  // the HTTP status of an answer with this code

// The numbers of a refusal, for programs: name to value. A name ends with its unit (`_bytes`) or counts things
// (`live_leases`, `limit`). docs/api.md lists them.
using Numbers = std::map<std::string, std::int64_t>;

struct Error {
  Code code = Code::Unavailable;
  std::string detail;  // one sentence that names the object and the numbers
  std::string hint;    // what to do next; may be empty
  Numbers numbers{};   // those of the detail that a program may act on
};

template <typename T>
using Result = boost::system::result<T, Error>;
using Status = Result<void>;

// boost::system::result calls this for .value() on an error. Such a call is a bug of ours, so it ends the program.
[[noreturn]] void throw_exception_from_error(const Error& error, const boost::source_location& where);

Error bad_request(std::string detail, std::string hint = {});
Error not_found(std::string detail, std::string hint = {});
Error denied(std::string detail, std::string hint = {});
Error unavailable(std::string detail, std::string hint = {});

// Makes an Error from errno: "what: strerror".
Error from_errno(std::string_view what, int errnum);

}  // namespace sublet
