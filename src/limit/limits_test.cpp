// SPDX-License-Identifier: Apache-2.0
// The capability with an engine, one card, a store that commits when the test says so, and this test as the process
// that asks.
#include "limit/limits.h"

#include "machine/test_probe.h"
#include "proc/process_table.h"
#include "store/faulty_store.h"
#include "store/memory_store.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>

namespace sublet::limit {
namespace {

using namespace std::chrono_literals;

const std::string card_uuid = "GPU-01234567-89ab-cdef-0123-456789abcdef";

class OneCard final : public machine::TestProbe {
 public:
  using TestProbe::TestProbe;
  void tell() {
    gpu::GpuDevice shown = card();
    shown.uuid = card_uuid;
    send(std::move(shown));
  }
};

// The answer to a question, and the pages that came with it.
struct Answered {
  std::optional<std::uint32_t> result{};  // unset: no answer yet
  sublet_limit_page* limit = nullptr;
  sublet_use_page* use = nullptr;
};

class LimitsTest : public testing::Test {
 protected:
  LimitsTest() : path_(testing::TempDir() + "credit-" + std::to_string(::getpid()) + ".sock") { start(); }
  ~LimitsTest() override {
    engine_->stop();
    std::filesystem::remove(path_);
  }

  void start() {
    engine::MachineOptions real;
    real.actor.socket = "/nonexistent";
    engine::Machine machine = engine::real_machine(io_, real);
    auto clock = std::make_unique<ManualClock>(now_, monotonic_ns_);
    clock_ = clock.get();
    machine.clock = std::move(clock);
    card_ = new OneCard(*clock_);
    machine.probe = std::unique_ptr<machine::Probe>(card_);
    engine::Options options;
    options.exit_dir = "/nonexistent/exits";
    options.boot_id = "boot";
    engine_.emplace(io_, store_, std::move(machine), std::move(options));
    limits_.emplace(io_, *engine_, Options{});
    engine_->capabilities().add(*limits_);
    ASSERT_TRUE(engine_->start());
    ASSERT_TRUE(limits_->start(path_));
    card_->tell();
    settle();
  }
  // The daemon is killed, and another one starts.
  void restart() {
    now_ = clock_->now();
    monotonic_ns_ = clock_->monotonic_ns();
    memory_.crash();
    engine_->stop();
    limits_->stop();
    turn();
    limits_.reset();
    engine_.reset();
    start();
  }

  // Runs all ready handlers; nothing becomes durable.
  void turn() {
    for (int round = 0; round < 20; ++round) {
      io_.restart();
      io_.poll();
    }
  }
  void settle() {
    for (int round = 0; round < 20; ++round) {
      io_.restart();
      io_.poll();
      memory_.pump();
    }
  }
  void advance(Duration time) {
    clock_->advance(time);
    card_->tell();
    settle();
  }

  // A lease to which this test belongs.
  LeaseId lease(Bytes vram) {
    core::Submit submit;
    submit.lease.uid = ::geteuid();
    submit.lease.user = submit.lease.tenant = "ana";
    submit.lease.consumer = "train";
    submit.lease.vram = vram;
    submit.lease.ttl = 1h;
    submit.lease.owner.kind = core::OwnerKind::token;
    LeaseId id;
    EXPECT_TRUE(engine_->request(submit, {}, [&](const core::Lease& lease) {
      id = lease.id;
      return engine::Answered{};
    }));
    settle();
    core::Attach attach{.lease = id, .owner = {}, .as_owner = false, .booked = {}};
    attach.booked.process = self_;
    EXPECT_TRUE(engine_->decide(attach));
    advance(1s);
    return id;
  }

