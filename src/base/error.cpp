// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>

namespace sublet {

std::string_view to_string(Code code) {
  switch (code) {
    case Code::Memory: return "Memory";
    case Code::Priority: return "Priority";
    case Code::Quota: return "Quota";
    case Code::Share: return "Share";
    case Code::Settling: return "Settling";
    case Code::External: return "External";
    case Code::HostMemory: return "HostMemory";
    case Code::TooLarge: return "TooLarge";
    case Code::Draining: return "Draining";
    case Code::GpuLost: return "GpuLost";
    case Code::PauseUnsafe: return "PauseUnsafe";
    case Code::CannotPreempt: return "CannotPreempt";
    case Code::ResumeBlocked: return "ResumeBlocked";
    case Code::Unverified: return "Unverified";
    case Code::Unkillable: return "Unkillable";
    case Code::InUse: return "InUse";
    case Code::Stale: return "Stale";
    case Code::LeaseExpired: return "LeaseExpired";
    case Code::Disconnected: return "Disconnected";
    case Code::Overcommit: return "Overcommit";
    case Code::NotFound: return "NotFound";
    case Code::Denied: return "Denied";
    case Code::BadRequest: return "BadRequest";
    case Code::Unavailable: return "Unavailable";
  }
  return "Unavailable";
}

int http_status(Code code) {
  switch (code) {
    case Code::TooLarge: return 422;
    case Code::NotFound: return 404;
    case Code::Denied: return 403;
    case Code::BadRequest: return 400;
    case Code::Unavailable: return 503;
    default: return 409;
  }
}

void throw_exception_from_error(const Error& error, const boost::source_location& where) {
  fmt::print(stderr, "bug: unchecked error {}: {} ({}:{})\n", to_string(error.code), error.detail, where.file_name(),
             where.line());
  std::abort();
}

Error bad_request(std::string detail, std::string hint) {
  return {Code::BadRequest, std::move(detail), std::move(hint)};
}
Error not_found(std::string detail, std::string hint) { return {Code::NotFound, std::move(detail), std::move(hint)}; }
Error denied(std::string detail, std::string hint) { return {Code::Denied, std::move(detail), std::move(hint)}; }
Error unavailable(std::string detail, std::string hint) {
  return {Code::Unavailable, std::move(detail), std::move(hint)};
}

Error from_errno(std::string_view what, int errnum) {
  return {Code::Unavailable, fmt::format("{}: {}", what, std::generic_category().message(errnum)), {}};
}

}  // namespace sublet
