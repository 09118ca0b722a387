// SPDX-License-Identifier: Apache-2.0
// Why a call has no good answer. The kinds differ in what the caller should do next.
#pragma once

#include "base/error.h"

#include <boost/system/result.hpp>

#include <string>

namespace sublet::client {

enum class FailureKind {
  answered,   // the daemon answered with an error: `error` is its own, asking again changes nothing
  no_daemon,  // nobody listens on the socket
  lost,       // the daemon was there and the answer did not come: it may or may not have been done
  cancelled,  // the caller's Interrupt asked for it
};

struct Failure {
  FailureKind kind = FailureKind::lost;
  Error error;
  int http_status = 0;  // kind answered
  std::string text;     // kind answered: the body as it came

  // Worth trying again later: no daemon, a broken connection, or a daemon that says it cannot answer now.
  bool passing() const {
    return kind == FailureKind::no_daemon || kind == FailureKind::lost ||
           (kind == FailureKind::answered && http_status == 503);
  }
};

template <typename T>
using Answer = boost::system::result<T, Failure>;

[[noreturn]] void throw_exception_from_error(const Failure& failure, const boost::source_location& where);

}  // namespace sublet::client
