// SPDX-License-Identifier: Apache-2.0
// The tree of verbs: what is refused and how, completion, and that the reference tells what the program does.
#include "cli/app.h"

#include "base/text.h"
#include "cli/complete.h"
#include "cli/fetch.h"
#include "cli/output.h"
#include "client/fake_server.h"
#include "config/schema.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace sublet::cli {
namespace {

struct Said {
  int code = 0;
  std::string out, err;
};

Said run(std::vector<const char*> words) {
  words.insert(words.begin(), "sublet");
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Said said;
  said.code = run_program(static_cast<int>(words.size()), words.data());
  said.out = testing::internal::GetCapturedStdout();
  said.err = testing::internal::GetCapturedStderr();
  return said;
}

TEST(App, UnknownVerbsAndFlags) {
  Said said = run({"staus"});
  EXPECT_EQ(said.code, kUsage);
  EXPECT_EQ(said.err, "sublet: there is no verb 'staus' – did you mean 'status'?\n  hint: see: sublet --help\n");
  EXPECT_EQ(said.out, "");
  said = run({"ps", "--al"});
  EXPECT_EQ(said.code, kUsage);
  EXPECT_EQ(said.err, "sublet: ps has no flag '--al' – did you mean '--all'?\n  hint: see: sublet ps --help\n");
  EXPECT_EQ(run({"ps", "--no-haeder=3"}).err,
            "sublet: ps has no flag '--no-haeder' – did you mean '--no-header'?\n  hint: see: sublet ps --help\n");
  EXPECT_EQ(run({"--watch", "status"}).err,
            "sublet: --watch must come after the verb\n  hint: sublet status --watch\n");
  EXPECT_EQ(run({"-o", "id", "ps"}).err, "sublet: -o must come after the verb\n  hint: sublet ps -o\n");
  EXPECT_EQ(run({"token", "--scope=read", "create"}).err,
            "sublet: --scope must come after the verb\n  hint: sublet token create --scope\n");
  EXPECT_EQ(run({"ps", "more"}).code, kUsage);
  EXPECT_EQ(run({"why"}).code, kUsage);
  EXPECT_EQ(run({"why", "a", "b"}).code, kUsage);
  EXPECT_EQ(run({}).code, kUsage);
  EXPECT_EQ(run({"ps", "-o"}).code, kUsage);
  EXPECT_EQ(run({"ps", "--color", "blue"}).err,
            "sublet: --color: 'blue' is not one of auto, always, never\n  hint: see: sublet ps --help\n");
  EXPECT_EQ(run({"config", "chek"}).err,
            "sublet: config has no verb 'chek' – did you mean 'check'?\n  hint: see: sublet config --help\n");
}

TEST(App, WhatUsersTypeCannotSteerTheTerminal) {
  for (const char* word : {"\x1b[31m", "--\x1b[31m", "\xc2\x9b"}) {
    const Said said = run({word});
    EXPECT_EQ(said.code, kUsage);
    EXPECT_EQ(said.err.find('\x1b'), std::string::npos);
    EXPECT_EQ(said.err.find("\xc2\x9b"), std::string::npos);
  }
}

TEST(App, LaterVerbsAndFlagsAreRefusedAndNotInHelp) {
  const std::string help = run({"--help"}).out;
  for (const std::string_view verb : verbs_not_yet()) {
    const Said said = run({std::string(verb).c_str()});
    EXPECT_EQ(said.code, kUsage) << verb;
    EXPECT_EQ(
        said.err,
        fmt::format("sublet: '{}' is not in this version\n  hint: sublet --help lists the verbs of this version\n",
                    verb));
    EXPECT_EQ(help.find(fmt::format("\n  {} ", verb)), std::string::npos) << verb;
  }
}

TEST(App, AFlagThatTakesOneValueIsGivenOnce) {
  EXPECT_EQ(run({"run", "--vram", "8G", "--vram", "9G", "--", "true"}).err,
            "sublet: --vram is given twice\n  hint: leave one of the two out\n");
  EXPECT_EQ(run({"run", "-m", "8G", "--vram", "9G", "--", "true"}).code, kUsage);
  EXPECT_EQ(run({"run", "--tag", "a", "--tag", "b", "--tag", "c", "--", "true"}).err,
            "sublet: --tag is given twice\n  hint: leave one of the two out\n");
  EXPECT_EQ(run({"ps", "--watch=1s", "--watch=2s"}).err,
            "sublet: --watch is given twice\n  hint: leave one of the two out\n");
  EXPECT_EQ(run({"config", "show", "--json", "--json", "--dir", "/nonexistent"}).code,
            kOk);  // said twice, it is the same
}

TEST(App, AConfigurationThatIsNamedMustBeThere) {
  for (const char* verb : {"check", "show"}) {
    const Said said = run({"config", verb, "/nonexistent.toml"});
    EXPECT_EQ(said.code, kBadConfig);
    EXPECT_EQ(said.out, "");
    EXPECT_NE(said.err.find("/nonexistent.toml: no such file"), std::string::npos) << said.err;
  }
}

TEST(App, HelpKnowsVerbsOfVerbs) {
  EXPECT_EQ(run({"help", "token", "create"}).out, run({"token", "create", "--help"}).out);
  EXPECT_EQ(run({"help"}).out, run({"--help"}).out);
  EXPECT_EQ(run({"help", "token", "creat"}).err,
            "sublet: token has no verb 'creat' – did you mean 'create'?\n  hint: see: sublet token --help\n");
  EXPECT_EQ(run({"help", "--json"}).err, "sublet: help has no flag '--json'\n  hint: see: sublet help --help\n");
  EXPECT_EQ(run({"help", "ps", "--json"}).code, kUsage);
  EXPECT_EQ(run({"--json", "help", "ps"}).code, kUsage);
}

TEST(Flags, AreWhatARefusalOfTheDaemonNames) {
  const Error told = in_flags(
      bad_request("consumer is \"a b\"; it must be short", "GET /v1/openapi.json describes each field"), "hold");
  EXPECT_EQ(told.detail, "--name is \"a b\"; it must be short");
  EXPECT_EQ(told.hint, "see: sublet hold --help");
  EXPECT_EQ(in_flags(bad_request("consumers are many", "be one"), "run").detail, "consumers are many");
  EXPECT_EQ(in_flags(not_found("tag is unknown", "look"), "run").detail, "tag is unknown");
}

TEST(App, HelpIsTheSameByVerbAndByFlag) {
  for (const Verb& verb : verbs()) {
    const std::string name(verb.name);
    const Said by_flag = run({name.c_str(), "--help"});
    EXPECT_EQ(by_flag.code, kOk);
    EXPECT_EQ(by_flag.out, run({"help", name.c_str()}).out) << name;
    EXPECT_NE(by_flag.out.find("Usage: sublet " + name), std::string::npos) << by_flag.out;
  }
  EXPECT_EQ(run({"help", "psx"}).code, kUsage);
  EXPECT_EQ(run({"--version"}).out, "sublet " SUBLET_VERSION "\n");
  EXPECT_EQ(run({"ps", "--version"}).out, "sublet " SUBLET_VERSION "\n");
}

void collect_help(const CLI::App& verb, std::vector<std::string>& into) {
  into.push_back(verb.help());
  for (const CLI::App* sub : verb.get_subcommands({})) collect_help(*sub, into);
}

TEST(App, HelpFitsAnyTerminal) {
  std::vector<std::string> pages;
  testing::internal::CaptureStdout();  // into a file: the terminal that this may run on could be wider
  collect_help(make_program()->app, pages);
  testing::internal::GetCapturedStdout();
  EXPECT_GT(pages.size(), verbs().size());
  for (const std::string& page : pages) {
    std::stringstream lines(page);
    std::string last;
    for (std::string line; std::getline(lines, line); last = line)
      EXPECT_LE(display_width(line), 80) << line << "\n" << page;
    EXPECT_TRUE(last.empty() || last.find(' ') != std::string::npos) << "a word that stands alone: " << page;
  }
}

TEST(App, NoDaemon) {
  for (const char* verb : {"ps", "queue", "gpus", "proclist", "status"}) {
    const Said said = run({verb, "--host", "/nonexistent/sublet.sock"});
    EXPECT_EQ(said.code, kNoDaemon) << verb;
    EXPECT_NE(said.err.find("/nonexistent/sublet.sock"), std::string::npos) << said.err;
    EXPECT_NE(said.err.find("hint:"), std::string::npos) << said.err;
    EXPECT_EQ(said.out, "");
  }
  EXPECT_EQ(run({"-H", "/nonexistent/sublet.sock", "ps"}).code, kNoDaemon);
  EXPECT_EQ(run({"ps", "--host", "tcp://x"}).code, kUsage);
}

TEST(App, ATimeIsSentAsItWasGiven) {
  const test::ScratchDir dir;
  const std::string socket = dir.path() + "/s.sock";
  test::FakeServer server(socket, [](const test::FakeRequest&) {
    return test::FakeServer::Out{test::FakeServer::json(503, R"({"code": "Unavailable", "detail": "no"})")};
  });
  EXPECT_NE(run({"report", "--since", "1500ms", "-H", socket.c_str()}).code, kOk);
  ASSERT_EQ(server.seen().size(), 1u);
  EXPECT_NE(server.seen()[0].line().find("since=1500ms"), std::string::npos) << server.seen()[0].line();
}

// The calls that these words make to a daemon that refuses all of them.
std::vector<std::string> calls_of(std::vector<const char*> words) {
  const test::ScratchDir dir;
  const std::string socket = dir.path() + "/s.sock";
  test::FakeServer server(socket, [](const test::FakeRequest&) {
    return test::FakeServer::Out{test::FakeServer::json(503, R"({"code": "Unavailable", "detail": "no"})")};
  });
  words.insert(words.end(), {"-H", socket.c_str()});
  const Said said = run(words);
  EXPECT_NE(said.code, kOk) << said.err;
  std::vector<std::string> calls;
  for (const test::FakeRequest& request : server.seen()) calls.push_back(request.line() + " " + request.body);
  return calls;
}

TEST(App, EachVerbTakesTheSameTimes) {
  const struct {
    std::vector<const char*> words;
    const char* sends;
  } cases[] = {
      {{"report", "--since", "2w"}, "since=1209600000ms"},
      {{"report", "--since", "2026-11-26T00:00Z", "--until", "2026-11-27T00:00:00+00:00"}, "since=86400000ms"},
      {{"logs", "--since", "2026-11-28T07:50:00+01:00", "x"}, "since=2026-11-28T06%3A50%3A00.000Z"},
      {{"logs", "--since", "yesterday", "x"}, "T"},
      {{"enforce", "--preview", "--since", "2026-11-28T08:00Z"}, "since=2026-11-28T08%3A00%3A00.000Z"},
      {{"events", "--since", "5m", "--no-follow"}, "/v1/events"},
      {{"approve", "user:root", "--until", "2199-01-01"}, "ttl_seconds"},
      {{"approve", "user:root", "--until", "2h"}, "\"ttl_seconds\":7200"},
  };
  for (const auto& [words, sends] : cases) {
    const auto calls = calls_of(words);
    ASSERT_FALSE(calls.empty()) << words[0];
    EXPECT_NE(calls[0].find(sends), std::string::npos) << calls[0];
  }
  for (const std::vector<const char*>& words : std::vector<std::vector<const char*>>{
           {"report", "--since", "monday"}, {"logs", "--since", "2026-11-31", "x"}, {"events", "--since", "soon"}}) {
    const Said said = run(words);
    EXPECT_EQ(said.code, kUsage);
    EXPECT_NE(said.err.find("write a day (2026-11-28)"), std::string::npos) << said.err;
  }
  EXPECT_EQ(run({"approve", "user:root", "--until", "yesterday"}).code, kUsage);
}

TEST(App, WordsOfOtherToolsPointToOurs) {
  const struct {
    std::vector<const char*> words;
    const char* hint;
  } cases[] = {
      {{"rm", "x"}, "sublet remove"},
      {{"delete", "x"}, "sublet remove"},
      {{"kill", "x"}, "sublet stop"},
      {{"cancel", "x"}, "sublet stop"},
      {{"list"}, "sublet ps"},
      {{"stack", "up", "x"}, "sublet stack acquire"},
      {{"stack", "down", "x"}, "sublet stack release --down"},
      {{"stack", "ps"}, "sublet stack status"},
      {{"session", "stop", "x"}, "sublet session close"},
      {{"session", "open", "--time", "1h"}, "--ttl"},
      {{"logs", "--tail=20", "x"}, "-n 20"},
      {{"run", "-d", "--", "true"}, "--detach"},
      {{"update", "x", "--gpus", "2"}, "--replace"},
  };
  for (const auto& [words, hint] : cases) {
    const Said said = run(words);
    EXPECT_EQ(said.code, kUsage);
    EXPECT_NE(said.err.find(hint), std::string::npos) << said.err;
    EXPECT_EQ(said.err.find("did you mean"), std::string::npos) << said.err;
  }
}

// The command prints the answer that granted the lease: a second request might fail.
TEST(App, JsonOfAGrantIsTheAnswerWithoutItsSecret) {
  const test::ScratchDir dir;
  const std::string socket = dir.path() + "/s.sock", file = dir.path() + "/token";
  test::FakeServer server(socket, [](const test::FakeRequest& request) {
    const std::string lease =
        R"({"id": "lease-7", "state": "active", "vram_bytes": 1024, "token": "s3cret", "preemption": {}})";
    if (request.line().starts_with("POST")) return test::FakeServer::Out{test::FakeServer::json(201, lease)};
    const bool status = request.line().starts_with("GET /v1/status ");
    return test::FakeServer::Out{test::FakeServer::json(status ? 200 : 503, "{}")};
  });
  const std::string told = "{\"id\":\"lease-7\",\"state\":\"active\",\"vram_bytes\":1024}\n";
  const std::vector<std::vector<const char*>> all{
      {"hold", "--json", "--vram", "1KiB", "--pid", "1", "-H", socket.c_str()},
      {"hold", "--json", "--vram", "1KiB", "--token-file", file.c_str(), "--ttl", "1m", "-H", socket.c_str()},
      {"free", "--json", "1KiB", "-H", socket.c_str()}};
  for (const auto& words : all) {
    const Said said = run(words);
    EXPECT_EQ(said.code, kOk) << said.err;
    EXPECT_EQ(said.out, told) << words[0];
  }
}

TEST(App, SizesAndDurationsThatAreNone) {
  CLI::App app;
  const Command command(app);
  std::optional<Bytes> size;
  std::optional<Duration> duration;
  command.size("-m,--vram", size, "");
  command.duration("--ttl", duration, "");
  for (const char* bad : {"-1", "0", "8Q", "18446744073709551616", "", "G", "nan", "1e9", "4", "1023"}) {
    EXPECT_THROW(app.parse(std::vector<std::string>{bad, "--vram"}), CLI::ValidationError) << bad;
  }
  for (const char* bad : {"-1", "5x", "", "1h30", "99999999d"}) {
    EXPECT_THROW(app.parse(std::vector<std::string>{bad, "--ttl"}), CLI::ValidationError) << bad;
  }
  app.parse(std::vector<std::string>{"1024", "-m"});
  EXPECT_EQ(size, KiB) << "a bare number is bytes";
  app.parse(std::vector<std::string>{"8B", "-m"});
  EXPECT_EQ(size, Bytes{8}) << "who says so means it";
  app.parse(std::vector<std::string>{"8G", "-m", "1m30s", "--ttl"});
  EXPECT_EQ(size, 8 * GiB);
  EXPECT_EQ(duration, std::chrono::seconds(90));
}

std::vector<std::string> completed(std::vector<std::string> words) {
  const auto program = make_program();
  const LookUp names = [](Offer::Of of) -> std::vector<Candidate> {
    switch (of) {
      case Offer::Of::leases: return {{"lease-7", "train"}, {"mine", "train"}};
      case Offer::Of::all_leases: return {{"lease-7", "train"}, {"mine", "train"}, {"lease-3", "train"}};
      case Offer::Of::devices: return {{"gpu0", ""}, {"GPU-aaaa", ""}};
      case Offer::Of::consumers: return {{"ollama", ""}};
      case Offer::Of::tokens: return {{"token-3", "ci"}};
      default: return {};
    }
  };
  std::vector<std::string> found;
  for (const Candidate& candidate : complete(program->app, std::move(words), names).candidates) {
    found.push_back(candidate.word);
  }
  return found;
}
using Words = std::vector<std::string>;

TEST(Completion, VerbsFlagsAndValues) {
  EXPECT_EQ(completed({"pro"}), (Words{"programs", "proclist"}));
  EXPECT_EQ(completed({"ps", "--no"}), Words{"--no-header"});
  EXPECT_EQ(completed({"ps", "--color", "a"}), (Words{"auto", "always"}));
  EXPECT_EQ(completed({"ps", "--color=n"}), Words{"--color=never"});
  EXPECT_EQ(completed({"ps", "--color", "=", "n"}), Words{"never"});  // as bash splits it
  EXPECT_EQ(completed({"ps", "-o", "id,na"}), Words{"id,name"});
  EXPECT_EQ(completed({"release", ""}), (Words{"lease-7", "mine"}));
  for (const char* verb : {"why", "wait", "events"})  // of those that have ended too
    EXPECT_EQ(completed({verb, "l"}), (Words{"lease-7", "lease-3"})) << verb;
  EXPECT_EQ(completed({"why", "lease-7", ""}), Words{});
  EXPECT_EQ(completed({"release", "m"}), Words{"mine"});
  EXPECT_EQ(completed({"run", "--tier", "s"}), (Words{"standard", "spot"}));
  EXPECT_EQ(completed({"config", "s"}), Words{"show"});
  EXPECT_EQ(completed({"completion", ""}), (Words{"bash", "zsh", "fish"}));
  EXPECT_EQ(completed({"ps", "--wat"}), Words{"--watch"});
  EXPECT_EQ(completed({"why", "--watch", "m"}), Words{"mine"});
  EXPECT_EQ(completed({}).empty(), false);
}

TEST(Completion, NamesThatOnlyTheDaemonKnowsAndClosedLists) {
  EXPECT_EQ(completed({"token", "revoke", ""}), Words{"token-3"});
  EXPECT_EQ(completed({"token", "create", "--scope", ""}), (Words{"read", "submit", "admin"}));
  EXPECT_EQ(completed({"run", "--gpu", "g"}), Words{"gpu0"});
  EXPECT_EQ(completed({"free", "--gpu", ""}), (Words{"any", "gpu0", "GPU-aaaa"}));
  EXPECT_EQ(completed({"run", "--name", ""}), Words{"ollama"});
  EXPECT_EQ(completed({"pause", "--grant", ""}), Words{"ollama"});
  EXPECT_EQ(completed({"pause", "--revoke=o"}), Words{"--revoke=ollama"});
  EXPECT_EQ(completed({"run", "--pausable", ""}), (Words{"auto", "cooperative", "driver", "no"}));
  EXPECT_EQ(completed({"report", "--by", "t"}), Words{"tenant"});
  EXPECT_EQ(completed({"events", "--type", "lease,d"}), (Words{"lease,device", "lease,daemon"}));
  EXPECT_EQ(completed({"cooperate", "--pause-signal", "U"}), (Words{"USR1", "USR2"}));
  EXPECT_EQ(completed({"help", "pre"}), Words{"preempt"});
}

TEST(App, WordsThatAreNoneSayWhichThereAre) {
  const auto said = [](std::vector<const char*> words) {
    const Said all = run(std::move(words));
    EXPECT_EQ(all.code, kUsage) << all.err;
    EXPECT_NE(all.err.find("\n  hint: "), std::string::npos) << all.err;
    return all.err.substr(0, all.err.find('\n'));
  };
  EXPECT_EQ(said({"report", "--by", "usr"}),
            "sublet: --by: 'usr' is not one of user, consumer, tenant, session, device – did you mean 'user'?");
  EXPECT_EQ(said({"run", "--priority", "2000", "--", "true"}),
            "sublet: --priority: 2000 is not between -1000 and 1000");
  EXPECT_EQ(said({"run", "--priority", "x", "--", "true"}), "sublet: --priority: 'x' is not a whole number");
  EXPECT_EQ(said({"run", "--status-fd", "x", "--", "true"}), "sublet: --status-fd: 'x' is not a whole number");
  EXPECT_EQ(said({"run", "--pausable", "interposer", "--", "true"}),
            "sublet: --pausable: 'interposer' is not one of auto, cooperative, driver, no");
  EXPECT_EQ(said({"events", "--since", "zzz"}), "sublet: --since: 'zzz' is neither a time nor an event's id");
  for (const char* id : {"-5", "bad id-5", "1f2e-", "1f2e-5x"})
    EXPECT_EQ(said({"events", "--since", id}),
              fmt::format("sublet: --since: '{}' is neither a time nor an event's id", id));
  for (const char* length : {"0s", "3651d"})
    EXPECT_NE(said({"report", "--since", length}).find("is not between 1s and 3650d"), std::string::npos);
  EXPECT_EQ(said({"token", "create", "--ttl", "500ms"}),
            "sublet: --ttl: a time to live of 500ms is less than a second");
  EXPECT_EQ(said({"events", "--type", "lease,lase"}),
            "sublet: --type: 'lase' is not one of lease, device, service, warning, verdict, stack, session, tenants, "
            "daemon – did you mean 'lease'?");
  EXPECT_EQ(said({"ps", "--json=x"}), "sublet: --json takes no value");
  EXPECT_EQ(said({"ps", "--json=3"}), "sublet: --json takes no value");
  EXPECT_EQ(said({"run", "--wait", "1s", "--no-wait", "--", "true"}),
            "sublet: --wait and --no-wait cannot both be given");
  EXPECT_EQ(run({"update", "a", "c"}).err,
            "sublet: update takes no further argument: 'c'\n  hint: see: sublet update --help\n");
  EXPECT_EQ(said({"token", "create", "--scope", "all"}), "sublet: --scope: 'all' is not one of read, submit, admin");
}

TEST(Completion, WhatTheShellKnowsBetter) {
  const auto program = make_program();
  const LookUp none = [](Offer::Of) { return std::vector<Candidate>(); };
  EXPECT_EQ(complete(program->app, {"config", "check", "--file", ""}, none).shell, Completion::Shell::files);
  EXPECT_EQ(complete(program->app, {"config", "check", "--dir", ""}, none).shell, Completion::Shell::directories);
  EXPECT_EQ(complete(program->app, {"run", "-m", "1G", "--", "py"}, none).shell, Completion::Shell::commands);
  EXPECT_EQ(complete(program->app, {"run", "--", "python", "-"}, none).shell, Completion::Shell::files);
}

TEST(Completion, ScriptsForThreeShells) {
  for (const char* shell : {"bash", "zsh", "fish"}) EXPECT_EQ(run({"completion", shell}).code, kOk) << shell;
  EXPECT_EQ(
      run({"completion", "bsh"}).err,
      "sublet: there is no completion for the shell 'bsh' – did you mean 'bash'?\n  hint: supported shells: bash, zsh, "
      "fish\n");
}

std::string file(const std::string& name) {
  std::ifstream in(std::string(SUBLET_SOURCE_DIR "/") + name);
  EXPECT_TRUE(in) << name;
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(Reference, IsWhatTheProgramSays) {
  EXPECT_EQ(file("docs/reference/cli.md"), reference_page()) << "make it anew: sublet __reference cli";
  EXPECT_EQ(file("docs/reference/config.md"), config::reference_page()) << "make it anew: sublet __reference config";
}

}  // namespace
}  // namespace sublet::cli
