// SPDX-License-Identifier: Apache-2.0
#include "gpu/snapshot.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <random>

namespace sublet::gpu {
namespace {

GpuDevice card(int index, Bytes total, Bytes reserved, Bytes used) {
  GpuDevice device;
  device.uuid = fmt::format("GPU-{:08x}", index);
  device.name = "Card";
  device.index = index;
  device.pci_bus_id = "00000000:3B:00.0";
  device.total = total;
  device.driver_reserved = reserved;
  device.used = used;
  return device;
}

GpuProcess process(std::int32_t pid, std::int64_t used, std::uint64_t start = 1) {
  GpuProcess entry;
  entry.process = {pid, start};
  if (used >= 0) entry.used = Bytes{used};
  return entry;
}

GpuSnapshot rich_snapshot() {
  GpuSnapshot snapshot;
  snapshot.began_ns = 10;
  snapshot.ended_ns = 20;
  snapshot.driver_version = "580.159.04";
  snapshot.library = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1";
  GpuDevice device = card(0, 24 * GiB, 614 * MiB, 3 * GiB);
  device.name = "NVIDIA \"H\\200\" \xc3\xa4";
  device.processes = {process(4711, 1 << 20, 987654321012345ULL), process(4712, -1), process(4713, 0, 0)};
  device.processes[2].hidden = true;
  device.processes[1].graphics_only = true;
  device.busy_percent = 100;
  device.processes[0].busy_percent = 0;
  device.processes[0].computing_percent = 7;
  GpuDevice lost;
  lost.index = 1;
  lost.problem = "GPU is lost (15)";
  GpuDevice sliced = card(2, {}, {}, {});
  sliced.mig = true;
  sliced.simulated = true;
  snapshot.devices = {device, lost, sliced};
  return snapshot;
}

std::string line_of(const GpuSnapshot& snapshot) {
  std::string line = encode_snapshot(7, snapshot);
  EXPECT_EQ(line.find('\n'), line.size() - 1) << "one line";
  line.pop_back();
  return line;
}

TEST(Snapshot, GoesThroughText) {
  const GpuSnapshot snapshot = rich_snapshot();
  const auto reply = decode_snapshot(line_of(snapshot));
  ASSERT_TRUE(reply) << reply.error().detail;
  EXPECT_EQ(reply->id, 7u);
  EXPECT_EQ(reply->snapshot, snapshot);
  GpuSnapshot failed;
  failed.problem = "no usable NVML library";
  EXPECT_EQ(decode_snapshot(line_of(failed))->snapshot, failed);
  EXPECT_EQ(decode_snapshot(encode_snapshot(UINT64_MAX, failed))->id, UINT64_MAX);
}

TEST(Snapshot, PercentagesOutsideTheirRangeAreRefused) {
  for (const char* wrong : {"101", "-1", "1.5", "\"7\"", "null"}) {
    std::string line = line_of(rich_snapshot());
    const std::string told = "\"busy_percent\":100";
    const auto at = line.find(told);
    ASSERT_NE(at, std::string::npos);
    EXPECT_FALSE(decode_snapshot(line.replace(at, told.size(), std::string("\"busy_percent\":") + wrong))) << wrong;
  }
}

// No machine has more cards, and with slices the devices are smaller.
TEST(Snapshot, LargestOnesFitInALine) {
  constexpr int cards = 32;
  GpuSnapshot snapshot;
  for (int i = 0; i < cards; ++i) {
    GpuDevice device = card(i, Bytes{1LL << 62}, Bytes{1LL << 62}, Bytes{1LL << 62});
    device.name = std::string(200, 'n');
    device.problem = std::string(5000, 'p');
    for (std::size_t k = 0; k < max_processes; ++k) {
      device.processes.push_back(process(INT32_MAX - static_cast<int>(k), 1LL << 62, UINT64_MAX));
      device.processes.back().hidden = true;
      device.processes.back().busy_percent = 100;
    }
    snapshot.devices.push_back(std::move(device));
  }
  const std::string line = line_of(snapshot);
  EXPECT_LT(line.size(), max_line);
  EXPECT_TRUE(decode_snapshot(line));
}

TEST(Snapshot, TextsOfTheDriverCannotBreakTheLine) {
  GpuSnapshot snapshot = rich_snapshot();
  snapshot.devices[0].name = "bad\n\x01\xff\xfe name";
  snapshot.problem = std::string(999, 'x') + "\xc3\xa4\xc3\xa4";
  const auto reply = decode_snapshot(line_of(snapshot));
  ASSERT_TRUE(reply) << reply.error().detail;
  EXPECT_EQ(reply->snapshot.problem, std::string(999, 'x')) << "cut between characters";
}

TEST(Snapshot, RefusesWhatBreaksALimit) {
  using Json = nlohmann::json;
  const Json good = Json::parse(line_of(rich_snapshot()));
  ASSERT_TRUE(decode_snapshot(good.dump()));
  const auto device = [](Json& json) -> Json& { return json["devices"][0]; };
  const auto entry = [](Json& json) -> Json& { return json["devices"][0]["processes"][0]; };
  const std::vector<std::function<void(Json&)>> changes{
      [](Json& j) { j = Json::array(); },
      [](Json& j) { j = 7; },
      [](Json& j) { j.erase("id"); },
      [](Json& j) { j["v"] = 2; },
      [](Json& j) { j["id"] = -1; },
      [](Json& j) { j["id"] = "7"; },
      [](Json& j) { j["began_ns"] = -1; },
      [](Json& j) { j["began_ns"] = 21; },
      [](Json& j) { j["ended_ns"] = 1e3; },
      [](Json& j) { j["problem"] = nullptr; },
      [](Json& j) { j["problem"] = "a\nb"; },
      [](Json& j) { j["driver_version"] = std::string(1001, 'x'); },
      [](Json& j) { j["devices"] = Json::object(); },
      [](Json& j) { j["devices"] = nullptr; },
      [](Json& j) { j["devices"][1]["index"] = 0; },
      [](Json& j) { j["devices"][2]["uuid"] = j["devices"][0]["uuid"]; },
      [](Json& j) { j["devices"][1]["problem"] = ""; },  // without uuid and without a problem
      [](Json& j) {
        for (int i = 0; i < static_cast<int>(max_devices); ++i) {
          Json d = j["devices"][0];
          d["index"] = 100 + i;
          d["uuid"] = fmt::format("GPU-{}", i);
          j["devices"].push_back(d);
        }
      },
      [&](Json& j) { device(j)["uuid"] = "GPU 1"; },
      [&](Json& j) { device(j)["uuid"] = std::string(81, 'a'); },
      [&](Json& j) { device(j)["index"] = -1; },
      [&](Json& j) { device(j)["index"] = 1024; },
      [&](Json& j) { device(j)["pci_bus_id"] = "../../x"; },
      [&](Json& j) { device(j)["simulated"] = 1; },
      [&](Json& j) { device(j).erase("mig"); },
      [&](Json& j) { device(j)["total_bytes"] = -1; },
      [&](Json& j) { device(j)["total_bytes"] = (1LL << 62) + 1; },
      [&](Json& j) { device(j)["used_bytes"] = UINT64_MAX; },
      [&](Json& j) { device(j)["used_bytes"] = 1.5; },
      [&](Json& j) { device(j)["driver_reserved_bytes"] = nullptr; },
      [&](Json& j) { device(j)["processes"] = 3; },
      [&](Json& j) {
        for (int i = 0; i < 1100; ++i) device(j)["processes"].push_back(entry(j));
      },
      [&](Json& j) { entry(j) = nullptr; },
      [&](Json& j) { entry(j)["pid"] = 0; },
      [&](Json& j) { entry(j)["pid"] = -4; },
      [&](Json& j) { entry(j)["pid"] = 1LL << 31; },
      [&](Json& j) { entry(j)["start_ticks"] = -1; },
      [&](Json& j) { entry(j)["used_bytes"] = true; },
      [&](Json& j) { entry(j).erase("used_bytes"); },
      [&](Json& j) { entry(j)["hidden"] = "yes"; },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    Json changed = good;
    changes[i](changed);
    const auto reply = decode_snapshot(changed.dump());
    ASSERT_FALSE(reply) << "change " << i;
    EXPECT_EQ(reply.error().code, Code::BadRequest);
    EXPECT_LT(reply.error().detail.size(), 300u);
  }
}

TEST(Snapshot, RefusesWhatIsNoLine) {
  const std::string good = line_of(rich_snapshot());
  for (std::size_t cut = 0; cut < good.size(); cut += 7) EXPECT_FALSE(decode_snapshot(good.substr(0, cut))) << cut;
  EXPECT_FALSE(decode_snapshot(good + good));
  EXPECT_FALSE(decode_snapshot(std::string(max_line + 1, ' ')));
  EXPECT_FALSE(decode_snapshot(std::string(1 << 20, '[')));
  std::string deep = "{\"v\":";
  for (int i = 0; i < 100000; ++i) deep += "{\"a\":";
  EXPECT_FALSE(decode_snapshot(deep));
  EXPECT_FALSE(decode_snapshot(std::string(1000, '[') + std::string(1000, ']')));
  // Unknown members are ignored. A nested unknown member is refused, because it would cost memory for nothing.
  const std::string before = good.substr(0, good.size() - 1) + ",\"more\":";
  EXPECT_TRUE(decode_snapshot(before + "[[1]]}"));
  EXPECT_FALSE(decode_snapshot(before + std::string(10, '[') + std::string(10, ']') + "}"));
}

TEST(Snapshot, SurvivesRandomBytes) {
  std::mt19937 random(20261122);
  const std::string good = line_of(rich_snapshot());
  const std::string_view alphabet = "{}[],:\"0123456789-.eE+ntf\\u\0 x\xff\xc3";
  int accepted = 0;
  for (int round = 0; round < 8000; ++round) {
    std::string text = good;
    for (int i = static_cast<int>(random() % 6); i >= 0; --i) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0: text[at] = static_cast<char>(random()); break;
        case 1: text[at] = alphabet[random() % alphabet.size()]; break;
        case 2: text.erase(at, 1 + random() % 20); break;
        default: text.insert(at, text, random() % text.size(), random() % 40); break;
      }
      if (text.empty()) text = "x";
    }
    if (const auto reply = decode_snapshot(text)) {
      ++accepted;
      const auto again = decode_snapshot(encode_snapshot(reply->id, reply->snapshot));
      ASSERT_TRUE(again) << text;
      EXPECT_EQ(again->snapshot, reply->snapshot);
      judge(reply->snapshot);
    }
  }
  EXPECT_GT(accepted, 100) << "the changes must leave some lines readable, or the test tests little";
  for (int round = 0; round < 6000; ++round) {
    std::string text(random() % 200, '\0');
    for (char& c : text) c = random() % 2 == 0 ? alphabet[random() % alphabet.size()] : static_cast<char>(random());
    EXPECT_FALSE(decode_snapshot(text));
  }
}

