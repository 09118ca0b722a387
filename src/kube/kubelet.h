// SPDX-License-Identifier: Apache-2.0
// Connections to the kubelet and sockets for it, by gRPC. The only headers of gRPC are in this folder's door files.
#pragma once

#include "base/error.h"

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

namespace sublet::kube {

// A channel to the kubelet's socket. Its name is `localhost`: servers refuse the name that gRPC makes of a path.
std::shared_ptr<grpc::Channel> channel_to(const std::string& socket);

// A server on a socket, which is made anew. Only root may connect.
Result<std::unique_ptr<grpc::Server>> serve(const std::string& socket, std::initializer_list<grpc::Service*> services);

// The error as gRPC sends it: the detail and the hint in one line.
grpc::Status to_grpc(const Error& error);

}  // namespace sublet::kube
