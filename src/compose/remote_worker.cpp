// SPDX-License-Identifier: Apache-2.0
#include "compose/remote_worker.h"

#include "compose/protocol.h"
#include "compose/remote.h"

namespace sublet::compose {
namespace {

constexpr Duration margin = std::chrono::minutes(1);  // the worker ends a program that exceeds its own limit

// Keeps the coroutines' state alive until they have ended.
class RemoteWorker final : public Worker {
 public:
  RemoteWorker(boost::asio::io_context& io, RemoteOptions options)
      : remote_(std::make_shared<Remote>(io, std::move(options))) {
    remote_->start();
  }
  ~RemoteWorker() override { remote_->stop(); }

  void describe(const Sources& sources, Described done) override { remote_->describe(sources, std::move(done)); }
  void up(const Start& start, Done done) override {
    remote_->call("up", to_json(start), start.timeout * 2 + margin, std::move(done));
  }
  void pull(const Start& start, Done done) override {
    remote_->call("pull", to_json(start), start.timeout * 2 + margin, std::move(done));
  }
  void down(const Stop& stop, Done done) override {
    remote_->call("down", to_json(stop), stop.timeout * 2 + margin, std::move(done));
  }
  void watch(const std::vector<std::string>& projects) override { remote_->watch(projects); }
  void on_observation(std::function<void(const Observation&)> listener) override {
    remote_->observation = std::move(listener);
  }
  void on_engine(std::function<void(const Engine&)> listener) override {
    remote_->engine = std::move(listener);
    remote_->repeat_engine();
  }
  std::uint64_t logs(const LogQuery& query, Chunk chunk, Done done) override {
    return remote_->logs(query, std::move(chunk), std::move(done));
  }
  void stop_logs(std::uint64_t number) override { remote_->stop_logs(number); }

 private:
  std::shared_ptr<Remote> remote_;
};

}  // namespace

std::unique_ptr<Worker> remote_worker(boost::asio::io_context& io, RemoteOptions options) {
  return std::make_unique<RemoteWorker>(io, std::move(options));
}

}  // namespace sublet::compose
