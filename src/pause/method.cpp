// SPDX-License-Identifier: Apache-2.0
#include "pause/method.h"

#include <utility>

namespace sublet::pause {
namespace {

class DriverMethod final : public Method {
 public:
  explicit DriverMethod(Parker& parker) : parker_(parker) {}
  core::PauseMethod name() const override { return core::PauseMethod::driver; }
  void pause(const core::Lease& lease, const core::Park& order, Questions ask, Done done) override {
    parker_.park(lease.id, ask.program, order.give_up, std::move(ask.list), std::move(ask.touch), std::move(ask.weigh),
                 std::move(done));
  }
  void resume(const core::Lease& lease, const core::Unpark& order, const std::function<Needs()>& needs,
              Done done) override {
    Needs its = needs();
    parker_.unpark(lease.id, std::move(its.tree), std::move(its.room), order.give_up, std::move(done));
  }
  void forget(const core::Lease& lease) override { parker_.forget(lease.id); }

 private:
  Parker& parker_;
};

class CooperativeMethod final : public Method {
 public:
  explicit CooperativeMethod(Cooperation& cooperation) : cooperation_(cooperation) {}
  core::PauseMethod name() const override { return core::PauseMethod::cooperative; }
  void pause(const core::Lease& lease, const core::Park& order, Questions, Done done) override {
    cooperation_.yield(lease, core::text_of(lease.parking->cause), order.at_most, std::move(done));
  }
  void resume(const core::Lease& lease, const core::Unpark& order, const std::function<Needs()>&, Done done) override {
    if (!order.told) return done({.kind = ParkOutcome::Kind::done});
    cooperation_.resume(lease, order.at_most, std::move(done));
  }
  void forget(const core::Lease& lease) override { cooperation_.forget(lease); }

 private:
  Cooperation& cooperation_;
};

}  // namespace

std::vector<std::unique_ptr<Method>> all_methods(Parker& parker, Cooperation& cooperation) {
  std::vector<std::unique_ptr<Method>> all;
  all.push_back(std::make_unique<DriverMethod>(parker));
  all.push_back(std::make_unique<CooperativeMethod>(cooperation));
  return all;
}

}  // namespace sublet::pause
