// SPDX-License-Identifier: Apache-2.0
#include "kube/plugin_door.h"

#include "base/clock.h"
#include "base/log.h"
#include "device_plugin.grpc.pb.h"
#include "kube/handout.h"
#include "kube/kubelet.h"
#include "kube/pod_record.h"
#include "kube/state_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <optional>

namespace sublet::kube {
namespace {

using namespace std::chrono_literals;

constexpr const char* socket_name = "sublet-vram.sock";
constexpr std::int64_t longest_registration_s = 10;
// A stream whose reader has left is noticed after this time.
constexpr std::chrono::seconds stream_look = 5s;

std::vector<std::string> listed(const google::protobuf::RepeatedPtrField<std::string>& ids) {
  return {ids.begin(), ids.end()};
}

// One socket of a kubelet; the next kubelet makes another file of that name.
struct SocketFile {
  std::uint64_t inode = 0;
  std::int64_t changed_s = 0, changed_ns = 0;
  bool operator==(const SocketFile&) const = default;
};

// Unset: there is none.
std::optional<SocketFile> find_socket(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return std::nullopt;
  return SocketFile{info.st_ino, info.st_ctim.tv_sec, info.st_ctim.tv_nsec};
}

void fill(const Handout& handout, v1beta1::ContainerAllocateResponse& answer) {
  for (const auto& [name, value] : handout.environment) (*answer.mutable_envs())[name] = value;
  for (const MountedFile& file : handout.mounts) {
    v1beta1::Mount& mount = *answer.add_mounts();
    mount.set_host_path(file.host);
    mount.set_container_path(file.container);
    mount.set_read_only(file.read_only);
  }
  for (const std::string& node : handout.devices) {
    v1beta1::DeviceSpec& device = *answer.add_devices();
    device.set_host_path(node);
    device.set_container_path(node);
    device.set_permissions("rw");
  }
}

}  // namespace

struct PluginDoor::Service final : v1beta1::DevicePlugin::Service {
  Service(const Settings& its, const Daemon& of, const Pods& all) : settings(its), daemon(of), pods(all) {}

  const Settings& settings;
  const Daemon& daemon;
  const Pods& pods;
  SocketServer server;
  std::optional<SocketFile> enrolled;  // with the kubelet of this socket

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Card> cards;                         // under the mutex
  std::map<std::string, std::string> program_env;  // under the mutex
  std::uint64_t edition = 0;                       // of the cards
  std::uint64_t server_run = 0;                    // streams of an earlier server end

  std::string socket() const { return directory(settings) + "/" + socket_name; }
  std::string kubelet_socket() const { return directory(settings) + "/kubelet.sock"; }

  grpc::Status GetDevicePluginOptions(grpc::ServerContext*, const v1beta1::Empty*,
                                      v1beta1::DevicePluginOptions* answer) override {
    set_options(*answer);
    return grpc::Status::OK;
  }

  static void set_options(v1beta1::DevicePluginOptions& options) {
    options.set_pre_start_required(true);
    options.set_get_preferred_allocation_available(true);
  }

  grpc::Status ListAndWatch(grpc::ServerContext* context, const v1beta1::Empty*,
                            grpc::ServerWriter<v1beta1::ListAndWatchResponse>* writer) override {
    std::unique_lock lock(mutex);
    const std::uint64_t run = server_run;
    for (std::uint64_t told = 0; run == server_run && !context->IsCancelled();) {
      if (told == edition) {
        changed.wait_for(lock, stream_look);
        continue;
      }
      told = edition;
      const std::vector<Card> now = cards;
      lock.unlock();
      const bool written = writer->Write(list_of(now));
      lock.lock();
      if (!written) break;
    }
    return grpc::Status::OK;
  }

  v1beta1::ListAndWatchResponse list_of(const std::vector<Card>& all) const {
    v1beta1::ListAndWatchResponse list;
    for (const Card& card : all)
      for (std::int64_t number = 0; number < units_of(card, settings.rules); ++number) {
        v1beta1::Device& device = *list.add_devices();
        device.set_id(unit_id(card.uuid, number));
        device.set_health(card.healthy ? "Healthy" : "Unhealthy");
      }
    return list;
  }

  grpc::Status GetPreferredAllocation(grpc::ServerContext*, const v1beta1::PreferredAllocationRequest* request,
                                      v1beta1::PreferredAllocationResponse* answer) override {
    const std::vector<Card> known = known_cards();
    for (const auto& asked : request->container_requests()) {
      auto& into = *answer->add_container_responses();
      const auto chosen = choose_units(known, settings.rules, listed(asked.available_deviceids()),
                                       listed(asked.must_include_deviceids()), asked.allocation_size());
      for (const std::string& id : chosen) into.add_deviceids(id);
    }
    return grpc::Status::OK;
  }

