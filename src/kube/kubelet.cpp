// SPDX-License-Identifier: Apache-2.0
#include "kube/kubelet.h"

#include "kube/pods.h"
#include "kube/state_file.h"
#include "pod_resources.grpc.pb.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace sublet::kube {
namespace {

constexpr int longest_list = 64 << 20;
constexpr std::int64_t longest_question_s = 10;

}  // namespace

std::shared_ptr<grpc::Channel> channel_to(const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
  arguments.SetMaxReceiveMessageSize(longest_list);
  return grpc::CreateCustomChannel("unix://" + socket, grpc::InsecureChannelCredentials(), arguments);
}

bool SocketServer::is_open(const std::string& socket) const { return server_ && ::access(socket.c_str(), F_OK) == 0; }

Status SocketServer::open(const std::string& socket, grpc::Service& service, grpc::Service* second) {
  stop();
  if (auto made = make_directory(std::filesystem::path(socket).parent_path()); !made) return made;
  ::unlink(socket.c_str());
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix://" + socket, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  if (second != nullptr) builder.RegisterService(second);
  server_ = builder.BuildAndStart();
  if (!server_)
    return unavailable(fmt::format("no socket can be made at '{}'", socket),
                       "check --kubelet-dir, and that the agent runs as root");
  ::chmod(socket.c_str(), S_IRUSR | S_IWUSR);
  return {};
}

void SocketServer::stop() {
  if (server_) server_->Shutdown(gpr_time_from_seconds(0, GPR_TIMESPAN));
  server_.reset();
}

std::string in_one_line(const Error& error) {
  return error.hint.empty() ? error.detail : fmt::format("{}; {}", error.detail, error.hint);
}

grpc::Status to_grpc(const Error& error) {
  const auto code = error.code == Code::Unavailable  ? grpc::StatusCode::UNAVAILABLE
                    : error.code == Code::BadRequest ? grpc::StatusCode::INVALID_ARGUMENT
                                                     : grpc::StatusCode::FAILED_PRECONDITION;
  return {code, in_one_line(error)};
}

Result<std::vector<PodUnits>> list_pods(const std::string& kubelet_dir, const std::string& resource) {
  const std::string socket = kubelet_dir + "/pod-resources/kubelet.sock";
  const auto stub = v1::PodResourcesLister::NewStub(channel_to(socket));
  grpc::ClientContext context;
  context.set_deadline(gpr_time_from_seconds(longest_question_s, GPR_TIMESPAN));
  v1::ListPodResourcesResponse answer;
  if (const grpc::Status status = stub->List(&context, {}, &answer); !status.ok())
    return unavailable(fmt::format("the kubelet does not list its pods at {}: {}", socket, status.error_message()),
                       "check --kubelet-dir; the kubelet asks again");
  std::vector<PodUnits> pods;
  for (const v1::PodResources& listed : answer.pod_resources()) {
    PodUnits pod{{listed.namespace_(), listed.name()}, {}};
    for (const v1::ContainerResources& container : listed.containers()) {
      std::vector<std::string> ids;
      for (const v1::ContainerDevices& devices : container.devices())
        if (devices.resource_name() == resource)
          ids.insert(ids.end(), devices.device_ids().begin(), devices.device_ids().end());
      if (!ids.empty()) pod.containers.push_back(std::move(ids));
    }
    pods.push_back(std::move(pod));
  }
  return pods;
}

}  // namespace sublet::kube
