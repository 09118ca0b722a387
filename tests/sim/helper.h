// SPDX-License-Identifier: Apache-2.0
// The daemon's side of a simulated helper.
#pragma once

#include "orders.h"

#include "pause/checkpoint_helper.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <memory>
#include <optional>
#include <string>

namespace sublet::sim {

class SimHelper final : public pause::CheckpointHelper, public std::enable_shared_from_this<SimHelper> {
 public:
  // `let_go`: the helper ends when it rests, as if another process had started it.
  SimHelper(boost::asio::io_context& io, std::shared_ptr<Life> life, std::shared_ptr<Orders> orders, LeaseId lease,
            ProcessRef target, bool let_go);
  ~SimHelper() override;
  SimHelper(const SimHelper&) = delete;

  boost::asio::awaitable<Answer> ask(gpu::CheckpointCommand command, Duration timeout) override;
  void when_returned(std::function<void()> returned) override { returned_ = std::move(returned); }
  void rest() override;
  void dismiss() override;
  bool stuck() const override { return stuck_; }
  gpu::CheckpointCall last_call() const override { return last_call_; }
  bool failed_for_good() const override { return failed_for_good_; }

 private:
  void take(const std::shared_ptr<Helper>& from, const std::optional<gpu::CheckpointReply>& reply);
  void answered();
  void lose();

  std::shared_ptr<Life> life_;
  std::shared_ptr<Orders> orders_;
  LeaseId lease_;
  ProcessRef target_;
  bool let_go_;
  boost::asio::steady_timer wake_;
  Agenda::Id give_up_{};
  std::shared_ptr<Helper> helper_;  // null: not started
  gpu::CheckpointCall last_call_{};
  bool asked_ = false, stuck_ = false, failed_for_good_ = false, dismissed_ = false;
  std::optional<gpu::CheckpointReply> reply_;
  std::function<void()> returned_;
};

}  // namespace sublet::sim
