// SPDX-License-Identifier: Apache-2.0
#include "cli/lease_flags.h"

#include "base/text.h"
#include "client/fake_server.h"

#include <gtest/gtest.h>

#include <set>

namespace sublet::cli {
namespace {

using nlohmann::json;
using test::FakeRequest;
using test::FakeServer;

struct SizeTest : ::testing::Test {
  test::ScratchDir dir;
  std::string path = dir.path() + "/s.sock";
  client::Client client{client::Endpoint{path}};
  json consumers{{"consumers",
                  {{{"consumer", "train"}, {"own", false}, {"peak_used_bytes", 1500}},
                   {{"consumer", "train"}, {"own", true}, {"peak_used_bytes", 1000}},
                   {{"consumer", "theirs"}, {"own", false}, {"peak_used_bytes", 100}},
                   {{"consumer", "big"}, {"own", true}, {"peak_used_bytes", 5000}}}}};
  json status{{"devices",
               {{{"id", "gpu0"}, {"index", 0}, {"uuid", "GPU-aaaa"}, {"state", "ok"}, {"capacity_bytes", 1000}},
                {{"id", "gpu1"}, {"index", 1}, {"uuid", "GPU-bbbb"}, {"state", "ok"}, {"capacity_bytes", 2000}}}}};
  LeaseFlags flags;