TEST(SaysSimulated, ByItsNameAlone) {
  EXPECT_TRUE(says_simulated("Simulated GPU 24GiB"));
  EXPECT_TRUE(says_simulated("Blue (simulated)"));
  EXPECT_FALSE(says_simulated("NVIDIA H200"));
  EXPECT_FALSE(says_simulated(""));
}

// Judges a single device. Returns its problem, "" if there is none.
std::string verdict(const GpuDevice& device) {
  GpuSnapshot snapshot;
  snapshot.devices = {device};
  return judge(snapshot).devices[0].problem;
}

TEST(Judge, BelievesWhatCanBeTrue) {
  GpuDevice device = card(0, 24 * GiB, 614 * MiB, 3 * GiB);
  EXPECT_EQ(verdict(device), "");
  device.processes = {process(1, (2 * GiB).count), process(2, -1), process(3, 0)};
  EXPECT_EQ(verdict(device), "");
  device.used = device.total - device.driver_reserved;
  EXPECT_EQ(verdict(device), "") << "a full card with somebody on it";
  // The list and the memory are read at different moments, so the list may exceed the used bytes slightly.
  device.used = 1 * GiB;
  EXPECT_EQ(verdict(device), "");
}

TEST(Judge, RefusesMoreThanThereIsWithTheNumbers) {
  GpuDevice device = card(0, 24 * GiB, 1 * GiB, 24 * GiB);
  EXPECT_EQ(verdict(device),
            "the driver reports 24.0 GiB used and 1.0 GiB reserved of 24.0 GiB, which is more than the card has");
  device = card(0, 24 * GiB, 25 * GiB, 0 * GiB);
  EXPECT_NE(verdict(device), "");
  device = card(0, {}, {}, {});
  EXPECT_EQ(verdict(device), "the driver reports a card without memory");
  device = card(0, Bytes{1LL << 62}, Bytes{1LL << 62}, Bytes{1LL << 62});
  EXPECT_NE(verdict(device), "");
  device = card(0, 24 * GiB, {}, 1 * GiB);
  device.processes = {process(9, (25 * GiB).count)};
  EXPECT_EQ(verdict(device), "the driver reports 25.0 GiB used by pid 9 on a card of 24.0 GiB");
  device.processes = {process(9, (13 * GiB).count), process(10, (12 * GiB).count)};
  EXPECT_EQ(verdict(device), "the driver reports more than the card's 24.0 GiB used by 2 listed processes together");
  device = card(0, Bytes{1LL << 62}, {}, {});
  device.processes = {process(9, 1LL << 62), process(10, 1LL << 62)};
  EXPECT_NE(verdict(device), "");
}

