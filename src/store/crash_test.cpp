// SPDX-License-Identifier: Apache-2.0
// Kills the process at any moment. Acknowledged batches must be there afterwards, and no batch may be there in part.
#include "store/sqlite_store.h"
#include "store/test_support.h"

#include <csignal>
#include <cstdlib>
#include <random>

namespace sublet::store::test {
namespace {

unsigned number_from(const char* variable, unsigned otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? static_cast<unsigned>(std::strtoul(text, nullptr, 10)) : otherwise;
}

// The child. Continues after the stored steps, in bursts of random length, and writes the number of each committed
// step. It never stops by itself.
[[noreturn]] void work(const std::filesystem::path& path, int out, unsigned seed) {
  const auto say = [out](std::uint64_t number) { (void)!::write(out, &number, sizeof(number)); };
  std::mt19937 random(seed);
  std::uint64_t base = 0;  // step = base + sequence
  SqliteStore store(path);
  say(0);
  const auto loaded = store.open({[&](std::uint64_t sequence) { say(base + sequence); }, {}});
  if (!loaded) ::_exit(1);
  if (!loaded->leases.empty()) base = loaded->leases[0].generation;
  for (std::uint64_t n = base + 1;; ++n) {
    store.intend(step(n));
    if (random() % 8 == 0) {
      (void)ask(store, [](Reader& reader) { return reader.lease(LeaseId{1}); });  // lets the writer catch up
    }
  }
}

// Runs the child until it has acknowledged `acks` steps and a random moment longer. Returns the last acknowledged step.
std::uint64_t run_and_kill(const std::filesystem::path& path, unsigned acks, std::mt19937& random) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const unsigned seed = random();
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    work(path, ends[1], seed);
  }
  ::close(ends[1]);
  std::uint64_t told = 0, number = 0;
  for (unsigned i = 0; i <= acks && ::read(ends[0], &number, sizeof(number)) == sizeof(number); ++i) told = number;
  for (volatile unsigned spin = random() % 2'000'000; spin > 0;) spin = spin - 1;
  ::kill(child, SIGKILL);
  while (::read(ends[0], &number, sizeof(number)) == sizeof(number)) told = number;
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "the child ended by itself: " << status;
  return told;
}

TEST(StoreCrash, KeepsWhatWasAcknowledgedWhenKilledAtRandomMoments) {
  const unsigned rounds = number_from("SUBLET_CRASH_ROUNDS", 60);
  const unsigned seed = number_from("SUBLET_SEED", std::random_device()());
  std::printf("seed %u, %u rounds (SUBLET_SEED, SUBLET_CRASH_ROUNDS)\n", seed, rounds);
  std::mt19937 random(seed);
  std::optional<TempDir> dir;
  std::uint64_t unanswered = 0;
  for (unsigned round = 0; round < rounds; ++round) {
    // Makes a new store now and then, so that its creation is interrupted too. Otherwise the same store is killed
    // again.
    if (round % 6 == 0) dir.emplace();
    const auto path = *dir / "store.db";
    const std::uint64_t told = run_and_kill(path, random() % 3 == 0 ? 0 : random() % 40, random);
    SqliteStore store(path);
    News news;
    const auto loaded = store.open(news.events());
    ASSERT_TRUE(loaded) << "seed " << seed << " round " << round << ": " << loaded.error().detail;
    const auto steps = count_steps(store, *loaded);
    ASSERT_TRUE(steps) << "seed " << seed << " round " << round << ": " << steps.error().detail;
    ASSERT_GE(*steps, told) << "seed " << seed << " round " << round;
    if (*steps > told) ++unanswered;
  }
  std::printf("in %llu of %u kills the store held steps that nobody had been told of\n",
              static_cast<unsigned long long>(unanswered), rounds);
}

}  // namespace
}  // namespace sublet::store::test