  Result<Size> choose(const std::string& consumer) {
    FakeServer server(path,
                      [&](const FakeRequest&) { return FakeServer::Out{FakeServer::json(200, consumers.dump())}; });
    auto size = choose_size(flags, {consumer}, status, client);
    client.close();
    return size;
  }
};

TEST_F(SizeTest, ADeviceGoesByIdIndexAndStartOfItsUuid) {
  const json& second = status["devices"][1];
  for (const char* name : {"", "any", "gpu1", "1", "GPU-bb"}) EXPECT_TRUE(device_matches(second, name)) << name;
  for (const char* name : {"gpu0", "0", "GPU-aa", "gpu"}) EXPECT_FALSE(device_matches(second, name)) << name;
}

TEST_F(SizeTest, IsWhatWasSaid) {
  flags.vram = Bytes{7};
  flags.memory = Bytes{9};
  EXPECT_EQ(choose("train")->bytes, Bytes{7});
  EXPECT_EQ(choose("train")->why, "");
  flags.vram.reset();
  EXPECT_EQ(choose("train")->bytes, Bytes{9});
  EXPECT_NE(choose("train")->why, "");
}

TEST_F(SizeTest, IsTheRememberedPeakAndATenth) {
  EXPECT_EQ(choose("train")->bytes, Bytes{1100});
  EXPECT_NE(choose("train")->why.find("train"), std::string::npos);
  EXPECT_EQ(choose("big")->bytes, Bytes{2000});  // never more than a device has
}

TEST_F(SizeTest, IsNotWhatAnotherUsersProgramsTook) { EXPECT_EQ(choose("theirs")->bytes, Bytes{2000}); }

TEST_F(SizeTest, IsElseAWholeDevice) {
  EXPECT_EQ(choose("new")->bytes, Bytes{2000});
  for (const char* name : {"gpu0", "0", "GPU-aaaa", "GPU-aa"}) {
    flags.gpu = name;
    EXPECT_EQ(choose("new")->bytes, Bytes{1000}) << name;
  }
  flags.gpu = "gpu7";
  EXPECT_EQ(choose("new").error().code, Code::NotFound);
  status["devices"] = json::array();
  EXPECT_EQ(choose("new").error().code, Code::Unavailable);
}

TEST_F(SizeTest, IsAWholeEmptyDeviceForTheWordAll) {
  flags.all = true;
  status["devices"][1]["other_lasting_bytes"] = 1900;
  EXPECT_EQ(choose("train")->bytes, Bytes{2000}) << "unleased memory is waited for, and no peak counts";
  EXPECT_EQ(choose("train")->why, "the whole of gpu1");
  flags.gpus = 2;
  EXPECT_EQ(choose("train")->bytes, Bytes{1000}) << "every device must have that much";
  flags.gpus = 1;
  flags.gpu = "gpu7";
  EXPECT_EQ(choose("train").error().code, Code::NotFound);
  status["devices"] = json::array();
  EXPECT_EQ(choose("train").error().code, Code::Unavailable);
}

TEST_F(SizeTest, LeavesOutWhatUnleasedProcessesHaveHeldForAMinute) {
  for (json& device : status["devices"]) device["capacity_bytes"] = device["capacity_bytes"].get<int>() * MiB.count;
  json& second = status["devices"][1];
  second["other_bytes"] = 1500 * MiB.count;
  second["other_lasting_bytes"] = 300 * MiB.count;
  EXPECT_EQ(choose("new")->bytes, 1700 * MiB) << "younger bytes are waited for";
  EXPECT_NE(choose("new")->why.find("the whole of gpu1 without the 300 MiB of unleased processes"), std::string::npos);
  flags.min_vram = 1800 * MiB;
  EXPECT_EQ(choose("new")->bytes, 2000 * MiB) << "no less than the least size";
  flags.min_vram.reset();
  second["other_lasting_bytes"] = 1200 * MiB.count;
  EXPECT_EQ(choose("new")->bytes, 1000 * MiB) << "the other device has more";
  flags.gpu = "gpu1";
  second["other_lasting_bytes"] = 2000 * MiB.count;
  EXPECT_EQ(choose("new")->bytes, 2000 * MiB) << "nothing is left: it waits";
}

TEST_F(SizeTest, GivesUpTheTenthButNotThePeakForUnleasedProcesses) {
  json& second = status["devices"][1];
  consumers["consumers"][1]["peak_used_bytes"] = MiB.count;
  second["capacity_bytes"] = 2 * MiB.count;
  second["other_lasting_bytes"] = MiB.count - KiB.count;
  EXPECT_EQ(choose("train")->bytes, MiB + KiB);
  second["other_lasting_bytes"] = MiB.count + KiB.count;
  EXPECT_EQ(choose("train")->bytes, MiB + Bytes{MiB.count / 10});
}

// Else the size of one script would be that of every other.
TEST_F(SizeTest, IsNotThatOfWhateverTheSameShellRanBefore) {
  consumers["consumers"].push_back({{"consumer", "bash"}, {"own", true}, {"peak_used_bytes", 100}});
  consumers["consumers"].push_back({{"consumer", "torchrun"}, {"own", true}, {"peak_used_bytes", 100}});
  for (const char* name : {"bash", "torchrun"}) {
    EXPECT_EQ(choose(name)->bytes, Bytes{2000}) << name;
    EXPECT_NE(choose(name)->why.find("--name"), std::string::npos) << name;
  }
  flags.name = "bash";
  EXPECT_EQ(choose("bash")->bytes, Bytes{110}) << "called so by its user";
}

TEST(ProgramName, IsTheProgramsOrTheScripts) {
  EXPECT_EQ(program_name({"/usr/bin/train"}), "train");
  EXPECT_EQ(program_name({"python3.11", "dir/train.py", "-x"}), "train.py");
  EXPECT_EQ(program_name({"python3", "-m", "pkg.train", "-x"}), "pkg.train");
  EXPECT_EQ(program_name({"python3", "-c", "import this"}), "python3");
  EXPECT_EQ(program_name({"bash", "-c", "train"}), "bash");
  EXPECT_EQ(program_name({"sharpen", "file"}), "sharpen") << "no shell";
  EXPECT_EQ(program_name({"env", "A=1", "B=", "python3", "train.py"}), "train.py");
  EXPECT_EQ(program_name({"env", "-i", "train"}), "env");
  EXPECT_EQ(program_name({"env", "A=1"}), "env");
  EXPECT_EQ(program_name({"x y"}), "x y");
  EXPECT_EQ(program_name({"/opt/训练"}), "训练");
  EXPECT_EQ(program_name({"/"}), "program");
}

TEST(ConsumerName, IsAnotherForEachProgram) {
  const std::string longest(64, 'x');
  const std::vector<std::string> programs{"x y",          "x_y",         "x\ny",     "x\ty",    "训练", "推理",
                                          longest + "ab", longest + "a", longest,    "bad\xff", "bad_", "bad\xfe",
                                          "ünïcode",      "unicode",     "a\u202eb", "a\u202db"};
  std::set<std::string> names;
  for (const std::string& program : programs) {
    const std::string name = consumer_of({program}).name;
    EXPECT_TRUE(is_label(name)) << name;
    EXPECT_TRUE(names.insert(name).second) << program << " shares the name " << name;
  }
}

TEST(ConsumerName, TellsFilesOfOneNameApart) {
  test::ScratchDir dir;
  const std::string a = dir.path() + "/a", b = dir.path() + "/b";
  for (const std::string& at : {a, b}) {
    std::filesystem::create_directory(at);
    std::ofstream(at + "/train.py") << "\n";
  }
  const auto of = [](std::vector<std::string> words) { return consumer_of(words); };
  EXPECT_TRUE(of({"python3", a + "/train.py"}).name.starts_with("train.py~")) << "it says what it is";
  EXPECT_TRUE(is_label(of({"python3", a + "/train.py"}).name));
  EXPECT_EQ(of({"python3", a + "/train.py"}).path, a + "/train.py");
  EXPECT_NE(of({"python3", a + "/train.py"}).name, of({"python3", b + "/train.py"}).name);
  EXPECT_EQ(of({"python3", a + "/train.py"}).name, of({"python3", b + "/../a/train.py", "-x"}).name);
  EXPECT_NE(of({a + "/serve"}).name, of({b + "/serve"}).name);
  // Names that are enough: a program in PATH, an installed module, an interpreter.
  EXPECT_EQ(of({"train"}).name, "train");
  EXPECT_EQ(of({"/bin/true"}).name, "true");
  EXPECT_EQ(of({"python3", "-m", "json.tool"}).name, "json.tool");
  EXPECT_EQ(of({a + "/python3", "-c", "import this"}).name, "python3");
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(a);
  const Consumer in_a = of({"python3", "-m", "train"});
  EXPECT_EQ(of({"python3", "train.py"}).name, of({"python3", a + "/train.py"}).name);
  std::filesystem::current_path(b);
  EXPECT_NE(in_a.name, of({"python3", "-m", "train"}).name);
  std::filesystem::current_path(before);
}

TEST(ConsumerName, StaysOverADeploymentBehindALink) {
  test::ScratchDir dir;
  const std::string link = dir.path() + "/current";
  const auto deploy = [&](const std::string& release) {
    std::filesystem::create_directory(dir.path() + "/" + release);
    std::ofstream(dir.path() + "/" + release + "/train.py") << "\n";
    std::filesystem::remove(link);
    std::filesystem::create_directory_symlink(release, link);
    return consumer_of({"python3", link + "/train.py"});
  };
  const Consumer before = deploy("0412");
  EXPECT_EQ(before.path, link + "/train.py");
  EXPECT_EQ(deploy("0413").name, before.name);
}

TEST(ConsumerName, TellsProgramsOfTwoEnvironmentsApart) {
  test::ScratchDir dir;
  const std::string earlier = std::getenv("PATH");
  const auto in = [&](const std::string& environment) {
    const std::string bin = dir.path() + "/" + environment;
    std::filesystem::create_directory(bin);
    for (const char* name : {"train", "torchrun"}) std::ofstream(bin + "/" + name) << "\n";
    ::setenv("PATH", (bin + ":" + earlier).c_str(), 1);
    EXPECT_EQ(consumer_of({"torchrun", "x"}).name, "torchrun") << "it runs anything";
    EXPECT_EQ(consumer_of({"train"}).name, consumer_of({bin + "/train"}).name);
    return consumer_of({"train"});
  };
  const Consumer a = in("a"), b = in("b");
  ::setenv("PATH", earlier.c_str(), 1);
  EXPECT_EQ(a.path, dir.path() + "/a/train");
  EXPECT_NE(a.name, b.name);
}

TEST(ConsumerName, IsThatOfTheScriptForEachInterpreter) {
  for (const char* interpreter : {"julia", "Rscript", "ipython", "ipython3", "pypy3", "php", "lua"})
    EXPECT_EQ(consumer_of({interpreter, "/srv/t"}).path, "/srv/t") << interpreter;
  for (const char* launcher : {"apptainer", "srun", "nsys", "docker"})
    EXPECT_FALSE(lease_body({}, consumer_of({launcher, "exec", "a"}).name, {5}).value("remember", true)) << launcher;
}

TEST_F(SizeTest, RestsOnAFileThatTheHintNames) {
  consumers["consumers"].push_back({{"consumer", "train.py~1a2b3c4d"}, {"own", true}, {"peak_used_bytes", 100}});
  FakeServer server(path, [&](const FakeRequest&) { return FakeServer::Out{FakeServer::json(200, consumers.dump())}; });
  const auto size = choose_size(flags, {"train.py~1a2b3c4d", "/srv/a/train.py"}, status, client);
  ASSERT_TRUE(size);
  EXPECT_EQ(size->bytes, Bytes{110});
  EXPECT_EQ(size->why, "'/srv/a/train.py' used at most 100 B so far, and a tenth more");
  client.close();
}

TEST(LeaseBody, HoldsWhatWasSaidAndNothingElse) {
  LeaseFlags flags;
  EXPECT_EQ(lease_body(flags, "c", {5}), (json{{"vram_bytes", 5}, {"consumer", "c"}}));
  flags.gpu = "any";
  flags.tier = "batch";
  flags.priority = -3;
  flags.ttl = std::chrono::seconds(1);
  EXPECT_EQ(lease_body(flags, "c", {5}),
            (json{{"vram_bytes", 5}, {"consumer", "c"}, {"tier", "batch"}, {"priority", -3}, {"ttl_seconds", 1}}));
  LeaseFlags idle;
  idle.idle_pause = std::chrono::minutes(10);
  idle.idle_end = Duration{};
  EXPECT_EQ(lease_body(idle, "c", {5})["idle"], (json{{"pause_seconds", 600}, {"end_seconds", 0}}));
}

}  // namespace
}  // namespace sublet::cli
