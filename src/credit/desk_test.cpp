// SPDX-License-Identifier: Apache-2.0
#include "credit/desk.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <limits>
#include <random>
#include <thread>

namespace sublet::credit {
namespace {

constexpr ProcessRef one{1, 10}, two{2, 20};

// The other side: maps the files as the library in a process does, and charges as it does.
class Side {
 public:
  explicit Side(const Pages& pages)
      : limit_(map<const sublet_limit_page>(pages.limit_file(), PROT_READ)),
        use_(map<sublet_use_page>(pages.use_file(), PROT_READ | PROT_WRITE)) {
    take(0);
  }

  // Takes the pages, with bytes that it has charged already.
  void take(std::uint64_t charged) {
    use_->device[0].charged = charged;
    std::atomic_ref<std::uint32_t>(use_->size).store(sizeof *use_);
  }

  bool charge(std::uint64_t bytes) {
    auto& charged = use_->device[0].charged;
    const std::atomic_ref<std::uint64_t> word(charged);
    auto now = word.load();
    do {
      if (now > credit() || bytes > credit() - now) return false;
    } while (!word.compare_exchange_weak(now, now + bytes));
    if (credit() >= now + bytes) return true;
    word.fetch_sub(bytes);
    return false;
  }
  void discharge(std::uint64_t bytes) { std::atomic_ref<std::uint64_t>(use_->device[0].charged).fetch_sub(bytes); }
  std::uint64_t credit() const {
    return std::atomic_ref<std::uint64_t>(const_cast<std::uint64_t&>(limit_->device[0].credit)).load();
  }
  std::uint64_t charged() const { return std::atomic_ref<std::uint64_t>(use_->device[0].charged).load(); }
  const sublet_limit_page& limit() const { return *limit_; }
  sublet_use_page& use() { return *use_; }