  grpc::Status Allocate(grpc::ServerContext*, const v1beta1::AllocateRequest* request,
                        v1beta1::AllocateResponse* answer) override {
    const auto environment = known_environment();
    for (const auto& asked : request->container_requests()) {
      const std::vector<std::string> ids = listed(asked.devices_ids());
      const auto card = card_named(main_card(ids));
      if (!card) return to_grpc(card.error());
      if (const Bytes size = std::ssize(ids) * settings.rules.unit; size > card->capacity)
        return to_grpc({Code::TooLarge,
                        fmt::format("{} units are {}, and a lease on {} is at most {}", ids.size(), format_size(size),
                                    card->id, format_size(card->capacity)),
                        "ask for fewer units: a lease is on one card"});
      const std::string place = directory_of_units(settings.state_dir, ids);
      if (auto made = make_directory(place); !made) return to_grpc(made.error());
      fill(make_handout(settings, {*card}, environment, place), *answer->add_container_responses());
      log::debug("{} units on {} are handed out", ids.size(), card->id);
    }
    return grpc::Status::OK;
  }

  std::vector<Card> known_cards() {
    const std::scoped_lock lock(mutex);
    return cards;
  }

  std::map<std::string, std::string> known_environment() {
    const std::scoped_lock lock(mutex);
    return program_env;
  }

  Result<Card> card_named(const std::string& uuid) {
    for (const Card& card : known_cards())
      if (card.uuid == uuid) return card;
    return not_found(fmt::format("no card has the units of '{}'", uuid), "sublet status shows the cards of the node");
  }

  // Here and not in Allocate, which does not tell the pod. The kubelet repeats this call until it succeeds.
  grpc::Status PreStartContainer(grpc::ServerContext*, const v1beta1::PreStartContainerRequest* request,
                                 v1beta1::PreStartContainerResponse*) override {
    const std::int64_t deadline = monotonic_ns() + settings.start_wait.count();
    const std::vector<std::string> ids = listed(request->devices_ids());
    const auto held = take(ids, deadline);
    if (!held) {
      log::warn("a container with {} units may not start: {}", ids.size(), held.error().detail);
      return to_grpc(held.error());
    }
    const std::string place = directory_of_units(settings.state_dir, ids);
    if (auto made = make_directory(place); !made) return to_grpc(made.error());
    // A full disk does not keep a container of a running pod from its restart.
    if (auto told = write_state(place, *held); !told) {
      if (::access(fmt::format("{}/{}", place, state_file_name).c_str(), F_OK) != 0) return to_grpc(told.error());
      log::warn("{}", told.error().detail);
    }
    if (held->has_memory()) return grpc::Status::OK;
    return {grpc::StatusCode::UNAVAILABLE,
            fmt::format("{}; the container starts once the lease has its memory", held->summary)};
  }

  Result<Held> take(const std::vector<std::string>& ids, std::int64_t deadline) {
    auto units = pods.having(ids);
    if (!units) return units.error();
    auto pod = pods.read(units->name);
    if (!pod) return pod.error();
    if (auto joined = pods.join_tenant(*pod); !joined) return joined.error();
    auto need = pods.need(*pod, *units, ids);
    if (!need) return need.error();
    const std::string place = directory_of_units(settings.state_dir, ids);
    if (auto kept = keep_record(settings.state_dir, *pod, place); !kept) return kept.error();
    auto held = daemon.take(*pod, *need, deadline);
    if (held) log::info("pod {}: {}", to_text(pod->name), held->summary);
    if (held && held->has_memory()) pods.tell_guard(*pod);
    return held;
  }

  void stop() {
    {
      const std::scoped_lock lock(mutex);
      ++server_run;
    }
    changed.notify_all();
    server.stop();
  }

  Status open() {
    if (server.is_open(socket())) return {};
    stop();
    return server.open(socket(), *this);
  }

  Status tell_kubelet() const {
    const auto stub = v1beta1::Registration::NewStub(channel_to(kubelet_socket()));
    grpc::ClientContext context;
    context.set_deadline(gpr_time_from_seconds(longest_registration_s, GPR_TIMESPAN));
    v1beta1::RegisterRequest request;
    request.set_version("v1beta1");
    request.set_endpoint(socket_name);
    request.set_resource_name(resource_name(settings.rules.unit));
    set_options(*request.mutable_options());
    v1beta1::Empty answer;
    if (const grpc::Status status = stub->Register(&context, request, &answer); !status.ok())
      return unavailable(
          fmt::format("the kubelet takes no registration of {}: {}", request.resource_name(), status.error_message()),
          "the agent registers again when the kubelet starts; check --kubelet-dir");
    return {};
  }
};

PluginDoor::PluginDoor(const Settings& settings, const Daemon& daemon, const Pods& pods)
    : service_(std::make_unique<Service>(settings, daemon, pods)) {}
PluginDoor::~PluginDoor() { service_->stop(); }

Status PluginDoor::enrol() {
  service_->enrolled.reset();
  if (auto opened = service_->open(); !opened) return opened;
  const auto kubelet = find_socket(service_->kubelet_socket());
  auto told = service_->tell_kubelet();
  if (told) service_->enrolled = kubelet;
  return told;
}

bool PluginDoor::is_enrolled() const {
  return service_->enrolled && service_->enrolled == find_socket(service_->kubelet_socket()) &&
         service_->server.is_open(service_->socket());
}

void PluginDoor::set_cards(std::vector<Card> cards, std::map<std::string, std::string> program_env) {
  {
    const std::scoped_lock lock(service_->mutex);
    service_->program_env = std::move(program_env);
    if (service_->edition > 0 && service_->cards == cards) return;
    service_->cards = std::move(cards);
    ++service_->edition;
  }
  service_->changed.notify_all();
}

}  // namespace sublet::kube