  Fd send(sublet_credit_kind kind, Bytes needed = {}) {
    sockaddr_un place{};
    place.sun_family = AF_UNIX;
    std::strncpy(static_cast<char*>(place.sun_path), path_.c_str(), sizeof place.sun_path - 1);
    Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&place), sizeof place), 0);
    const sublet_credit_question question{sizeof question, SUBLET_CREDIT_ABI, kind, 0,
                                          static_cast<std::uint64_t>(needed.count)};
    EXPECT_EQ(::send(socket.get(), &question, sizeof question, 0), static_cast<ssize_t>(sizeof question));
    return socket;
  }

  static Answered receive(const Fd& socket) {
    sublet_credit_answer said{};
    iovec part{&said, sizeof said};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(2 * sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    Answered answered;
    if (::recvmsg(socket.get(), &message, 0) != sizeof said) return answered;
    answered.result = said.result;
    const cmsghdr* files = CMSG_FIRSTHDR(&message);
    if (files == nullptr) return answered;
    std::array<int, 2> file{};
    std::memcpy(file.data(), CMSG_DATA(files), sizeof file);
    answered.limit = static_cast<sublet_limit_page*>(map(file[0], sizeof(sublet_limit_page), PROT_READ));
    answered.use = static_cast<sublet_use_page*>(map(file[1], sizeof(sublet_use_page), PROT_READ | PROT_WRITE));
    return answered;
  }
  static void* map(int file, std::size_t size, int protection) {
    void* at = ::mmap(nullptr, size, protection, MAP_SHARED, file, 0);
    EXPECT_NE(at, MAP_FAILED);
    ::close(file);
    return at;
  }

  Answered ask(sublet_credit_kind kind, Bytes needed = {}) {
    const Fd socket = send(kind, needed);
    settle();
    return receive(socket);
  }
  // Begins, and takes the pages as the library does.
  Answered begin(std::uint64_t charged = 0) {
    const Answered answered = ask(SUBLET_CREDIT_BEGIN);
    EXPECT_EQ(answered.result, SUBLET_CREDIT_GRANTED);
    if (answered.use == nullptr) return answered;
    answered.use->device[0].charged = charged;
    std::atomic_ref<std::uint32_t>(answered.use->size).store(sizeof *answered.use);
    return answered;
  }
  static Bytes credit(const Answered& pages) { return {static_cast<std::int64_t>(pages.limit->device[0].credit)}; }

  const std::string path_;
  const ProcessRef self_ = proc::ProcRoot::open()->read(::getpid())->ref;
  boost::asio::io_context io_;
  store::MemoryStore memory_;
  store::FaultyStore store_{memory_};
  Time now_{1'795'780'800'000'000'000};
  std::int64_t monotonic_ns_ = 1'000'000'000;
  ManualClock* clock_ = nullptr;
  OneCard* card_ = nullptr;
  std::optional<engine::Engine> engine_;
  std::optional<Limits> limits_;
};

TEST_F(LimitsTest, AProcessWithoutALeaseGetsNothing) {
  EXPECT_EQ(ask(SUBLET_CREDIT_BEGIN).result, SUBLET_CREDIT_UNKNOWN);
  EXPECT_EQ(ask(SUBLET_CREDIT_MORE, MiB).result, SUBLET_CREDIT_UNKNOWN);
}

TEST_F(LimitsTest, AProcessThatMayBelongToALeaseSoonWaitsForIt) {
  limits_->set_awaits([](std::int32_t pid) { return pid == ::getpid(); });
  const Fd early = send(SUBLET_CREDIT_BEGIN), late = send(SUBLET_CREDIT_BEGIN);
  settle();
  EXPECT_EQ(receive(early).result, std::nullopt);
  lease(1 * GiB);
  EXPECT_EQ(receive(early).result, SUBLET_CREDIT_GRANTED);
  EXPECT_EQ(receive(late).result, SUBLET_CREDIT_GRANTED);
}

