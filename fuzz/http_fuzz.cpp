// SPDX-License-Identifier: Apache-2.0
// A whole connection: any bytes sent to a real session, on a real engine, on a store in memory. It answers in HTTP and
// never blames itself.
#include "base/log.h"
#include "engine/engine.h"
#include "fuzz.h"
#include "http/session.h"
#include "store/memory_store.h"

#include <boost/asio/co_spawn.hpp>

#include <sys/socket.h>
#include <unistd.h>

namespace {

using namespace sublet;
namespace asio = boost::asio;

// Not root, though an admin: nothing that the input names is a process of this user, so that nothing can be signalled.
constexpr std::uint32_t nobodys_uid = 4242;
constexpr int most_turns = 1000;

engine::Machine machine(asio::io_context& io) {
  engine::MachineOptions options;
  options.probe.helper = "/nonexistent/sublet-gpu";
  options.actor.socket = "/nonexistent/sublet-actor.sock";
  return engine::real_machine(io, options);
}

engine::Options options() {
  engine::Options options;
  options.exit_dir = "/nonexistent/exits";
  options.boot_id = "boot";
  return options;
}

std::string answer_to(std::string_view input) {
  asio::io_context io(1);
  store::MemoryStore store;
  engine::Engine engine(io, store, machine(io), options());
  FUZZ_CHECK(engine.start());
  int ends[2];
  FUZZ_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  asio::generic::stream_protocol::socket socket(io, asio::generic::stream_protocol(AF_UNIX, 0), ends[0]);
  const http::Limits limits;
  http::Usages usages;
  const engine::Peer peer{.uid = nobodys_uid, .pid = ::getpid(), .user = "fuzz", .role = engine::Role::admin};
  bool ended = false;
  asio::co_spawn(
      io,
      http::run_session(
          std::move(socket),
          {.engine = engine, .peer = peer, .id = 1, .usage = usages.of(peer.uid), .limits = limits, .usages = usages}),
      [&ended](const std::exception_ptr& failure) {
        ended = true;
        if (failure) std::rethrow_exception(failure);
      });
  (void)!::write(ends[1], input.data(), input.size());
  ::shutdown(ends[1], SHUT_WR);
  std::string output;
  for (int turn = 0; turn < most_turns && !ended; ++turn) {
    io.restart();
    const bool idle = io.poll() == 0;
    store.pump();
    char bytes[65536];
    const ssize_t got = ::read(ends[1], bytes, sizeof bytes);
    if (got > 0) output.append(bytes, static_cast<std::size_t>(got));
    if (idle && got <= 0 && turn > 3) break;  // it waits for time to pass
  }
  ::close(ends[1]);
  engine.stop();
  return output;
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const int quiet = [] {
    log::init("fuzz", false);
    return 0;
  }();
  (void)quiet;
  const std::string output = answer_to(text_of(data, size));
  if (output.empty()) return 0;
  FUZZ_CHECK(output.starts_with("HTTP/1."));
  const std::string status = output.substr(9, 3);
  FUZZ_CHECK(status[0] >= '2' && status[0] <= '4');
  return 0;
}
