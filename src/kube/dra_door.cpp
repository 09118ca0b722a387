// SPDX-License-Identifier: Apache-2.0
#include "kube/dra_door.h"

#include "base/clock.h"
#include "base/log.h"
#include "client/http.h"
#include "dra.grpc.pb.h"
#include "kube/cdi.h"
#include "kube/dra_health.h"
#include "kube/groups.h"
#include "kube/kubelet.h"
#include "kube/pod_record.h"
#include "kube/prepared.h"
#include "kube/slice.h"
#include "kube/state_file.h"
#include "registration.grpc.pb.h"

#include <fmt/format.h>

#include <mutex>

namespace sublet::kube {
namespace {

namespace dra = k8s::io::kubelet::pkg::apis::dra::v1;

}  // namespace

struct DraDoor::Service final : dra::DRAPlugin::Service {
  Service(const Settings& its, const Daemon& of, const Pods& all)
      : settings(its), daemon(of), pods(all), health(its.node) {}

  const Settings& settings;
  const Daemon& daemon;
  const Pods& pods;
  DraHealth health;
  SocketServer server;
  std::mutex mutex;
  std::vector<Card> cards;  // under the mutex
  nlohmann::json published;

  std::string socket() const { return fmt::format("{}/plugins/{}/dra.sock", settings.kubelet_dir, driver_name); }

  std::vector<Card> known_cards() {
    const std::scoped_lock lock(mutex);
    return cards;
  }

  grpc::Status NodePrepareResources(grpc::ServerContext*, const dra::NodePrepareResourcesRequest* request,
                                    dra::NodePrepareResourcesResponse* answer) override {
    const std::int64_t deadline = monotonic_ns() + settings.start_wait.count();
    for (const dra::Claim& asked : request->claims()) {
      auto& into = (*answer->mutable_claims())[asked.uid()];
      auto devices = prepare({asked.namespace_(), asked.name(), asked.uid()}, deadline);
      if (devices) {
        for (dra::Device& device : *devices) *into.add_devices() = std::move(device);
      } else {
        log::warn("claim {}/{} is not prepared: {}", asked.namespace_(), asked.name(), devices.error().detail);
        into.set_error(in_one_line(devices.error()));
      }
    }
    return grpc::Status::OK;
  }

  // The same claim again gets the same lease, and its files anew: the directory of CDI is empty after a boot.
  Result<std::vector<dra::Device>> prepare(const ClaimName& name, std::int64_t deadline) {
    auto claim = read(name);
    if (!claim) return claim.error();
    if (claim->users.size() != 1)
      return bad_request(fmt::format("claim {}/{} is for {} pods", name.space, name.name, claim->users.size()),
                         "a lease belongs to one pod: give each pod a claim, by a ResourceClaimTemplate");
    const std::vector<Card> known = known_cards();
    auto size = size_of(*claim, known);
    if (!size) return size.error();
    auto pod = pods.read(claim->users.front().pod);
    if (!pod) return pod.error();
    if (pod->uid != claim->users.front().uid)
      return not_found(fmt::format("pod {} was replaced by another one of that name", to_text(pod->name)));
    for (const Prepared& other : all_prepared(settings.state_dir))
      if (other.pod_group_uid == pod->group_uid && other.claim.uid != name.uid)
        return bad_request(
            fmt::format("pod {} has the lease of its claim {} already", to_text(pod->name), other.claim.name),
            "a pod has one lease: ask for all of its memory in one claim");
    if (auto joined = pods.join_tenant(*pod); !joined) return joined.error();
    auto need = need_of(*claim, *size, *pod);
    if (!need) return need.error();
    if (auto kept = keep_record(settings.state_dir, *pod, directory_of_claim(settings.state_dir, name.uid)); !kept)
      return kept.error();
    // Before the lease, which would hold its memory while its files cannot be written.
    auto devices = hand_out(*claim, *size, known);
    if (!devices) return devices.error();
    auto held = daemon.take(*pod, *need, deadline);
    if (!held) return held.error();
    if (auto kept = remember(settings.state_dir, {name, pod->group_uid}); !kept) return kept.error();
    if (auto told = write_state(directory_of_claim(settings.state_dir, name.uid), *held); !told) return told.error();
    if (!held->has_memory())
      return Error{Code::Memory, fmt::format("{}; the pod starts once the lease has its memory", held->summary), {}};
    log::info("claim {}/{} of pod {}: {}", name.space, name.name, to_text(pod->name), held->summary);
    pods.tell_guard(*pod);
    return devices;
  }