TEST(Judge, NamesPidsThatAreTwiceOrNotHere) {
  GpuDevice device = card(0, 24 * GiB, {}, 3 * GiB);
  device.processes = {process(9, 1), process(10, 1), process(9, 1)};
  EXPECT_EQ(verdict(device), "the driver lists pid 9 twice among 3 processes");
  device.processes = {process(9, 1), process(10, 1, 0), process(11, 1, 0)};
  device.processes[2].hidden = true;
  GpuSnapshot snapshot;
  snapshot.devices = {device};
  const GpuDevice judged = judge(snapshot).devices[0];
  EXPECT_EQ(judged.problem,
            "1 of 3 listed processes (pid 10) do not exist here: the driver reports pids of another pid namespace");
  EXPECT_FALSE(judged.processes[0].foreign_pid);
  EXPECT_TRUE(judged.processes[1].foreign_pid);
  EXPECT_FALSE(judged.processes[2].foreign_pid) << "it exists, /proc hides it";
  for (int i = 0; i < 8; ++i) device.processes.push_back(process(20 + i, 1, 0));
  EXPECT_NE(verdict(device).find("(pids 10, 20, 21, 22, 23, …)"), std::string::npos) << verdict(device);
}

TEST(Judge, MigAndEarlierProblemsStay) {
  GpuDevice device = card(0, {}, {}, {});
  device.mig = true;
  device.total = {};
  EXPECT_EQ(verdict(device), "") << "it has no numbers that could be wrong";
  device.problem = "GPU is lost";
  EXPECT_EQ(verdict(device), "GPU is lost");
}

}  // namespace
}  // namespace sublet::gpu
