// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "guard/guard.h"
#include "http/asking.h"
#include "sessions/sessions.h"

namespace sublet::http {

// The capability whose keeper asks for the lease of a start, if any does.
class Starter {
 public:
  Starter(const Call& call, const LeaseCall& asked)
      : uid_(call.request.peer.uid),
        asked_(asked),
        guard_(asked.program ? call.capabilities.guard : nullptr),
        sessions_(asked.session ? call.capabilities.sessions : nullptr) {}

  Status may_submit() const {
    if (guard_ != nullptr) return guard_->may_submit(uid_, *asked_.program);
    if (sessions_ != nullptr) return sessions_->may_submit(uid_, asked_.session->first, asked_.session->second);
    return {};
  }
  LeaseId predecessor() const {
    return guard_ != nullptr ? guard_->predecessor(uid_, asked_.program->tag) : asked_.submit.successor_of;
  }
  void submitted(const core::Lease& lease) const {
    if (guard_ != nullptr) guard_->submitted(uid_, asked_.program->tag, lease);
    if (sessions_ != nullptr) sessions_->submitted(asked_.session->first, lease);
  }
  void refused(const Error& error) const {
    if (error.code == Code::Unavailable) return;
    if (guard_ != nullptr) guard_->refused(uid_, asked_.program->tag, error);
    if (sessions_ != nullptr) sessions_->refused(asked_.session->first, error);
  }

 private:
  std::uint32_t uid_;
  const LeaseCall& asked_;
  guard::Guard* guard_;
  sessions::Sessions* sessions_;
};

}  // namespace sublet::http
