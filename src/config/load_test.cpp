// SPDX-License-Identifier: Apache-2.0
#include "config/schema.h"

#include "base/text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <set>

namespace sublet::config {
namespace {

using Kind = Problem::Kind;

std::vector<std::string> complaints(const std::string& text) {
  std::vector<std::string> lines;
  for (const Problem& problem : parse(text, "f").problems) lines.push_back(to_string(problem));
  return lines;
}
using Lines = std::vector<std::string>;

struct TempDir {
  TempDir() { path = ::mkdtemp(name); }
  ~TempDir() { std::filesystem::remove_all(path); }
  char name[32] = "/tmp/sublet-config-XXXXXX";
  std::filesystem::path path;
};

TEST(Config, TakesEveryKeyWithItsDefault) {
  std::string text;
  for (const Key& key : keys()) text += fmt::format("{} = {}\n", key.name, default_text(key));
  const Loaded loaded = parse(text, "f");
  EXPECT_TRUE(loaded.problems.empty()) << to_string(loaded.problems.front());
  EXPECT_EQ(loaded.lines.size(), keys().size());
  for (const Key& key : keys()) EXPECT_EQ(value_text(key, loaded.config), default_text(key)) << key.name;
}

TEST(Config, ValuesArriveWhereTheyBelong) {
  const Loaded loaded = parse(
      "[queue]\nclaim_window = \"1m30s\"\naging_per_minute = 2.5\n[device]\nheadroom = \"1GiB\"\n"
      "[limits]\nconnections = 7\n[store]\npath = \"/var/x.db\"\n",
      "f");
  ASSERT_TRUE(loaded.problems.empty()) << to_string(loaded.problems.front());
  EXPECT_EQ(loaded.config.queue.claim_window, std::chrono::seconds(90));
  EXPECT_EQ(loaded.config.queue.aging_per_minute, 2.5);
  EXPECT_EQ(loaded.config.device.headroom, GiB);
  EXPECT_EQ(loaded.config.limits.connections, 7);
  EXPECT_EQ(loaded.config.store.path, "/var/x.db");
  EXPECT_EQ(loaded.config.lease.grace, std::chrono::seconds(30));  // a default
  const std::map<std::string, unsigned> lines{{"queue.claim_window", 2},
                                              {"queue.aging_per_minute", 3},
                                              {"device.headroom", 5},
                                              {"limits.connections", 7},
                                              {"store.path", 9}};
  EXPECT_EQ(loaded.lines, lines);
}

TEST(Config, DottedKeysAndWholeNumbersForNumbers) {
  const Loaded loaded = parse("queue.aging_per_minute = 3\n", "f");
  ASSERT_TRUE(loaded.problems.empty()) << to_string(loaded.problems.front());
  EXPECT_EQ(loaded.config.queue.aging_per_minute, 3.0);
}

TEST(Config, ReportsEveryErrorInTheOrderOfTheFile) {
  EXPECT_EQ(complaints("[queue]\nclaim_windw = \"10s\"\n[gpu]\ntimeout = \"soon\"\n[device]\nheadroom = \"-1\"\n"),
            (Lines{"f:2:1: queue.claim_windw: unknown key – did you mean 'queue.claim_window'? (write claim_window "
                   "below [queue])",
                   "f:4:11: gpu.timeout: duration 'soon' is not a number (write a duration such as \"90s\", \"5m\", "
                   "\"1h30m\" or \"2d\")",
                   "f:6:12: device.headroom: size '-1' is negative (write a size such as \"8GiB\", \"512MiB\" or "
                   "\"8GB\")"}));
}

TEST(Config, TellsLaterKeysFromWrongOnes) {
  const Loaded loaded = parse("[fairshare]\nwindow = \"1d\"\nwindo = 1\n[pauze]\nx = 1\n", "f");
  ASSERT_EQ(loaded.problems.size(), 3u);
  EXPECT_EQ(loaded.problems[0].kind, Kind::not_supported);
  EXPECT_EQ(
      to_string(loaded.problems[0]),
      "f:2:1: fairshare.window: not supported by this version, which lacks this table: see tenants.window (remove the "
      "line)");
  EXPECT_EQ(loaded.problems[1].kind, Kind::unknown_key);
  EXPECT_EQ(to_string(loaded.problems[2]), "f:4:2: pauze: unknown table – did you mean 'pause'? (write [pause])");
}

TEST(Config, FindsTheTableThatAKeyBelongsTo) {
  EXPECT_EQ(complaints("claim_window = \"10s\"\n"),
            (Lines{"f:1:1: claim_window: unknown key – did you mean 'queue.claim_window'? (write claim_window below "
                   "[queue])"}));
  EXPECT_EQ(complaints("[lease]\nheadroom = \"1G\"\n"),
            (Lines{"f:2:1: lease.headroom: unknown key – did you mean 'device.headroom'? (write headroom below "
                   "[device])"}));
}

TEST(Config, RefusesWrongTypes) {
  EXPECT_EQ(complaints("[queue]\nclaim_window = 10\n"),
            (Lines{"f:2:16: queue.claim_window: 10 has no unit (write a duration with its unit: \"10s\")"}));
  EXPECT_EQ(complaints("[limits]\nconnections = \"many\"\n"),
            (Lines{"f:2:15: limits.connections: is text, not an integer (the default is 256)"}));
  EXPECT_EQ(complaints("[limits]\nconnections = 1.5\n"),
            (Lines{"f:2:15: limits.connections: is a number, not an integer (the default is 256)"}));
  EXPECT_EQ(complaints("queue = 1\n"),
            (Lines{"f:1:1: queue: is a table, not a value (write [queue], and its keys below it)"}));
  EXPECT_EQ(complaints("[[queue]]\nclaim_window = \"1s\"\n"),
            (Lines{"f:1:3: queue: is a single table, not a list of tables (write [queue], and its keys below it)"}));
  EXPECT_EQ(complaints("[gpu]\nnvml = \"lib.so\"\n"),
            (Lines{"f:2:8: gpu.nvml: 'lib.so' is not an absolute path (begin it with '/')"}));
}

TEST(Config, RefusesValuesOutOfRange) {
  EXPECT_EQ(complaints("[limits]\nconnections = 0\n"),
            (Lines{"f:2:15: limits.connections: 0 is not between 1 and 65536 (the default is 256)"}));
  EXPECT_EQ(complaints("[queue]\naging_per_minute = nan\n").size(), 1u);
  EXPECT_EQ(complaints("[queue]\naging_per_minute = -1\n").size(), 1u);
  EXPECT_EQ(complaints("[queue]\nclaim_window = \"0s\"\n").size(), 1u);
  EXPECT_EQ(complaints("[device]\nheadroom = \"8Q\"\n").size(), 1u);
  EXPECT_EQ(complaints("[device]\nheadroom = \"18446744073709551616\"\n").size(), 1u);
}

TEST(Config, NumbersThatNothingHoldsAreNotTakenForText) {
  for (const char* number : {"1e400", "-1e400", "99999999999999999999", "+9_999_999_999_999_999_999"}) {
    const auto said = complaints(fmt::format("[queue]\naging_per_minute = {} # points\n", number));
    ASSERT_EQ(said.size(), 1u) << number;
    EXPECT_TRUE(said[0].ends_with(
        fmt::format("{} is out of range for every key (all keys and ranges: man sublet.toml)", number)))
        << said[0];
  }
}

TEST(Config, WhatIsShownOfTextIsReadAsTheSameText) {
  const Key& key = *find("store.path");
  for (const char* nasty : {"/a\"b", "/a\\b", "/a\\\"'b\\", "/tab\tfeed\nreturn\r", "/\x1b[31m\x7f",
                            "/\u202eback\u0085", "/# no comment", "/\\u0041", "/größe ☃ 🂡", "/''\"\"\""}) {
    Config config;
    ASSERT_TRUE(set_value(key, nasty, config)) << nasty;
    const std::string shown = value_text(key, config);
    EXPECT_TRUE(is_printable(shown)) << shown;
    const Loaded loaded = parse(fmt::format("[store]\npath = {} # its origin\n", shown), "f");
    ASSERT_TRUE(loaded.problems.empty()) << to_string(loaded.problems.front());
    EXPECT_EQ(loaded.config.store.path, nasty);
  }
}

TEST(Config, RefusesValuesThatDoNotFitTogether) {
  EXPECT_EQ(
      complaints("[gpu]\ninterval_idle = \"20s\"\n"),
      (Lines{"f:2:1: gpu.interval_idle: gpu.max_age (15 s) must be more than gpu.interval_idle (20 s): otherwise every "
             "reading expires before the next one (set gpu.max_age to match)"}));
  EXPECT_EQ(complaints("[gpu]\ninterval_busy = \"6s\"\n").size(), 1u);
}

TEST(Config, SyntaxErrorsHaveAPlace) {
  const Loaded loaded = parse("[queue]\nclaim_window = \n", "f");
  ASSERT_EQ(loaded.problems.size(), 1u);
  EXPECT_EQ(loaded.problems[0].kind, Kind::syntax);
  EXPECT_EQ(loaded.problems[0].line, 2u);
  EXPECT_GT(loaded.problems[0].column, 1u);
  EXPECT_EQ(parse("a = 1\na = 2\n", "f").problems.size(), 1u);
  EXPECT_EQ(parse(std::string("\xff\xfe\0x", 4), "f").problems.size(), 1u);
}

// Messages do not repeat the parser's words, and they contain a line to write instead.
TEST(Config, SyntaxErrorsAreToldInPlainWords) {
  const auto one = [](const std::string& line) {
    const auto lines = complaints("[gpu]\n" + line + "\n");
    return lines.empty() ? std::string() : lines.front().substr(lines.front().find(": ") + 2);
  };
  EXPECT_EQ(one("timeout = 5s"),
            "'5s' is neither a number nor true or false, and text needs quotes (write timeout = \"5s\")");
  EXPECT_EQ(one("timeout = soon  # or later"),
            "'soon' is neither a number nor true or false, and text needs quotes (write timeout = \"soon\")");
  EXPECT_EQ(one("nvml = /opt/lib.so"),
            "'/opt/lib.so' is neither a number nor true or false, and text needs quotes (write nvml = "
            "\"/opt/lib.so\")");
  EXPECT_EQ(one("max_age \"1s\""), "there is no '=' after max_age (write max_age = \"1s\")");
  EXPECT_EQ(one("max_age"), "there is no '=' after max_age (write max_age = \"10s\")");
  EXPECT_EQ(one("max_age ="),
            "there is no value after the '=' (write a value, such as max_age = \"10s\", or remove the line)");
  EXPECT_EQ(one("max_age = \"1s"), "the quote of \"1s is not closed (write max_age = \"1s\")");
  EXPECT_EQ(one("max_age = \"1s\" 3"),
            "unexpected '3' after the value (write max_age = \"1s\"; a comment begins with '#')");
  EXPECT_EQ(one(R"(nvml = "/opt/\lib.so")"),
            R"('\l' is not a valid escape in quoted text (write nvml = '/opt/\lib.so': single quotes keep a )"
            "backslash as it is)");
  EXPECT_EQ(one(R"(nvml = "C:\u12"  # where it is)"),
            R"('\u12' is not a valid escape in quoted text (write nvml = 'C:\u12': single quotes keep a backslash )"
            "as it is)");
  EXPECT_EQ(one(R"(nvml = "it's \q \"x\"")"),
            R"('\q' is not a valid escape in quoted text (write two backslashes for one backslash))");
  EXPECT_EQ(one("nvml = \"/opt\x01\""),
            R"("/opt\x01" contains a character that text may not contain (remove the character))");
  EXPECT_EQ(one("max_age = \"\"\"1s\"\"\" 3"),
            "three quotes start text of several lines, which no key takes (write max_age = \"1s\")");
  EXPECT_EQ(one("max_age = '''1s"),
            "three quotes start text of several lines, which no key takes (write max_age = \"1s\")");
  EXPECT_EQ(one("max_age = \"\"\""),
            "three quotes start text of several lines, which no key takes (write max_age = \"10s\")");
  EXPECT_EQ(one("[queue"), "the name of the table is not closed (write [queue])");
  EXPECT_EQ(one("max_age = \"20s\"\nmax_age = \"21s\""), "this is defined twice (remove one of the two)");
}

TEST(Config, EveryErrorSaysWhatToDo) {
  for (const char* text :
       {"=", "]", "x = [1", "a = 1", "[api]\ntcp = 7", "[api]\ntcp = \"host:1\"", "[gpu]\ninterval_idle = \"20s\"",
        "[pause]\nautomatic = 1", "[queue]\naging_per_minute = 1e999", "[queue]\naging_per_minute = nan",
        "[qwertz]\nx = 1", "headrom = 1", "[pauze]\nx = 1", "[gpu]\nqwertz = 1", "[device]\nheadroom = \"1GiB \"",
        "[gpu]\ntimeout = 1979-05-27", "\x01", "[gpu]\ntimeout = '''"}) {
    const Loaded loaded = parse(text, "f");
    ASSERT_FALSE(loaded.problems.empty()) << text;
    for (const Problem& problem : loaded.problems) EXPECT_FALSE(problem.hint.empty()) << to_string(problem);
  }
  EXPECT_EQ(complaints("[api]\ntcp = 7\n"),
            (Lines{"f:2:7: api.tcp: is a number, not an address (the default is \"\")"}));
  EXPECT_EQ(complaints("[device]\nheadroom = \"1GiB \"\n").front().substr(0, 66),
            "f:2:12: device.headroom: size '1GiB ' begins or ends with a blank ");
}

TEST(Config, KeysOfOthersCannotWriteToTheTerminal) {
  for (const std::string& line : complaints("\"\\u001b[31m\" = 1\n[queue]\n\"a\\u0007\" = 1\n")) {
    EXPECT_EQ(line.find_first_of("\x1b\x07"), std::string::npos) << line;
  }
}

TEST(Config, AMissingFileIsAFileThatSetsNothing) {
  const TempDir dir;
  const Loaded loaded = load(dir.path / "sublet.toml");
  EXPECT_FALSE(loaded.file_exists);
  EXPECT_TRUE(loaded.problems.empty());
}

TEST(Config, WhatCannotBeReadIsAProblem) {
  const TempDir dir;
  EXPECT_EQ(load(dir.path).problems.at(0).kind, Kind::unreadable);  // a directory
  const auto link = dir.path / "link";
  std::filesystem::create_symlink(dir.path / "nowhere", link);
  EXPECT_EQ(load(link).problems.at(0).kind, Kind::unreadable);
  EXPECT_EQ(load("/dev/zero").problems.at(0).kind, Kind::unreadable);
  std::filesystem::path large = dir.path / "large";
  std::ofstream(large) << std::string((4 << 20) + 1, '#');
  EXPECT_EQ(load(large).problems.at(0).kind, Kind::unreadable);
  std::ofstream(dir.path / "good") << "[queue]\nclaim_window = \"2s\"\n";
  EXPECT_EQ(load(dir.path / "good").config.queue.claim_window, std::chrono::seconds(2));
}

TEST(Config, OneErrorForADaemonThatRefusesToStart) {
  const Loaded loaded = parse("a = 1\nb = 2\n", "f");
  EXPECT_EQ(to_error(loaded.problems).detail, to_string(loaded.problems[0]) + "; and 1 more");
  EXPECT_EQ(to_error(loaded.problems).hint, "list all problems: sublet config check --file f");
}

TEST(Schema, EveryRowHoldsTogether) {
  std::set<std::string_view> seen;
  std::string_view before;
  for (const Key& key : keys()) {
    EXPECT_TRUE(seen.insert(key.name).second) << key.name;
    EXPECT_LT(before, key.name) << "rows are in order";
    before = key.name;
    EXPECT_NE(key.name.find('.'), std::string_view::npos) << key.name;
    EXPECT_EQ(key.summary.back(), '.') << key.name;
    Config config;
    for (const std::string_view text : {key.minimum, key.maximum}) {
      if (type_name(key) == "true or false" || type_name(key) == "word" || type_name(key) == "text") continue;
      EXPECT_TRUE(set_value(key, text, config)) << key.name << " " << text;
    }
    std::string text = default_text(key);
    if (text[0] == '"') text = text.substr(1, text.size() - 2);
    EXPECT_TRUE(set_value(key, text, config)) << key.name;
    EXPECT_EQ(value_text(key, config), default_text(key));
  }
  for (const LaterKey& key : later_keys()) EXPECT_EQ(find(key.name), nullptr) << key.name;
}

TEST(Accounts, AreAListOfNames) {
  const Loaded good = parse("[api]\nagents = [\"slurm\", \"990\", \"@agents\"]\n", "f", schema());
  EXPECT_TRUE(good.problems.empty());
  EXPECT_EQ(good.config.api.agents.names, (std::vector<std::string>{"slurm", "990", "@agents"}));
  EXPECT_EQ(value_text(*find("api.agents"), good.config), "[\"slurm\", \"990\", \"@agents\"]");
  for (const char* bad : {"\"slurm\"", "[1]", "[\"\"]", "[\"a b\"]", "[\"@\"]", "[\"a\\nb\"]", "[[\"a\"]]", "3"})
    EXPECT_EQ(parse(std::string("[api]\nagents = ") + bad + "\n", "f", schema()).problems.size(), 1U) << bad;
}

TEST(Words, AreAListOfKnownWords) {
  const Loaded good = parse("[gpu]\ncordon_on = [\"xid\", \"ecc\"]\n", "f", schema());
  EXPECT_TRUE(good.problems.empty());
  EXPECT_EQ(good.config.gpu.cordon_on.words, (std::vector<std::string>{"xid", "ecc"}));
  EXPECT_TRUE(parse("[gpu]\ncordon_on = []\n", "f", schema()).config.gpu.cordon_on.words.empty());
  for (const char* bad : {"\"xid\"", "[1]", "[\"\"]", "[\"heat\"]", "[\"xid ecc\", \"heat\"]", "[[\"xid\"]]", "true"})
    EXPECT_EQ(parse(std::string("[gpu]\ncordon_on = ") + bad + "\n", "f", schema()).problems.size(), 1U) << bad;
}

TEST(Schema, TakesOnlyTheWordsOfAChoice) {
  Config config;
  EXPECT_TRUE(set_value(*find("guard.ceiling"), "lease", config));
  EXPECT_EQ(config.guard.ceiling.word, "lease");
  for (const char* wrong : {"leases", "", "none lease", " none"}) {
    const Status refused = set_value(*find("guard.ceiling"), wrong, config);
    ASSERT_FALSE(refused) << wrong;
    EXPECT_EQ(refused.error().hint, "the default is \"none\"");
  }
  EXPECT_EQ(config.guard.ceiling.word, "lease") << "a refused value changes nothing";
}

TEST(Schema, TakesAnyPrintableText) {
  Config config;
  for (const std::string& good : {std::string("a b=c"), std::string(256, 'x')}) {
    EXPECT_TRUE(set_value(*find("stacks.label"), good, config)) << good;
    EXPECT_EQ(config.stacks.label.text, good);
  }
  for (const std::string& wrong : {std::string(), std::string("a\nb"), std::string(257, 'x')})
    EXPECT_FALSE(set_value(*find("stacks.label"), wrong, config)) << wrong;
}

TEST(Schema, SpellsValuesAsTheFileHasThem) {
  Config config;
  const auto spelled = [&](const char* key, const char* text) {
    EXPECT_TRUE(set_value(*find(key), text, config)) << key;
    return value_text(*find(key), config);
  };
  EXPECT_EQ(spelled("gpu.timeout", "90s"), "\"90s\"");
  EXPECT_EQ(spelled("gpu.timeout", "2m"), "\"2m\"");
  EXPECT_EQ(spelled("gpu.timeout", "1500ms"), "\"1500ms\"");
  EXPECT_EQ(spelled("device.headroom", "0"), "\"0\"");
  EXPECT_EQ(spelled("device.headroom", "1.5GiB"), "\"1536MiB\"");
  EXPECT_EQ(spelled("queue.aging_per_minute", "2"), "2.0");
}

TEST(Parse, WhatBreaksTheParserIsAProblemAtItsLine) {
  const Loaded loaded = parse("[queue]\nclaim_window = \"10s\"\n[{uue\n", "sublet.toml");
  ASSERT_EQ(loaded.problems.size(), 1U);
  EXPECT_EQ(to_string(loaded.problems[0]), "sublet.toml:3:1: the name of the table is not closed (write [{uue])");
}

TEST(Parse, OnlyStringsAndCommentsHoldMoreThanAscii) {
  for (const char* line :
       {"x = 1.\"\u0449", "x = [\n-2.5.\"\u1680\"]", "x = 0.'a'", "\"\"\"a\n\u1680", "[\"\"\"a\n\u1680"}) {
    const Loaded number = parse(line, "sublet.toml");
    ASSERT_EQ(number.problems.size(), 1U) << line;
    EXPECT_NE(number.problems[0].text.find("is not allowed here"), std::string::npos) << number.problems[0].text;
  }
  EXPECT_TRUE(to_string(parse("queue.\"claim_windo\" = 1", "f").problems.at(0)).find("unknown key") !=
              std::string::npos);
  const Loaded stray = parse("[queue]\nclaim_wind\u00f6w = \"10s\"\n", "sublet.toml");
  ASSERT_EQ(stray.problems.size(), 1U);
  EXPECT_TRUE(to_string(stray.problems[0]).starts_with("sublet.toml:2:11: ")) << to_string(stray.problems[0]);
  const Loaded fine = parse("# gr\u00fc\u00dfe\n[gpu]\nnvml = \"/opt/\\\"\u00e9\"  # \u00e9\n", "sublet.toml");
  EXPECT_TRUE(fine.problems.empty()) << to_string(fine.problems[0]);
  EXPECT_EQ(fine.config.gpu.nvml, "/opt/\"\u00e9");
}

}  // namespace
}  // namespace sublet::config
