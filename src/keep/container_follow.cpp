// SPDX-License-Identifier: Apache-2.0
#include "keep/container_follow.h"

#include "keep/capture.h"
#include "keep/elsewhere.h"
#include "keep/environment.h"
#include "proc/cgroup.h"
#include "proc/process_table.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

namespace sublet::keep {
namespace {

using namespace std::chrono_literals;
namespace fs = std::filesystem;

constexpr int quick_looks = 50;
constexpr int looks_until_told = quick_looks + 28;  // a minute: the engine may have to fetch the image
constexpr int deepest = 6;  // a user's own engine: below the user's slice and service

// Another user may make a group of any name in the groups that a service manager has left to that user.
bool is_ours(const std::string& directory) {
  struct stat found {};
  return ::lstat(directory.c_str(), &found) == 0 && S_ISDIR(found.st_mode) &&
         (found.st_uid == 0 || found.st_uid == ::geteuid());
}

std::vector<std::string> directories_of(const std::string& name) {
  const auto root = proc::ProcRoot::open();
  const auto hierarchies = root ? proc::find_hierarchies(*root) : Result<proc::Hierarchies>(root.error());
  std::vector<std::string> found;
  if (!hierarchies) return found;
  for (const proc::CgroupMount& mount : hierarchies->mounts)
    if (std::string directory = group_directory(mount.path, name); !directory.empty())
      found.push_back(std::move(directory));
  return found;
}

bool has_processes(const std::string& directory) {
  const auto inside = proc::processes_below(directory);
  return inside && (!inside->pids.empty() || inside->outside > 0);
}

std::map<std::string, std::string> as_map(const std::vector<std::string>& environment) {
  std::map<std::string, std::string> all;
  for (const std::string& entry : environment) {
    const auto equals = entry.find('=');
    if (equals != std::string::npos) all.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return all;
}

}  // namespace

std::string group_directory(const std::string& top, const std::string& name) {
  if (const std::string directory = top + "/" + name; is_ours(directory)) return directory;
  std::error_code ignored;
  fs::recursive_directory_iterator at(top + "/user.slice", fs::directory_options::skip_permission_denied, ignored), end;
  while (!ignored && at != end) {
    if (at->path().filename() == name && is_ours(at->path().string())) return at->path().string();
    if (at.depth() >= deepest || !at->is_directory(ignored)) at.disable_recursion_pending();
    at.increment(ignored);
  }
  return {};
}

// Names of directories such as "ID", "docker-ID.scope" and "libpod-ID.scope".
std::vector<std::string> containers_in(const std::string& directory) {
  constexpr std::size_t digits = 64;
  std::vector<std::string> ids;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    std::string name = entry.path().filename().string();
    if (name.ends_with(".scope")) name.resize(name.size() - 6);
    if (name.size() < digits || name.find("conmon") != std::string::npos || !is_ours(entry.path().string())) continue;
    name.erase(0, name.size() - digits);
    if (name.find_first_not_of("0123456789abcdef") == std::string::npos) ids.push_back(name);
  }
  return ids;
}

bool may_book_later(const client::Failure& failure) { return failure.passing() || failure.error.code == Code::Stale; }

ContainerFollow::ContainerFollow(const client::Endpoint& endpoint, Events& events, Listener listener,
                                 const client::Lease& lease, std::string token, Engine engine)
    : endpoint_(endpoint),
      listener_(std::move(listener)),
      lease_(lease.id),
      grace_(lease.stop_grace),
      token_(std::move(token)),
      engine_(std::move(engine)),
      timer_(events) {
  const std::string number = lease_.substr(lease_.rfind('-') + 1);
  group_ = fmt::format("sublet_{}_{}.slice", number, client::new_idempotency_key().substr(0, 8));
}

void ContainerFollow::look() {
  if (directories_.empty()) directories_ = directories_of(group_);
  const auto filled = std::ranges::find_if(directories_, has_processes);
  if (filled != directories_.end() && book(*filled)) return;
  if (++looks_ == looks_until_told)
    listener_.say(fmt::format("no container of {0} is seen on this machine; if it runs already, its memory counts as "
                              "unleased: sublet attach {0} --pid PID",
                              lease_));
  timer_.set(looks_ < quick_looks ? 100ms : 2s, [this] { look(); });
}

// True if nothing is left to try.
bool ContainerFollow::book(const std::string& directory) {
  client::Client client(endpoint_);
  const nlohmann::json body{{"cgroup", directory}};
  const auto reply = client.call(
      {"POST", fmt::format("/v1/leases/{}/attach", client::encode(lease_)), client::to_text(body), {}, token_}, 3s);
  if (reply) return true;
  if (may_book_later(reply.error())) return false;
  listener_.fail(fmt::format("the container is not booked to {}: {}", lease_, reply.error().error.detail));
  return true;
}

void ContainerFollow::finish() {
  timer_.clear();
  if (directories_.empty()) directories_ = directories_of(group_);
  for (const std::string& directory : directories_) {
    if (!has_processes(directory)) continue;
    for (const std::string& id : containers_in(directory)) {
      listener_.say(fmt::format("the container {} lives on after its client, and is ended", id.substr(0, 12)));
      end(id);
    }
    break;
  }
  for (const std::string& directory : directories_) ::rmdir(directory.c_str());  // an engine leaves it, if it made it
}

void ContainerFollow::end(const std::string& container) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(grace_).count();
  std::vector<std::string> stop{"/usr/bin/env"};
  stop.insert(stop.end(), engine_.words.begin(), engine_.words.end());
  stop.insert(stop.end(), {"stop", "-t", fmt::format("{}", seconds), container});
  const auto done = capture(stop, engine_.variables, grace_ + 30s);
  if (done && done->exit_status == 0) return;
  listener_.fail(fmt::format("the container {} may live on, and its memory counts as unleased then: end it by the stop "
                             "of its engine",
                             container.substr(0, 12)));
}

std::unique_ptr<ContainerFollow> follow_container(Launch& launch, Listener& listener, const client::Endpoint& endpoint,
                                                  Events& events, const client::Lease& lease, const std::string& token,
                                                  const nlohmann::json& status) {
  const auto container = container_run(launch.arguments);
  if (!container) return nullptr;
  const auto run_word = launch.arguments.begin() + static_cast<std::ptrdiff_t>(container->options) - 1;
  ContainerFollow::Engine engine{{launch.arguments.begin(), run_word}, as_map(launch.environment)};
  const std::string visible = engine.variables["CUDA_VISIBLE_DEVICES"];
  auto follow =
      std::make_unique<ContainerFollow>(endpoint, events, listener, lease, token, std::move(engine));
  launch.arguments = with_devices(launch.arguments, *container, ordered_devices(lease.devices, visible, status),
                                  follow->group());
  listener.ended = [&follow = *follow, next = std::move(listener.ended)](const std::string& how) {
    follow.finish();
    if (next) next(how);
  };
  if (!container->has_parent) follow->begin();
  return follow;
}

}  // namespace sublet::keep
