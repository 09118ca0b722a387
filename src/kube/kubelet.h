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

// A server of one or two services on a socket. Only root may connect. The file goes with the server.
class SocketServer {
 public:
  bool is_open(const std::string& socket) const;  // false also if the kubelet has removed the file
  // Makes the socket anew.
  Status open(const std::string& socket, grpc::Service& service, grpc::Service* second = nullptr);
  void stop();  // ends all calls at once

 private:
  std::unique_ptr<grpc::Server> server_;
};

// The detail and the hint, as the kubelet shows them.
std::string in_one_line(const Error& error);
grpc::Status to_grpc(const Error& error);

}  // namespace sublet::kube