  Result<Claim> read(const ClaimName& name) {
    if (!is_plain_uid(name.uid)) return bad_request("the claim has no uid");
    auto object = pods.api().get(fmt::format("/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}",
                                             client::encode(name.space), client::encode(name.name)));
    if (!object) return object.error();
    if (text_at(*object, {"metadata", "uid"}) != name.uid)
      return not_found(fmt::format("claim {}/{} was replaced by another one of that name", name.space, name.name));
    return parse_claim(*object, settings.node);
  }

  Result<Need> need_of(const Claim& claim, const ClaimSize& size, Pod& pod) {
    if (!claim.tier.empty()) pod.tier = claim.tier;
    if (claim.share > 0 && settings.interposer.empty())
      return bad_request("the claim has a share, and the agent gives containers no interposer, which keeps to it",
                         "start the agent with --interposer, or leave share out");
    Need need{size.vram, size.cards, {}, pausable_of(claim, pod), {}, claim.share};
    if (size.guaranteed) need.pausable = "no";
    if (size.guaranteed || claim.pausable == "no" || need.pausable != "no") pod.guard.clear();
    if (claim.class_tier.empty()) {
      auto tier = pods.tier(pod);
      if (!tier) return tier.error();
      need.tier = std::move(*tier);
    } else {
      need.tier = tier_of(pod, claim.class_tier);
    }
    auto group = pods.group(pod);
    if (!group) return group.error();
    need.group = std::move(*group);
    return need;
  }

  Result<std::vector<dra::Device>> hand_out(const Claim& claim, const ClaimSize& size, const std::vector<Card>& known) {
    auto environment = daemon.program_environment();
    if (!environment) return environment.error();
    std::vector<Card> used;
    for (const Card& card : known)
      if (std::ranges::count(size.cards, card.uuid) > 0) used.push_back(card);
    const std::string& uid = claim.name.uid;
    const Handout handout = make_handout(settings, used, *environment, directory_of_claim(settings.state_dir, uid));
    if (auto made = make_directory(settings.cdi_dir); !made) return made.error();
    if (auto written = write_file(cdi_file(settings.cdi_dir, uid), cdi_content(uid, handout).dump()); !written)
      return written.error();
    std::vector<dra::Device> devices;
    for (const ClaimedDevice& claimed : claim.devices) {
      dra::Device& device = devices.emplace_back();
      device.add_request_names(claimed.request);
      device.set_pool_name(claimed.pool);
      device.set_device_name(claimed.device);
      if (!claimed.share_id.empty()) device.set_share_id(claimed.share_id);
      device.add_cdi_device_ids(cdi_id(uid));
      for (const std::string& id : vendor_ids(settings.cdi_dir, used)) device.add_cdi_device_ids(id);
    }
    return devices;
  }

  grpc::Status NodeUnprepareResources(grpc::ServerContext*, const dra::NodeUnprepareResourcesRequest* request,
                                      dra::NodeUnprepareResourcesResponse* answer) override {
    for (const dra::Claim& asked : request->claims()) {
      auto& into = (*answer->mutable_claims())[asked.uid()];
      if (auto done = unprepare(asked.uid()); !done) into.set_error(in_one_line(done.error()));
    }
    return grpc::Status::OK;
  }

  // The daemon is away, or has not seen the end of a paused pod yet.
  static bool ends_with_its_pod(const Error& refusal) {
    return refusal.code == Code::Unavailable || refusal.code == Code::PauseUnsafe;
  }