TEST_F(LimitsTest, AProcessThatBelongsToNoLeaseAtLastGetsNothing) {
  bool awaited = true;
  limits_->set_awaits([&awaited](std::int32_t) { return awaited; });
  const Fd first = send(SUBLET_CREDIT_BEGIN);
  settle();
  advance(2s);
  EXPECT_EQ(receive(first).result, std::nullopt);
  advance(2s);
  EXPECT_EQ(receive(first).result, SUBLET_CREDIT_UNKNOWN) << "the library waits no longer";
  const Fd second = send(SUBLET_CREDIT_BEGIN);
  settle();
  awaited = false;
  advance(100ms);
  EXPECT_EQ(receive(second).result, SUBLET_CREDIT_UNKNOWN);
}

TEST_F(LimitsTest, AProcessThatLeavesBeforeItGetsItsPagesHasNoLimit) {
  const LeaseId id = lease(1 * GiB);
  send(SUBLET_CREDIT_BEGIN).reset();
  settle();
  EXPECT_EQ(limits_->lease_field("interposer", *core::find(engine_->state(), id)), "");
  EXPECT_EQ(ask(SUBLET_CREDIT_MORE, MiB).result, SUBLET_CREDIT_UNKNOWN);
  begin();
  EXPECT_EQ(ask(SUBLET_CREDIT_MORE, MiB).result, SUBLET_CREDIT_GRANTED);
}

TEST_F(LimitsTest, CreditIsStoredBeforeTheProcessGetsIt) {
  lease(1 * GiB);
  const Answered pages = begin();
  const Fd socket = send(SUBLET_CREDIT_MORE, 10 * MiB);
  turn();
  EXPECT_FALSE(receive(socket).result);
  EXPECT_EQ(credit(pages), Bytes{});
  const Fd second = send(SUBLET_CREDIT_MORE, 20 * MiB);
  turn();
  settle();
  EXPECT_EQ(receive(socket).result, SUBLET_CREDIT_GRANTED);
  EXPECT_EQ(receive(second).result, SUBLET_CREDIT_GRANTED);
  EXPECT_GE(credit(pages), 20 * MiB);
  EXPECT_EQ(ask(SUBLET_CREDIT_MORE, 2 * GiB).result, SUBLET_CREDIT_REFUSED);
}

TEST_F(LimitsTest, ASlowStoreHoldsUpNoAnswer) {
  lease(1 * GiB);
  const Answered pages = begin();
  const Fd first = send(SUBLET_CREDIT_MORE, 10 * MiB);
  turn();
  const Fd second = send(SUBLET_CREDIT_MORE, 20 * MiB);
  turn();
  clock_->advance(3s);
  card_->tell();
  turn();
  EXPECT_EQ(receive(first).result, SUBLET_CREDIT_REFUSED);
  EXPECT_EQ(receive(second).result, SUBLET_CREDIT_REFUSED);
  settle();
  EXPECT_GE(credit(pages), 10 * MiB) << "it is stored now";
}

TEST_F(LimitsTest, ADaemonThatIsKilledBeforeTheCommitHasGivenNothing) {
  lease(1 * GiB);
  const Answered pages = begin();
  const Fd socket = send(SUBLET_CREDIT_MORE, 10 * MiB);
  turn();
  restart();
  EXPECT_EQ(credit(pages), Bytes{});
  EXPECT_EQ(ask(SUBLET_CREDIT_MORE, 10 * MiB).result, SUBLET_CREDIT_UNKNOWN) << "it has no pages of this daemon";
  const Answered again = begin();
  EXPECT_EQ(credit(again), Bytes{});
  EXPECT_EQ(ask(SUBLET_CREDIT_MORE, 1 * GiB).result, SUBLET_CREDIT_GRANTED);
  EXPECT_EQ(credit(again), 1 * GiB);
}

TEST_F(LimitsTest, ADaemonThatIsKilledAfterTheCommitKnowsTheCredit) {
  lease(1 * GiB);
  const Answered pages = begin();
  ASSERT_EQ(ask(SUBLET_CREDIT_MORE, 600 * MiB).result, SUBLET_CREDIT_GRANTED);
  const Bytes before = credit(pages);
  restart();
  const Answered again = begin(static_cast<std::uint64_t>((500 * MiB).count));
  EXPECT_EQ(credit(again), before);
  ASSERT_EQ(ask(SUBLET_CREDIT_MORE, 1 * GiB).result, SUBLET_CREDIT_GRANTED);
  EXPECT_EQ(credit(again), 1 * GiB);
}

