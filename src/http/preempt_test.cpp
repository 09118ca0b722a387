// SPDX-License-Identifier: Apache-2.0
// The victims that each user may choose: one card full of ana's spot lease, and waiters of ana and ben.
#include "base/clock.h"
#include "http/routes.h"
#include "store/memory_store.h"

#include <gtest/gtest.h>

#include <unistd.h>

namespace sublet::http {
namespace {

using engine::Peer;
using engine::Role;

// A card of 4 GiB on which nothing runs, as often as it is asked for.
class FakeProbe : public machine::Probe {
 public:
  void start(Events events) override { events_ = std::move(events); }
  void stop() override {}
  void take_now() override {}
  void set_busy(bool) override {}
  const std::string& library() const override { return text_; }
  const std::string& driver_version() const override { return text_; }
  const std::string& problem() const override { return text_; }

  void read() {
    gpu::GpuSnapshot snapshot;
    snapshot.began_ns = snapshot.ended_ns = monotonic_ns();
    gpu::GpuDevice device;
    device.uuid = "GPU-1111";
    device.name = "card";
    device.total = 4 * GiB;
    snapshot.devices.push_back(device);
    events_.snapshot(snapshot, snapshot.began_ns);
  }

 private:
  Events events_;
  std::string text_;
};

Peer user(std::uint32_t uid, const char* name, Role role = Role::user) {
  return {.uid = uid, .pid = ::getpid(), .user = name, .role = role};
}
const Peer ana = user(54321, "ana"), ben = user(54322, "ben"), admin = user(0, "root", Role::admin);

class MakingRoom : public testing::Test {
 protected:
  // `automatic`: the waiter has the tier of the holder, so that the holder is not preempted without a request.
  explicit MakingRoom(bool automatic = false)
      : waiting_{{"vram_bytes", (2 * GiB).count}, {"ttl_seconds", 600}, {"tier", automatic ? "spot" : "batch"}},
        engine_(io_, store_, machine(), options(automatic)) {
    EXPECT_TRUE(engine_.start());
    probe_->read();
    json pinned{{"vram_bytes", (3 * GiB).count}, {"ttl_seconds", 600}, {"tier", "spot"}, {"pausable", "no"}};
    EXPECT_EQ(ask(ana, "/v1/leases", pinned), 201);
    EXPECT_EQ(ask(ben, "/v1/leases", waiting_), 202);
    bens_ = answer_["id"];
    EXPECT_EQ(ask(ana, "/v1/leases", waiting_), 202);
    anas_ = answer_["id"];
  }
  ~MakingRoom() override { engine_.stop(); }

  engine::Machine machine() {
    engine::MachineOptions options;
    options.probe.helper = "/bin/false";
    options.actor.socket = "/nonexistent/sublet-actor.sock";
    engine::Machine machine = engine::real_machine(io_, options);
    auto probe = std::make_unique<FakeProbe>();
    probe_ = probe.get();
    machine.probe = std::move(probe);
    return machine;
  }
  static engine::Options options(bool automatic) {
    engine::Options options;
    options.rules.automatic = automatic;
    options.mode = "system";
    return options;
  }

  // The status; the body is left in answer_.
  int ask(const Peer& peer, const char* path, const json& body) {
    Request request;
    request.method = Method::post;
    request.path = path;
    request.peer = peer;
    request.body = body;
    const Reply reply = dispatch(request, engine_);
    store_.pump();
    io_.restart();
    io_.poll();
    const Response& response = std::get<Response>(reply);
    answer_ = response.text.empty() ? response.body : json::parse(response.text);
    return response.status;
  }

  const json waiting_;
  boost::asio::io_context io_;
  store::MemoryStore store_;
  FakeProbe* probe_ = nullptr;
  engine::Engine engine_;
  json answer_;
  std::string anas_, bens_;
};

TEST_F(MakingRoom, AUserHasHisOwnYieldAndAnAdminAnybodys) {
  EXPECT_EQ(ask(ben, "/v1/preempt", {{"lease", bens_}, {"preview", true}}), 200);
  EXPECT_FALSE(answer_["found"]);
  EXPECT_EQ(answer_["ineligible"][0]["lease"], "lease-1");
  EXPECT_EQ(ask(ben, "/v1/preempt", {{"lease", bens_}}), 409);
  EXPECT_EQ(answer_["code"], "CannotPreempt");
  EXPECT_EQ(ask(ben, "/v1/preempt", {{"lease", anas_}, {"preview", true}}), 403);
  for (const auto& [peer, lease] : {std::pair(ana, anas_), std::pair(admin, bens_), std::pair(admin, anas_)}) {
    EXPECT_EQ(ask(peer, "/v1/preempt", {{"lease", lease}, {"preview", true}}), 200) << lease;
    EXPECT_TRUE(answer_["found"]) << answer_.dump();
    EXPECT_EQ(answer_["victims"][0]["lease"], "lease-1");
    EXPECT_EQ(answer_["victims"][0]["method"], "end");
    EXPECT_EQ(answer_["lease"]["state"], "queued");
  }
  EXPECT_EQ(engine_.find({1})->state, core::LeaseState::active) << "nothing was done";
  EXPECT_EQ(ask(admin, "/v1/preempt", {{"lease", bens_}}), 200) << answer_.dump();
  EXPECT_EQ(engine_.find({1})->end_reason, core::EndReason::revoked);
  EXPECT_NE(engine_.find(*parse_lease_id(bens_))->state, core::LeaseState::queued);
}

class MakingRoomByItself : public MakingRoom {
 protected:
  MakingRoomByItself() : MakingRoom(true) {}
};

TEST_F(MakingRoomByItself, ForSomethingOutsideToo) {
  const json two{{"vram_bytes", (2 * GiB).count}, {"preview", true}};
  EXPECT_EQ(ask(admin, "/v1/free", two), 200);
  EXPECT_TRUE(answer_["found"]);
  // A spot lease is below what is made free, so it yields to anybody's word; a standard one does not.
  EXPECT_EQ(ask(ben, "/v1/free", two), 200);
  EXPECT_TRUE(answer_["found"]);
  EXPECT_EQ(ask(ana, "/v1/free", {{"vram_bytes", GiB.count}, {"hold_seconds", 0}}), 400);
  EXPECT_EQ(ask(ana, "/v1/free", {{"vram_bytes", (9 * GiB).count}}), 422);
  EXPECT_EQ(engine_.find({1})->state, core::LeaseState::active);
}

}  // namespace
}  // namespace sublet::http
