// SPDX-License-Identifier: Apache-2.0
#include "http/readings.h"

#include "base/clock.h"
#include "store/memory_store.h"

#include <gtest/gtest.h>

namespace sublet::http {
namespace {

using nlohmann::json;

// A card of 16 GiB, of which the test says how much is used.
class UsedCard : public machine::Probe {
 public:
  void start(Events events) override { events_ = std::move(events); }
  void stop() override {}
  void take_now() override {}
  void set_busy(bool) override {}
  const std::string& library() const override { return text_; }
  const std::string& driver_version() const override { return text_; }
  const std::string& problem() const override { return text_; }

  void read(Bytes used) {
    gpu::GpuSnapshot snapshot;
    snapshot.began_ns = snapshot.ended_ns = monotonic_ns();
    gpu::GpuDevice device;
    device.uuid = "GPU-1111";
    device.name = "card";
    device.total = 16 * GiB;
    device.used = used;
    snapshot.devices.push_back(device);
    events_.snapshot(snapshot, snapshot.began_ns);
  }

 private:
  Events events_;
  std::string text_;
};

class ReadingsTest : public testing::Test {
 protected:
  ReadingsTest() : engine_(io_, store_, machine(), {}) {
    EXPECT_TRUE(engine_.start());
    probe_->read(1 * GiB);
    readings_.look(engine_, {});
  }
  ~ReadingsTest() override { engine_.stop(); }

  engine::Machine machine() {
    engine::MachineOptions options;
    options.probe.helper = "/bin/false";
    options.actor.socket = "/nonexistent/sublet-actor.sock";
    engine::Machine machine = engine::real_machine(io_, options);
    auto probe = std::make_unique<UsedCard>();
    probe_ = probe.get();
    machine.probe = std::move(probe);
    return machine;
  }

  boost::asio::io_context io_;
  store::MemoryStore store_;
  UsedCard* probe_ = nullptr;
  engine::Engine engine_;
  Readings readings_;
};

TEST_F(ReadingsTest, OneLookAndOneTextServeAllReaders) {
  const auto first = readings_.version();
  const auto before = readings_.looked_at();
  probe_->read(2 * GiB);
  readings_.look(engine_, before);
  const auto after = readings_.looked_at();
  EXPECT_GT(after, before);
  readings_.look(engine_, before);  // of another reader, which looked at that time too
  EXPECT_EQ(readings_.looked_at(), after);
  const auto text = readings_.changes_after(first);
  EXPECT_EQ(readings_.changes_after(first), text) << "the same text, not another one like it";
  EXPECT_EQ(json::parse(*text)["devices"][0]["used_bytes"], (2 * GiB).count);
}

TEST_F(ReadingsTest, AReaderGetsWhatChangedSinceItsOwnVersion) {
  const auto first = readings_.version();
  EXPECT_EQ(*readings_.changes_after(first), "");
  readings_.look(engine_, readings_.looked_at());
  EXPECT_EQ(readings_.version(), first) << "the age of a reading is no figure";
  probe_->read(2 * GiB);
  readings_.look(engine_, readings_.looked_at());
  const auto second = readings_.version();
  probe_->read(3 * GiB);
  readings_.look(engine_, readings_.looked_at());
  for (const auto version : {first, second})
    EXPECT_EQ(json::parse(*readings_.changes_after(version))["devices"][0]["used_bytes"], (3 * GiB).count);
  EXPECT_EQ(*readings_.changes_after(readings_.version()), "");
}

}  // namespace
}  // namespace sublet::http
