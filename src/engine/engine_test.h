// SPDX-License-Identifier: Apache-2.0
// An engine without devices above a store in memory, for its tests.
#pragma once

#include "engine/engine.h"

#include "store/memory_store.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/use_awaitable.hpp>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace sublet::engine::test {

namespace asio = boost::asio;
using store::MemoryStore;

inline core::Submit wish(std::string tag = {}) {
  core::Submit submit;
  submit.lease.uid = 1000;
  submit.lease.user = submit.lease.tenant = "ana";
  submit.lease.consumer = "train";
  submit.lease.tag = std::move(tag);
  submit.lease.vram = GiB;
  submit.lease.owner.kind = core::OwnerKind::token;
  submit.lease.ttl = std::chrono::hours(1);
  return submit;
}

inline Answered answer(const core::Lease& lease) { return {202, nlohmann::json{{"id", to_string(lease.id)}}.dump()}; }

// An engine whose helper cannot be started, so that no device is known and every lease queues. The store commits when
// the test says so.
struct World {
  explicit World(store::Store& given, std::string boot_id = "boot", core::Rules rules = {},
                 const std::function<void(Machine&)>& change = {}, const std::function<void(Engine&)>& add = {}) {
    MachineOptions machine;
    machine.probe.helper = "/nonexistent/sublet-gpu";
    machine.actor.socket = "/nonexistent/sublet-actor.sock";
    Options options;
    options.rules = std::move(rules);
    options.exit_dir = "/nonexistent/exits";
    options.boot_id = std::move(boot_id);
    Machine real = real_machine(io, machine);
    if (change) change(real);
    engine.emplace(io, given, std::move(real), std::move(options));
    if (add) add(*engine);
    EXPECT_TRUE(engine->start());
    turn();
  }
  ~World() { engine->stop(); }

  // Runs all ready handlers, without waiting for time to pass.
  void turn() {
    io.restart();
    io.poll();
  }

  LeaseId submit(std::string tag = {}, const Remember& remember = {}) { return submit(wish(std::move(tag)), remember); }

  LeaseId submit(const core::Submit& wish, const Remember& remember = {}) {
    LeaseId id;
    const auto answered = engine->request(wish, remember, [&](const core::Lease& lease) {
      id = lease.id;
      return answer(lease);
    });
    EXPECT_TRUE(answered) << answered.error().detail;
    return id;
  }

  LeaseId submit_of_connection() {
    core::Submit submit = wish();
    submit.lease.owner.kind = core::OwnerKind::connection;
    submit.lease.ttl.reset();
    submit.held = true;
    return this->submit(submit);
  }

  // Returns the result of durable() for all that was intended; unset while it waits.
  std::shared_ptr<std::optional<bool>> when_durable() {
    auto told = std::make_shared<std::optional<bool>>();
    asio::co_spawn(
        io, [this, told]() -> asio::awaitable<void> { *told = co_await engine->commits().durable(engine->intended()); },
        asio::detached);
    turn();
    return told;
  }

  std::shared_ptr<bool> when_changed(LeaseId id) {
    auto woken = std::make_shared<bool>(false);
    asio::co_spawn(
        io,
        [this, id, woken]() -> asio::awaitable<void> {
          const auto watcher = engine->access().watch(id);
          const auto timer = watcher->second;
          timer->expires_at(std::chrono::steady_clock::time_point::max());
          co_await timer->async_wait(asio::as_tuple(asio::use_awaitable));
          engine->access().unwatch(watcher);
          *woken = true;
        },
        asio::detached);
    turn();
    return woken;
  }

  asio::io_context io{1};
  std::optional<Engine> engine;
};

}  // namespace sublet::engine::test
