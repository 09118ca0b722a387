// SPDX-License-Identifier: Apache-2.0
#include "engine/keepers.h"

#include "base/fd.h"
#include "proc/detached.h"
#include "proc/process_table.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>

#include <array>
#include <cerrno>
#include <utility>

namespace sublet::engine {
namespace {

namespace asio = boost::asio;

Status make_directory(const std::string& path) {
  for (auto slash = path.find('/', 1); slash <= path.size(); slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) return from_errno("cannot create " + part, errno);
    if (slash == std::string::npos) break;
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
    return proc::detach(program_, order.document);
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

std::unique_ptr<Keepers> no_keepers(asio::io_context& io, std::string why) {
  return std::make_unique<NoKeepers>(io, std::move(why));
}

}  // namespace sublet::engine
