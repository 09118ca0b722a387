// SPDX-License-Identifier: Apache-2.0
// The wording of reasons: every kind makes a whole sentence, and the frequent ones make exactly these.
#include "lease/reason_kinds.h"
#include "lease/transitions.h"

#include <gtest/gtest.h>

#include <set>

namespace sublet::core::testing {
namespace {

using namespace std::chrono_literals;
using Names = std::vector<std::string>;
using Parts = std::vector<ReasonPart>;

// The names that a template prints, with those of its fragments.
void add_names(std::string_view sentence, std::set<std::string>& names) {
  for (std::size_t at = sentence.find('{'); at != std::string_view::npos; at = sentence.find('{', at + 1)) {
    const std::string_view inside = sentence.substr(at + 1, sentence.find('}', at) - at - 1);
    if (inside.front() == '#') {
      ASSERT_FALSE(fragment_of(inside.substr(1)).empty()) << inside;
      add_names(fragment_of(inside.substr(1)), names);
    } else if (inside.front() != '!') {
      const bool marked = inside.front() == '?' || inside.front() == '@';
      names.emplace(inside.substr(marked ? 1 : 0, inside.find(':') - (marked ? 1 : 0)));
    }
  }
}

std::vector<ReasonKind> all_kinds() {
  std::vector<ReasonKind> kinds;
  for (const ReasonRow& row : all_reasons()) kinds.push_back(row.kind);
  return kinds;
}

TEST(ReasonText, EveryKindHasAWordACodeAndASubject) {
  std::set<std::string_view> words;
  for (const ReasonKind kind : all_kinds()) {
    const ReasonRow& row = row_of(kind);
    EXPECT_TRUE(words.insert(row.word).second) << row.word;
    EXPECT_EQ(parse_reason_kind(row.word), kind);
    EXPECT_TRUE(kind == ReasonKind::note || row.code == "ended" || is_transition(row.code)) << row.code;
    EXPECT_TRUE(row.subject.empty() ? row.code == "ended" : is_interruptible(row.subject)) << row.word;
  }
}

// Free memory and the lease that takes all of it are the same figure.
TEST(ReasonText, SizesOfLeasesAreRoundedDown) {
  const Bytes whole{3'919'157'658};  // 3.65 GiB
  EXPECT_EQ(text_of_fragment("shortage", args("vram", whole, "free", whole - 20 * MiB, "device", "gpu0", "lacks",
                                              20 * MiB, "holders", Parts{{"lease-1 (a, b)", whole}, {"pid 7", whole}})),
            "needs 3.6 GiB; 3.6 GiB is free on gpu0, 20.0 MiB less; memory is held by lease-1 (a, b) 3.6 GiB; "
            "pid 7 3.7 GiB");
}

TEST(ReasonText, EveryKindMakesAWholeSentence) {
  for (const ReasonKind kind : all_kinds()) {
    std::set<std::string> names;
    add_names(row_of(kind).sentence, names);
    add_names(fragment_of("cause.tier"), names);
    add_names(fragment_of("needs.memory"), names);
    ReasonArgs all = args("cause", "tier", "needs", "memory", "linked", "nvlink", "next_linked", "numa");
    for (const std::string& name : names)
      if (!all.has(name)) all.add(name, "<" + name + ">");
    const std::string text = render(row_of(kind).sentence, all);
    EXPECT_FALSE(text.empty()) << to_string(kind);
    EXPECT_EQ(text.find_first_of("{}[]#@?!"), std::string::npos) << text;
    EXPECT_EQ(text.find("  "), std::string::npos) << text;
    EXPECT_EQ(render(row_of(kind).sentence, {}).find_first_of("{}[]#@?!"), std::string::npos) << to_string(kind);
  }
}

struct Row {
  ReasonKind kind;
  ReasonArgs args;
  std::string text;
};

TEST(ReasonText, SaysWhatHappenedWithTheNumbers) {
  using K = ReasonKind;
  const Row rows[] = {
      {K::granted, args("vram", 6 * GiB, "asked", 12 * GiB, "devices", Names{"gpu1"}, "free", 8 * GiB, "waited", 3s),
       "granted 6.0 GiB of the 12.0 GiB asked for on gpu1, where 8.0 GiB was free, after waiting 3 s"},
      {K::granted,
       args("vram", 6 * GiB, "devices", Names{"gpu1"}, "free", 8 * GiB, "waited", 3s, "policy", "fragmentation", "next",
            Names{"gpu0"}, "costs", 6 * GiB, "next_costs", 9 * GiB, "leaves", 2 * GiB, "next_leaves", 4 * GiB),
       "granted 6.0 GiB on gpu1, where 8.0 GiB was free, after waiting 3 s; chosen by fragmentation: usual requests "
       "lose 6.0 GiB there, 9.0 GiB on gpu0; 2.0 GiB stays free there, 4.0 GiB on gpu0"},
      {K::granted,
       args("vram", GiB, "devices", Names{"gpu0", "gpu1"}, "free", GiB, "waited", 3s, "linked", "nvlink", "policy",
            "best-fit", "next", Names{"gpu2", "gpu3"}, "leaves", GiB, "next_leaves", Bytes(), "next_linked", "numa"),
       "granted 1.0 GiB on each of gpu0 and gpu1, where 1.0 GiB was free, after waiting 3 s; linked by NVLink; chosen "
       "by best-fit; 1.0 GiB stays free there, 0 B on gpu2 and gpu3, linked by their NUMA node"},
      {K::granted,
       args("vram", GiB, "devices", Names{"gpu1"}, "free", GiB, "waited", 3s, "only", true),
       "granted 1.0 GiB on gpu1, where 1.0 GiB was free, after waiting 3 s; no other device could give it that"},
      {K::offered, args("vram", GiB, "devices", Names{"gpu0", "gpu2"}, "free", GiB, "waited", 3s, "window", 30s),
       "offered 1.0 GiB on each of gpu0 and gpu2, where 1.0 GiB was free, after waiting 3 s; claim the offer within "
       "30 s"},
      {K::queued,
       args("place", 1, "waiting", 2, "vram", 20 * GiB, "min", 5 * GiB, "devices_each", 2, "free", 4 * GiB, "device",
            "gpu0", "holders", Parts{{"lease-1 (train, ana)", 16 * GiB}, {"pid 7 (without a lease)", GiB}}),
       "queued at place 1 of 2: needs 20.0 GiB or at least 5.0 GiB on each of 2 devices; 4.0 GiB is free on gpu0; "
       "memory is held by lease-1 (train, ana) 16.0 GiB; pid 7 (without a lease) 1.0 GiB"},
      {K::queued, args("place", 1, "waiting", 1, "vram", GiB, "unknown", "no device was read yet"),
       "queued at place 1 of 1: needs 1.0 GiB; free memory is unknown: no device was read yet"},
      {K::queued,
       args("place", 2, "waiting", 2, "vram", GiB, "free", 2 * GiB, "device", "gpu0", "reserved_on", Names{"gpu0"},
            "reserved_for", "lease-2 (large, ana)", "reserved_since", 6min, "reserved_bytes", 20 * GiB),
       "queued at place 2 of 2: needs 1.0 GiB; 2.0 GiB is free on gpu0; free memory on gpu0 is reserved for lease-2 "
       "(large, ana), which has waited 6 min and needs 20.0 GiB; its start is unknown"},
      {K::pausing_by_driver,
       args("cause", "tier", "preemptor", "lease-2 (chat, ana)", "tier", "interactive", "asked", 3 * GiB, "bytes",
            4 * GiB, "devices", Names{"gpu0"}),
       "preempted for lease-2 (chat, ana) of the tier interactive, which asked for 3.0 GiB: the driver is asked to "
       "free "
       "up to 4.0 GiB on gpu0; host memory for these bytes is set aside in the park ledger"},
      {K::pausing_by_program, args("cause", "owner_request", "bytes", 3 * GiB, "devices", Names{"gpu0"}, "within", 30s),
       "requested by its owner: its program is asked to free up to 3.0 GiB on gpu0 within 30 s; host memory for these "
       "bytes is set aside in the park ledger"},
      {K::attached, args("pid", 7, "keeper", 6),
       "its program is pid 7 with all processes that pid 7 starts; the program's parent, pid 6, is its keeper and "
       "keeps its exit status"},
      {K::paused, args("settled", 26ms, "took", 2s, "parked", GiB),
       "the pause took 2 s: its program gave the memory up, and readings of the card showed 26 ms later that this "
       "memory is free; 1.0 GiB are parked in host memory"},
      {K::resuming, args("vram", 3 * GiB, "devices", Names{"gpu0"}, "away", 8s),
       "has 3.0 GiB on gpu0 again, 8 s after the pause began; the restore of its program begins"},
      {K::settled, args("device", "gpu0", "after", 1s),
       "a reading of gpu0 showed 1 s after its end that its memory is free again"},
      {K::pause_failed, args("detail", "a debugger is attached to pid 4711", "begun", true, "next", "driver"),
       "the pause is undone: a debugger is attached to pid 4711; the driver is tried next"},
      {K::pause_unmeasured, args("timeout", 30s),
       "the lease is not paused: its memory was not measured free within 30 s"},
      {K::poisoned, args("detail", "error 2", "nothing_parked", true),
       "its program can never be restored: error 2; it is kept, and not killed; none of its memory is in host memory"},
      {K::resumed, {}, "its program runs on: the pause had not touched it"},
      {K::program_exited, args("end", "released", "status", 0, "size", GiB, "on", Names{"gpu0"}, "peak", 512 * MiB),
       "released: its program exited with status 0; the lease held 1.0 GiB on gpu0 and used at most 512 MiB"},
      {K::rejected,
       args("end", "rejected", "vram", 30 * GiB, "most", 23 * GiB, "total", 24 * GiB, "device", "gpu0", "driver_keeps",
            512 * MiB, "headroom", 512 * MiB),
       "rejected: needs 30.0 GiB; at most 23.0 GiB of 24.0 GiB can be had on gpu0, where the driver keeps 512 MiB and "
       "512 MiB is headroom"},
      {K::spot_unregistered,
       args("end", "revoked", "cause", "slice", "preemptor", "lease-4 (b)", "idle", 2min, "grace", 30s),
       "revoked: time slice of lease-4 (b); it is a spot lease that cannot be paused: no program said for 2 min how it "
       "frees its memory (`pause.spot_unused_after`); its program is asked to end, and is killed if it still lives "
       "after 30 "
       "s"},
      {K::idle_warned,
       args("devices", Names{"gpu0"}, "idle", 5min, "pause", 10min, "waiting", true, "end", 60min, "rule",
            "rule of the tier batch"),
       "its program has done nothing on gpu0 for 5 min; it is paused after 10 min without work if another lease waits "
       "for memory; the lease ends after 1 h without work (rule of the tier batch)"},
      {K::idle_ended, args("end", "expired", "idle", 61min, "limit", 60min, "rule", "its own rule", "grace", 30s),
       "expired: its program has done nothing for 1 h 1 min, and its idle rule allows 1 h (its own rule); its program "
       "is asked to end, and is killed if it still lives after 30 s"},
      {K::keeper_killed, args("keeper", 4711, "ends", true),
       "its keeper, pid 4711, was killed: its program is asked to end (`sublet run --keep-running` lets such a program "
       "run on)"},
      {K::keeper_killed, args("keeper", 4711),
       "its keeper, pid 4711, was killed: its program runs on, and its exit status stays unknown"},
      {K::stray_ended, args("end", "over_limit", "used", 2 * GiB, "device", "gpu1", "grace", 2s),
       "over_limit: its program uses 2.0 GiB on gpu1, which it has not leased, and the enforcer ends such programs; "
       "its program is asked to end, and is killed if it still lives after 2 s"},
      {K::pausing_by_driver,
       args("cause", "idle", "idle", 10min, "preemptor", "lease-2 (b)", "bytes", GiB, "devices", Names{"gpu0"}),
       "its program has done nothing for 10 min, and lease-2 (b) waits for memory: the driver is asked to free up to "
       "1.0 GiB on gpu0; host memory for these bytes is set aside in the park ledger"},
      {K::blocked_by_processes,
       args("problem", "External", "processes", Parts{{"pid 9 (game, without a lease)", 20 * GiB}}, "device", "gpu0",
            "needs", "memory", "vram", 8 * GiB, "free", 4 * GiB),
       "External: pid 9 (game, without a lease) holds 20.0 GiB on gpu0; the lease needs 8.0 GiB, and 4.0 GiB is free"},
  };
  for (const Row& row : rows) EXPECT_EQ(text_of(Reason{{}, {}, row.kind, row.args}), row.text);
}

TEST(ReasonText, KeepsTheCodeOfANote) {
  EXPECT_EQ(code(Reason{{}, {}, ReasonKind::note, args("code", "granted", "text", "x")}), "granted");
  EXPECT_EQ(code(Reason{{}, {}, ReasonKind::note, args("text", "x")}), "note");
  EXPECT_EQ(code(Reason{{}, {}, ReasonKind::time_over, {}}), "ended");
}

TEST(PauseCauses, EveryKindHasAWordAndASentence) {
  for (int i = 0; i <= static_cast<int>(PauseCauseKind::note); ++i) {
    const auto kind = static_cast<PauseCauseKind>(i);
    EXPECT_EQ(parse_pause_cause_kind(to_string(kind)), kind);
    const PauseCause cause{kind, {}, args("preemptor", "lease-3", "tier", "batch", "detail", "error 2", "text", "x")};
    EXPECT_FALSE(text_of(cause).empty());
    EXPECT_EQ(text_of(cause).find_first_of("{}[]"), std::string::npos) << text_of(cause);
  }
}

TEST(ReasonArgs, LeaveOutWhatSaysNothing) {
  const ReasonArgs none = args("text", "", "flag", false, "unset", std::optional<Bytes>(), "list", Names());
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(args("zero", Bytes{}).all().size(), 1U);
}

}  // namespace
}  // namespace sublet::core::testing
