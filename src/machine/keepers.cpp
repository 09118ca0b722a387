// SPDX-License-Identifier: Apache-2.0
#include "machine/keepers.h"

#include "base/fd.h"
#include "machine/actor.h"
#include "proc/detached.h"
#include "proc/process_table.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <array>
#include <cerrno>
#include <utility>

namespace sublet::machine {
namespace {

namespace asio = boost::asio;

Status make_directory(const std::string& path) {
  for (std::size_t slash = 0; slash != std::string::npos;) {
    slash = path.find('/', slash + 1);
    const std::string part = path.substr(0, slash);
    if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) return from_errno("cannot create " + part, errno);
  }
  return {};
}

class LocalKeepers final : public Keepers {
 public:
  LocalKeepers(asio::io_context& io, std::string program) : io_(io), program_(std::move(program)) {}

  void start(const KeeperOrder& order, Done done) override {
    auto begun = begin(order);
    if (!begun) return asio::post(io_, [done = std::move(done), error = begun.error()] { done(error); });
    auto pending = std::make_shared<Pending>(io_, std::move(*begun), std::move(done));
    pending->report.assign(pending->starting.report.release());
    wait(pending);
  }

 private:
  struct Pending {
    Pending(asio::io_context& io, proc::Detaching&& its, Done its_done)
        : report(io), starting(std::move(its)), done(std::move(its_done)) {}
    asio::posix::stream_descriptor report;
    proc::Detaching starting;
    Done done;
    std::array<char, 32> text{};
  };

  Result<proc::Detaching> begin(const KeeperOrder& order) const {
    if (order.uid != ::geteuid()) return denied(fmt::format("this daemon starts programs of uid {} only", ::geteuid()));
    if (auto made = make_directory(order.log_dir); !made) return made.error();
    return proc::detach(program_, {"--tag", order.tag, "--host", order.host}, order.document);
  }

  // The first process of the keeper says which process goes on, and ends.
  static void wait(const std::shared_ptr<Pending>& pending) {
    pending->report.async_read_some(
        asio::buffer(pending->text), [pending](const boost::system::error_code& error, std::size_t size) {
          pending->done(
              proc::finish_detaching(pending->starting, error ? "" : std::string_view(pending->text.data(), size)));
        });
  }

  asio::io_context& io_;
  std::string program_;
};

// A keeper asks the account database before it reports, and its user may stop it.
constexpr auto report_timeout = std::chrono::minutes(2);
constexpr std::size_t longest_report = 512;

class ActorKeepers final : public Keepers {
 public:
  ActorKeepers(asio::io_context& io, Actor& actor) : io_(io), actor_(actor) {}
  bool ready() const override { return actor_.ready(); }

  void start(const KeeperOrder& order, Done done) override {
    const auto document = proc::document_file(order.document);
    if (!document) return asio::post(io_, [done = std::move(done), error = document.error()] { done(error); });
    const int descriptor = document->get();
    actor_.fetch({.verb = actor::Verb::keep, .uid = order.uid}, {&descriptor, 1},
                 [&io = io_, user = order.user, done = std::move(done)](const actor::Reply& reply, Fd report) {
                   if (reply.code != actor::Code::ok) return done(refusal(user, reply));
                   if (!report) return done(unavailable("the actor sent no report of the keeper"));
                   wait(std::make_shared<Pending>(io, std::move(report), done));
                 });
  }

 private:
  struct Pending {
    Pending(asio::io_context& io, Fd&& its_report, Done its_done)
        : report(io, its_report.release()), deadline(io, report_timeout), done(std::move(its_done)) {}
    asio::posix::stream_descriptor report;
    asio::steady_timer deadline;
    Done done;
    std::array<char, longest_report> text{};
    std::size_t size = 0;
  };

  static Error refusal(const std::string& user, const actor::Reply& reply) {
    const std::string_view why = reply.path[0] != '\0' ? std::string_view(reply.path) : to_string(reply.code);
    return unavailable(fmt::format("the actor started no keeper for user {}: {}", user, why));
  }

  static void wait(const std::shared_ptr<Pending>& pending) {
    pending->deadline.async_wait([pending](const boost::system::error_code& error) {
      if (!error) pending->report.cancel();
    });
    read(pending);
  }

  // The report is one line. It ends without one if the keeper was killed.
  static void read(const std::shared_ptr<Pending>& pending) {
    pending->report.async_read_some(
        asio::buffer(pending->text.data() + pending->size, pending->text.size() - pending->size),
        [pending](const boost::system::error_code& error, std::size_t size) {
          pending->size += size;
          const std::string_view text(pending->text.data(), pending->size);
          if (!error && text.find('\n') == std::string_view::npos && text.size() < longest_report) return read(pending);
          pending->deadline.cancel();
          if (error == asio::error::operation_aborted) return pending->done(unavailable("the keeper did not report"));
          pending->done(proc::parse_report(text));
        });
  }

  asio::io_context& io_;
  Actor& actor_;
};

class NoKeepers final : public Keepers {
 public:
  NoKeepers(asio::io_context& io, std::string why) : io_(io), why_(std::move(why)) {}
  void start(const KeeperOrder&, Done done) override {
    asio::post(io_, [done = std::move(done), why = why_] { done(unavailable(why)); });
  }

 private:
  asio::io_context& io_;
  std::string why_;
};

}  // namespace

std::unique_ptr<Keepers> local_keepers(asio::io_context& io, std::string program) {
  return std::make_unique<LocalKeepers>(io, std::move(program));
}

std::unique_ptr<Keepers> actor_keepers(asio::io_context& io, Actor& actor) {
  return std::make_unique<ActorKeepers>(io, actor);
}

std::unique_ptr<Keepers> no_keepers(asio::io_context& io, std::string why) {
  return std::make_unique<NoKeepers>(io, std::move(why));
}

}  // namespace sublet::machine