 private:
  template <typename Page>
  static Page* map(int file, int protection) {
    void* at = ::mmap(nullptr, sizeof(Page), protection, MAP_SHARED, file, 0);
    EXPECT_NE(at, MAP_FAILED);
    return static_cast<Page*>(at);
  }
  const sublet_limit_page* limit_;
  sublet_use_page* use_;
};

std::vector<DeviceLimit> one_device(Bytes limit) { return {{.uuid = {7}, .limit = limit, .context = 3 * MiB}}; }

std::uint64_t count(Bytes bytes) { return static_cast<std::uint64_t>(bytes.count); }

TEST(Pages, AProcessReadsItsLimitAndCannotWriteIt) {
  Desk desk(one_device(100 * MiB));
  const auto pages = desk.begin(one);
  ASSERT_TRUE(pages);
  const Side side(**pages);
  EXPECT_EQ(side.limit().size, sizeof(sublet_limit_page));
  EXPECT_EQ(side.limit().devices, 1U);
  EXPECT_EQ(side.limit().device[0].uuid[0], 7);
  EXPECT_EQ(side.limit().device[0].limit, count(100 * MiB));
  EXPECT_EQ(side.limit().device[0].context, count(3 * MiB));
  const int file = (*pages)->limit_file();
  EXPECT_EQ(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0), MAP_FAILED);
  EXPECT_EQ(::pwrite(file, "x", 1, 0), -1);
  for (const int page : {file, (*pages)->use_file()}) {
    EXPECT_EQ(::ftruncate(page, 0), -1) << "reading the page would end the daemon";
    EXPECT_EQ(::ftruncate(page, 1 << 20), -1);
    EXPECT_EQ(::fcntl(page, F_ADD_SEALS, F_SEAL_WRITE), -1) << "the daemon could not write any more";
  }
}

TEST(Pages, AProcessReadsItsShareAndGain) {
  Desk desk({{.limit = 100 * MiB, .share = 30}});
  const auto first = desk.begin(one);
  ASSERT_TRUE(first);
  const Side side(**first);
  EXPECT_EQ(side.limit().device[0].share, 30U);
  EXPECT_EQ(side.limit().device[0].gain, 0U);
  desk.set_gain(0, 1250);
  EXPECT_EQ(side.limit().device[0].gain, 1250U);
  const auto second = desk.begin(two);
  ASSERT_TRUE(second);
  EXPECT_EQ(Side(**second).limit().device[0].gain, 1250U) << "it begins later";
}

TEST(Pages, MoreDevicesThanAPageHasAreRefused) {
  Desk desk(std::vector<DeviceLimit>(SUBLET_LIMIT_DEVICES + 1));
  EXPECT_FALSE(desk.begin(one));
}

TEST(Desk, AProcessChargesItsCreditAndAsksForMore) {
  Desk desk(one_device(100 * MiB));
  Side first(**desk.begin(one)), second(**desk.begin(two));
  EXPECT_FALSE(first.charge(1)) << "no credit without a question";
  EXPECT_TRUE(desk.more(one, 0, count(60 * MiB)));
  EXPECT_TRUE(first.charge(count(60 * MiB)));
  EXPECT_TRUE(desk.more(two, 0, count(40 * MiB))) << "unused credit of the other was taken";
  EXPECT_EQ(first.credit(), count(60 * MiB));
  EXPECT_TRUE(second.charge(count(40 * MiB)));
  EXPECT_FALSE(desk.more(one, 0, count(61 * MiB)));
  EXPECT_FALSE(first.charge(1));
  first.discharge(count(30 * MiB));
  EXPECT_TRUE(desk.more(two, 0, count(70 * MiB)));
  desk.tell_others();
  EXPECT_EQ(first.limit().device[0].others, count(40 * MiB));
  EXPECT_EQ(second.limit().device[0].others, count(30 * MiB));
}

TEST(Desk, AProcessThatExecutesAnotherProgramBeginsAgain) {
  Desk desk(one_device(100 * MiB));
  Side before(**desk.begin(one));
  ASSERT_TRUE(desk.more(one, 0, count(100 * MiB)));
  ASSERT_TRUE(before.charge(count(90 * MiB)));
  Side after(**desk.begin(one));
  EXPECT_EQ(after.credit(), count(100 * MiB));
  EXPECT_EQ(desk.charged(0), Bytes{});
  ASSERT_TRUE(after.charge(count(10 * MiB)));
  ASSERT_TRUE(desk.begin(two));
  EXPECT_TRUE(desk.more(two, 0, count(90 * MiB)));
  EXPECT_EQ(after.credit(), count(10 * MiB));
}

TEST(Desk, OddQuestionsAreRefused) {
  Desk desk(one_device(100 * MiB));
  EXPECT_FALSE(desk.more(one, 0, 1)) << "it has not begun";
  ASSERT_TRUE(desk.begin(one));
  for (const std::uint64_t needed :
       {std::numeric_limits<std::uint64_t>::max(), std::uint64_t{1} << 63, std::uint64_t{1} << 47, count(101 * MiB)})
    EXPECT_FALSE(desk.more(one, 0, needed));
  EXPECT_FALSE(desk.more(one, 1, 1));
  EXPECT_FALSE(desk.more(one, std::numeric_limits<std::size_t>::max(), 1));
  EXPECT_EQ(desk.ledger(0).given(), Bytes{});
  EXPECT_TRUE(desk.more(one, 0, 0));
}

TEST(Desk, ADeadProcessKeepsItsCreditUntilItsBytesAreGone) {
  Desk desk(one_device(100 * MiB));
  Side side(**desk.begin(one));
  ASSERT_TRUE(desk.more(one, 0, count(100 * MiB)));
  ASSERT_TRUE(desk.begin(two));
  desk.end(one);
  EXPECT_FALSE(desk.more(one, 0, 1));
  EXPECT_FALSE(desk.begin(one));
  EXPECT_FALSE(desk.more(two, 0, 1));
  desk.forget(one);
  EXPECT_FALSE(desk.knows(one));
  EXPECT_TRUE(desk.more(two, 0, count(100 * MiB)));
  desk.forget(two);
  EXPECT_TRUE(desk.knows(two)) << "it lives";
}

TEST(Desk, ASmallerLeaseTakesUnusedCreditBack) {
  Desk desk(one_device(100 * MiB));
  Side side(**desk.begin(one));
  ASSERT_TRUE(desk.more(one, 0, count(100 * MiB)));
  ASSERT_TRUE(side.charge(count(70 * MiB)));
  desk.resize(0, 50 * MiB);
  EXPECT_EQ(side.limit().device[0].limit, count(50 * MiB));
  EXPECT_EQ(side.credit(), count(70 * MiB)) << "used credit stays";
  desk.resize(0, 200 * MiB);
  EXPECT_TRUE(desk.more(one, 0, count(200 * MiB)));
}

TEST(Desk, BytesOutsideOfTheCreditAreNotGiven) {
  Desk desk(one_device(100 * MiB));
  Side side(**desk.begin(one));
  ASSERT_TRUE(desk.more(one, 0, count(80 * MiB)));
  ASSERT_TRUE(side.charge(count(50 * MiB)));
  desk.set_outside(0, 40 * MiB);
  EXPECT_EQ(side.credit(), count(60 * MiB));
  EXPECT_FALSE(desk.more(one, 0, count(61 * MiB)));
  desk.tell_others();
  EXPECT_EQ(side.limit().device[0].others, count(40 * MiB));
  EXPECT_EQ(side.limit().device[0].limit, count(100 * MiB)) << "the size of the lease";
  desk.resize(0, 120 * MiB);
  EXPECT_TRUE(desk.more(one, 0, count(80 * MiB)));
  desk.set_outside(0, 500 * MiB);
  EXPECT_EQ(side.credit(), count(50 * MiB)) << "used credit stays";
  desk.set_outside(0, {});
  EXPECT_TRUE(desk.more(one, 0, count(120 * MiB)));
}

TEST(Desk, ARetiredDeskGivesNothing) {
  Desk desk(one_device(100 * MiB));
  Side side(**desk.begin(one));
  ASSERT_TRUE(desk.more(one, 0, count(80 * MiB)));
  ASSERT_TRUE(side.charge(count(50 * MiB)));
  desk.retire();
  EXPECT_EQ(side.credit(), count(50 * MiB));
  EXPECT_EQ(side.limit().device[0].limit, count(100 * MiB));
  EXPECT_FALSE(desk.more(one, 0, count(51 * MiB)));
}

TEST(Desk, CreditIsSeenOnceItIsPublished) {
  Desk desk(one_device(100 * MiB));
  Side first(**desk.begin(one)), second(**desk.begin(two));
  EXPECT_TRUE(desk.ask(one, 0, count(60 * MiB)));
  EXPECT_EQ(first.credit(), 0U);
  EXPECT_GE(desk.credits(one).at(0), 60 * MiB);
  EXPECT_FALSE(desk.ask(two, 0, count(50 * MiB))) << "the other was told that it has 60";
  EXPECT_TRUE(desk.ask(two, 0, count(40 * MiB)));
  EXPECT_EQ(first.credit(), 0U) << "a recall shows nothing that is not published";
  desk.publish(one);
  desk.publish(two);
  EXPECT_EQ(first.credit(), count(60 * MiB));
  EXPECT_EQ(second.credit(), count(40 * MiB));
  EXPECT_TRUE(desk.more(two, 0, count(70 * MiB))) << "nothing was charged by the first";
  ASSERT_TRUE(desk.ask(one, 0, count(30 * MiB)));
  Side again(**desk.begin(one));
  EXPECT_EQ(again.credit(), first.credit()) << "new pages show no more than the earlier ones";
}

// A daemon knows from its store what an earlier daemon gave.
TEST(Desk, AProcessOfAnEarlierDaemonKeepsItsCreditUntilItBeginsAgain) {
  Desk desk(one_device(100 * MiB));
  desk.restore(one, {70 * MiB});
  EXPECT_FALSE(desk.knows(one));
  EXPECT_EQ(desk.charged_by(one, 0), 70 * MiB) << "its pages cannot be read";
  Side second(**desk.begin(two));
  EXPECT_FALSE(desk.more(two, 0, count(31 * MiB)));
  EXPECT_TRUE(desk.more(two, 0, count(30 * MiB)));
  EXPECT_FALSE(desk.more(one, 0, count(1 * MiB))) << "it has no pages here";
  const auto pages = desk.begin(one);
  ASSERT_TRUE(pages);
  EXPECT_EQ((*pages)->credit(0), 70 * MiB);
  EXPECT_FALSE(desk.more(two, 0, count(40 * MiB))) << "it may still charge on its earlier pages";
  Side first(**pages);
  first.take(count(50 * MiB));
  EXPECT_TRUE(desk.more(two, 0, count(50 * MiB)));
  EXPECT_EQ(first.credit(), count(50 * MiB));
  desk.end(two), desk.forget(two);
  EXPECT_TRUE(desk.more(one, 0, count(100 * MiB)));
}

TEST(Desk, CreditsThatWereReadAgainAreThoseOfThePages) {
  Desk desk(one_device(100 * MiB));
  Side first(**desk.begin(one));
  ASSERT_TRUE(desk.ask(one, 0, count(60 * MiB)));
  desk.restore(one, {20 * MiB});
  EXPECT_EQ(first.credit(), count(20 * MiB));
  EXPECT_EQ(desk.ledger(0).given(), 20 * MiB);
}

// A hostile process writes anything into its use page: it harms itself alone, and never gets more than the limit.
TEST(Desk, AScribblingProcessGetsNoMoreThanTheLimit) {
  Desk desk(one_device(100 * MiB));
  Side hostile(**desk.begin(one)), honest(**desk.begin(two));
  ASSERT_TRUE(desk.more(two, 0, count(40 * MiB)));
  ASSERT_TRUE(honest.charge(count(40 * MiB)));
  std::mt19937_64 chance(60);
  auto* words = reinterpret_cast<std::uint64_t*>(&hostile.use());
  for (int i = 0; i < 100'000; ++i) {
    std::atomic_ref<std::uint64_t>(words[chance() % (sizeof(sublet_use_page) / 8)]).store(chance() >> chance() % 64);
    desk.more(one, 0, chance() >> (chance() % 64));
    desk.tell_others();
    ASSERT_LE(desk.ledger(0).given(), 100 * MiB);
    ASSERT_LE(hostile.credit() + honest.charged(), count(100 * MiB));
    ASSERT_LE(honest.limit().device[0].others, count(60 * MiB));
  }
}

// The same while the desk reads: each read may find another value than the one before.
TEST(Desk, AProcessThatScribblesMeanwhileGetsNoMoreThanTheLimit) {
  Desk desk(one_device(100 * MiB));
  Side hostile(**desk.begin(one)), honest(**desk.begin(two));
  ASSERT_TRUE(desk.more(two, 0, count(40 * MiB)));
  ASSERT_TRUE(honest.charge(count(40 * MiB)));
  std::atomic<bool> is_done = false;
  std::thread scribbling([&] {
    std::mt19937_64 chance(61);
    auto* words = reinterpret_cast<std::uint64_t*>(&hostile.use());
    for (int i = 0; i < 10'000'000; ++i) {
      const auto value = chance();
      std::atomic_ref<std::uint64_t>(words[value % (sizeof(sublet_use_page) / 8)]).store(value >> (value >> 58));
    }
    is_done = true;
  });
  std::mt19937_64 chance(62);
  bool is_unharmed = true;
  while (!is_done) {
    desk.more(one, 0, chance() >> (chance() % 64));
    desk.tell_others();
    const Counts counts = desk.counts(one);
    is_unharmed &= desk.ledger(0).given() <= 100 * MiB && desk.charged(0) <= 100 * MiB &&
                   hostile.credit() + honest.charged() <= count(100 * MiB) &&
                   honest.limit().device[0].others <= count(60 * MiB) && counts.launches >= 0 && counts.copied >= 0 &&
                   counts.errors.size() <= SUBLET_USE_ERRORS;
  }
  scribbling.join();
  EXPECT_TRUE(is_unharmed);
}

TEST(Desk, ThreadsOfProcessesThatRaceNeverPassTheLimit) {
  constexpr int processes = 4;
  Desk desk(one_device(64 * MiB));
  std::vector<Side> sides;
  for (int i = 0; i < processes; ++i) sides.emplace_back(**desk.begin({i + 1, 10}));
  std::atomic<std::uint64_t> held = 0;  // surely charged
  std::atomic<bool> over = false, stop = false;
  std::vector<std::thread> threads;
  for (int i = 0; i < processes; ++i)
    threads.emplace_back([&, i] {
      std::mt19937_64 chance(static_cast<unsigned>(i));
      while (!stop) {
        const auto bytes = (chance() % 8 + 1) << 21;
        if (!sides[static_cast<std::size_t>(i)].charge(bytes)) continue;
        if (held.fetch_add(bytes) + bytes > count(64 * MiB)) over = true;
        held.fetch_sub(bytes);
        sides[static_cast<std::size_t>(i)].discharge(bytes);
      }
    });
  std::mt19937_64 chance(60);
  for (int i = 0; i < 20'000; ++i)
    desk.more({static_cast<std::int32_t>(chance() % processes) + 1, 10}, 0, (chance() % 30 + 1) << 21);
  stop = true;
  for (auto& thread : threads) thread.join();
  EXPECT_FALSE(over);
  EXPECT_LE(desk.ledger(0).given(), 64 * MiB);
}

TEST(SharePage, NobodyChangesItsSize) {
  const auto page = make_share_page(2);
  ASSERT_TRUE(page) << page.error().detail;
  for (const off_t size : {off_t{0}, off_t{1} << 20}) EXPECT_NE(::ftruncate(page->get(), size), 0);
  EXPECT_NE(::posix_fallocate(page->get(), 0, 1 << 20), 0);
  sublet_share_page read{};
  EXPECT_EQ(::pread(page->get(), &read, sizeof read, 0), static_cast<ssize_t>(sizeof read));
  EXPECT_EQ(read.size, sizeof read);
  EXPECT_EQ(read.abi, SUBLET_LIMIT_ABI);
  EXPECT_EQ(read.devices, 2U);
}

}  // namespace
}  // namespace sublet::credit
