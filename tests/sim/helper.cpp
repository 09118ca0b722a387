// SPDX-License-Identifier: Apache-2.0
#include "helper.h"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <utility>

namespace sublet::sim {

namespace asio = boost::asio;

SimHelper::SimHelper(asio::io_context& io, std::shared_ptr<Life> life, std::shared_ptr<Orders> orders, LeaseId lease,
                     ProcessRef target, bool let_go)
    : life_(std::move(life)),
      orders_(std::move(orders)),
      lease_(lease),
      target_(target),
      let_go_(let_go),
      wake_(io, asio::steady_timer::time_point::max()) {}

SimHelper::~SimHelper() {
  life_->agenda.cancel(give_up_);
  if (helper_) life_->world.driver().leave_alone(*helper_);
}

asio::awaitable<SimHelper::Answer> SimHelper::ask(gpu::CheckpointCommand command, Duration timeout) {
  const auto self = shared_from_this();
  if (asked_) co_return Answer{.kind = Answer::Kind::stuck};
  if (dismissed_) co_return Answer{.kind = Answer::Kind::lost, .problem = "the helper was dismissed"};
  if (!helper_) {
    helper_ = std::make_shared<Helper>(Helper{.target = target_});
    orders_->starts(lease_, helper_);
  }
  last_call_ = command.call;
  reply_.reset();
  asked_ = true;
  orders_->asks(lease_, target_, command, timeout);
  life_->world.driver().ask(helper_, std::move(command), [weak = weak_from_this(), from = helper_](const auto& reply) {
    if (const auto its = weak.lock()) its->take(from, reply);
  });
  if (asked_) {
    give_up_ = later(life_, timeout, [this, weak = weak_from_this()] {
      const auto its = weak.lock();
      if (its) stuck_ = true, wake_.cancel();
    });
    co_await wake_.async_wait(asio::as_tuple(asio::use_awaitable));
  }
  if (reply_) co_return Answer{.kind = Answer::Kind::replied, .reply = *std::exchange(reply_, std::nullopt)};
  if (!asked_) co_return Answer{.kind = Answer::Kind::lost, .problem = "the helper has ended"};
  co_return Answer{.kind = Answer::Kind::stuck};
}

void SimHelper::take(const std::shared_ptr<Helper>& from, const std::optional<gpu::CheckpointReply>& reply) {
  if (from != helper_) return;
  if (!reply) return lose();
  failed_for_good_ |= reply->final;
  orders_->answered(lease_, target_, *reply);
  if (!stuck_) reply_ = reply;
  answered();
}

void SimHelper::answered() {
  asked_ = false;
  life_->agenda.cancel(std::exchange(give_up_, {}));
  if (!std::exchange(stuck_, false)) wake_.cancel();
  else if (const auto told = returned_) told();
}

void SimHelper::lose() {
  life_->world.driver().leave_alone(*std::exchange(helper_, nullptr));
  if (asked_) answered();
}

void SimHelper::rest() {
  if (let_go_ && helper_ && !asked_) lose();
}

void SimHelper::dismiss() {
  returned_ = nullptr;
  dismissed_ = true;
  if (helper_) lose();
}

}  // namespace sublet::sim
