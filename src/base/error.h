// SPDX-License-Identifier: Apache-2.0
// Errors as values. Inside the program a failure is an Error in a Result; it becomes a problem document at the HTTP
// edge and a message with a hint at the CLI edge. Nothing here throws; a Result is used on one thread at a time.
#pragma once

#include <boost/system/result.hpp>

#include <string>
#include <string_view>

namespace sublet {

// The closed list of error codes of the API (api/openapi.yaml repeats it and a test compares the two), then those
// that never leave the program as such.
enum class Code {
  Memory,    // would have to wait for VRAM
  Priority,  // would have to wait behind something more urgent
  Quota,
  Share,
  Settling,  // would have to wait until bytes are measured gone
  External,  // a program without a lease holds the room
  HostMemory,
  TooLarge,  // no device could ever hold it
  Draining,
  GpuLost,
  PauseUnsafe,  // the lease cannot be paused
  CannotPreempt,
  ResumeBlocked,
  Unverified,  // what the GPU reports is unknown, stale or implausible
  Unkillable,
  InUse,
  Stale,  // an old generation, or a state that does not allow the call
  NotFound,
  Denied,
  BadRequest,
  Unavailable,  // the daemon cannot answer now (store, shutdown)
};

std::string_view to_string(Code code);
int http_status(Code code);  // the status this code is answered with

struct Error {
  Code code = Code::Unavailable;
  std::string detail;  // one sentence that names the object and the numbers
  std::string hint;    // what to do next; may be empty
};

template <typename T>
using Result = boost::system::result<T, Error>;
using Status = Result<void>;

// Needed by boost::system::result for .value() on an error: our own bug, so it ends the program loudly.
[[noreturn]] void throw_exception_from_error(const Error& error, const boost::source_location& where);

Error bad_request(std::string detail, std::string hint = {});
Error not_found(std::string detail, std::string hint = {});
Error denied(std::string detail, std::string hint = {});
Error unavailable(std::string detail, std::string hint = {});

// An Error from errno: "what: strerror".
Error from_errno(std::string_view what, int errnum);

}  // namespace sublet
