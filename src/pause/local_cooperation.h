// SPDX-License-Identifier: Apache-2.0
// The cooperative programs of this machine. They get their orders by polling over HTTP, by webhook, or by signals.
#pragma once

#include "machine/programs.h"
#include "pause/cooperation.h"

#include <boost/asio/io_context.hpp>

#include <memory>

namespace sublet::pause {

class LocalCooperation final : public Cooperation {
 public:
  // `answers`: the directory of the users' directories (user_directory.h), for answers of programs that get their
  // orders by signals. Keeps a reference to `programs`.
  LocalCooperation(boost::asio::io_context& io, machine::Programs& programs, std::string answers);
  ~LocalCooperation() override;
  LocalCooperation(const LocalCooperation&) = delete;
  LocalCooperation& operator=(const LocalCooperation&) = delete;

  void open(Events events) override;
  void number_from(std::uint64_t number) override;
  void yield(const core::Lease& lease, const std::string& reason, Duration at_most, Done done) override;
  void resume(const core::Lease& lease, Duration at_most, Done done) override;
  YieldOrder order(LeaseId lease) const override;
  Status answer(LeaseId lease, std::uint64_t number, YieldAnswer answer, const std::string& detail) override;
  std::string answer_file(const core::Lease& lease) const override;
  void adopt(const core::Lease& lease) override;
  void forget(const core::Lease& lease) override;
  void let_go(LeaseId lease) override;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace sublet::pause
