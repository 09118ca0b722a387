// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "store/store.h"

#include <utility>

namespace sublet::store {

// A Reader that answers every question with the error that made the store unusable.
class FailedReader final : public Reader {
 public:
  explicit FailedReader(Error error) : error_(std::move(error)) {}
  Result<std::optional<core::Lease>> lease(LeaseId) override { return error_; }
  Result<std::optional<core::Lease>> by_tag(std::string_view, std::optional<std::uint32_t>) override { return error_; }
  Result<std::vector<core::Lease>> ended(std::size_t, std::optional<std::uint32_t>,
                                         std::optional<EndedBefore>) override {
    return error_;
  }
  Result<std::vector<core::Reason>> reasons(LeaseId) override { return error_; }
  Result<std::optional<Remembered>> remembered(std::uint32_t, std::string_view) override { return error_; }
  Result<Time> forgotten() override { return error_; }
  Result<std::vector<LoggedEvent>> events(std::uint64_t, std::size_t) override { return error_; }

 private:
  Error error_;
};

}  // namespace sublet::store