TEST_F(LimitsTest, AStoreThatFailsGivesNothingAndTakesNothing) {
  for (const auto fate : {store::FaultyStore::Fate::lost, store::FaultyStore::Fate::kept}) {
    const LeaseId id = lease(1 * GiB);
    const Answered pages = begin();
    ASSERT_EQ(ask(SUBLET_CREDIT_MORE, 10 * MiB).result, SUBLET_CREDIT_GRANTED);
    const Bytes before = credit(pages);
    store_.fail_commit(1, fate, unavailable("the disk is full"));
    EXPECT_NE(ask(SUBLET_CREDIT_MORE, 700 * MiB).result, SUBLET_CREDIT_GRANTED);
    for (int i = 0; i < 60; ++i) advance(1s);
    ASSERT_TRUE(engine_->store_problem().empty());
    EXPECT_EQ(credit(pages) > before, fate == store::FaultyStore::Fate::kept) << "the page has what is stored";
    EXPECT_EQ(ask(SUBLET_CREDIT_MORE, 1 * GiB).result, SUBLET_CREDIT_GRANTED);
    EXPECT_EQ(credit(pages), 1 * GiB);
    EXPECT_TRUE(engine_->decide(core::Release{.lease = id, .stop = false}));
    settle();
  }
}

TEST_F(LimitsTest, CountsAreKeptOverTheEndOfAProgramAndOfTheLease) {
  const LeaseId id = lease(1 * GiB);
  EXPECT_EQ(limits_->counts_of(id), nullptr);
  const Answered first = begin();
  first.use->shard[0].launches = 5;
  first.use->error[0] = {.code = 700, .reserved = 0, .count = 2};
  advance(1s);
  first.use->shard[0].launches = 7;
  const Answered again = begin();  // it executes another program
  again.use->shard[3] = {.launches = 10, .copied = 100, .allocated = 0, .reserved = {}};
  advance(1s);
  const credit::Counts expected{17, 100, 0, {{700, 2}}, 0};
  ASSERT_NE(limits_->counts_of(id), nullptr);
  EXPECT_EQ(*limits_->counts_of(id), expected);
  again.use->shard[3].launches = 3;  // no count becomes less
  advance(1s);
  EXPECT_EQ(*limits_->counts_of(id), expected);
  again.use->shard[3].launches = 4;
  EXPECT_TRUE(engine_->decide(core::Release{.lease = id, .stop = false}));
  settle();
  ASSERT_NE(limits_->counts_of(id), nullptr);
  EXPECT_EQ(limits_->counts_of(id)->launches, 18);
  EXPECT_EQ(limits_->counts().size(), 1U);
  EXPECT_EQ(limits_->counts().begin()->second, *limits_->counts_of(id));
}

TEST_F(LimitsTest, AnEndedLeaseTakesUnusedCreditBack) {
  const LeaseId id = lease(1 * GiB);
  const Answered pages = begin(static_cast<std::uint64_t>((100 * MiB).count));
  ASSERT_EQ(ask(SUBLET_CREDIT_MORE, 600 * MiB).result, SUBLET_CREDIT_GRANTED);
  EXPECT_NE(limits_->lease_field("interposer", *core::find(engine_->state(), id)), "");
  EXPECT_TRUE(engine_->decide(core::Release{.lease = id, .stop = false}));
  settle();
  EXPECT_EQ(credit(pages), 100 * MiB);
  EXPECT_EQ(ask(SUBLET_CREDIT_MORE, 200 * MiB).result, SUBLET_CREDIT_UNKNOWN);
}

}  // namespace
}  // namespace sublet::limit
