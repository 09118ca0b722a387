// SPDX-License-Identifier: Apache-2.0
// The reason why a call failed. The kinds differ in what the caller should do next.
#pragma once

#include "base/error.h"

#include <boost/system/result.hpp>

#include <string>

namespace sublet::client {

enum class FailureKind {
  answered,   // the daemon answered with `error`; repeating the call changes nothing
  no_daemon,  // nothing listens on the socket
  lost,       // the connection broke before the answer; the call may have had its effect
  cancelled,  // the caller's Interrupt cancelled the call
};

struct Failure {
  FailureKind kind = FailureKind::lost;
  Error error;
  int http_status = 0;  // kind answered: the status
  std::string text;     // kind answered: the body

  // Whether a later try may succeed: no daemon, a broken connection, or a daemon that cannot answer now. A part of the
  // daemon that is switched off stays off.
  bool passing() const {
    return kind == FailureKind::no_daemon || kind == FailureKind::lost ||
           (kind == FailureKind::answered && http_status == 503 && !error.numbers.contains("switched_off"));
  }
};

template <typename T>
using Answer = boost::system::result<T, Failure>;

[[noreturn]] void throw_exception_from_error(const Failure& failure, const boost::source_location& where);

}  // namespace sublet::client