  // Without a release this is a success, too: the deletion of a pod does not hang, and the lease ends with the pod's
  // control group.
  Status unprepare(const std::string& uid) {
    const auto prepared = recall(settings.state_dir, uid);
    if (prepared) {
      const auto leases = daemon.of_pods();
      if (leases) {
        if (const auto found = leases->find(prepared->pod_group_uid); found != leases->end())
          if (auto released = daemon.release(found->second.id); !released && !ends_with_its_pod(released.error()))
            return released;
      }
    }
    forget(settings.state_dir, settings.cdi_dir, uid);
    return {};
  }

  void stop() {
    health.end_streams();
    server.stop();
  }

  Status open() {
    if (server.is_open(socket())) return {};
    stop();
    return server.open(socket(), *this, &health);
  }
};

// The kubelet finds this socket, asks who is there, and tells the result.
struct DraDoor::Registration final : pluginregistration::Registration::Service {
  Registration(const Settings& its, std::string endpoint_) : settings(its), endpoint(std::move(endpoint_)) {}

  const Settings& settings;
  std::string endpoint;
  SocketServer server;

  std::string socket() const { return fmt::format("{}/{}-reg.sock", registry(settings), driver_name); }

  grpc::Status GetInfo(grpc::ServerContext*, const pluginregistration::InfoRequest*,
                       pluginregistration::PluginInfo* answer) override {
    answer->set_type("DRAPlugin");
    answer->set_name(driver_name);
    answer->set_endpoint(endpoint);
    answer->add_supported_versions("v1.DRAPlugin");
    return grpc::Status::OK;
  }

  grpc::Status NotifyRegistrationStatus(grpc::ServerContext*, const pluginregistration::RegistrationStatus* status,
                                        pluginregistration::RegistrationStatusResponse*) override {
    if (status->plugin_registered()) log::info("the kubelet knows {}", driver_name);
    else log::warn("the kubelet does not register {}: {}", driver_name, status->error());
    return grpc::Status::OK;
  }

  Status open() { return server.is_open(socket()) ? Status() : server.open(socket(), *this); }
};

DraDoor::DraDoor(const Settings& settings, const Daemon& daemon, const Pods& pods)
    : service_(std::make_unique<Service>(settings, daemon, pods)),
      registration_(std::make_unique<Registration>(settings, service_->socket())) {}

DraDoor::~DraDoor() {
  // The kubelet does not ask a driver whose file has gone.
  registration_->server.stop();
  service_->stop();
}

Status DraDoor::open() {
  if (auto opened = service_->open(); !opened) return opened;
  return registration_->open();
}

void DraDoor::set_cards(std::vector<Card> cards) {
  service_->health.set_cards(cards);
  const std::scoped_lock lock(service_->mutex);
  service_->cards = std::move(cards);
}

Status DraDoor::publish() {
  const std::vector<Card> cards = service_->known_cards();
  if (cards.empty()) return {};
  nlohmann::json spec = slice_spec(service_->settings.node, cards, service_->settings.rules);
  if (spec == service_->published) return {};
  auto done = publish_slice(service_->pods.api(), service_->settings.node, spec);
  if (!done) return done;
  log::info("the ResourceSlice {} tells {} cards", slice_name(service_->settings.node), spec["devices"].size());
  service_->published = std::move(spec);
  return {};
}

void DraDoor::review() {
  const auto prepared = all_prepared(service_->settings.state_dir);
  if (prepared.empty()) return;
  const auto leases = service_->daemon.of_pods();
  if (!leases) return;
  for (const Prepared& one : prepared) {
    if (leases->contains(one.pod_group_uid)) continue;
    const auto again = service_->prepare(one.claim, monotonic_ns());
    if (!again && again.error().code == Code::NotFound && !service_->read(one.claim))
      forget(service_->settings.state_dir, service_->settings.cdi_dir, one.claim.uid);
  }
}

}  // namespace sublet::kube
