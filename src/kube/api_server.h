// SPDX-License-Identifier: Apache-2.0
// Calls to the API server of the cluster: JSON over HTTPS. Each call has a connection of its own. Blocks; any thread.
#pragma once

#include "base/error.h"
#include "base/units.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct ssl_ctx_st;

namespace sublet::kube {

struct ApiAddress {
  bool tls = true;
  std::string host;  // name or number, without brackets
  std::uint16_t port = 0;
  std::string path;  // before each target; without a slash at its end
};

// Parses "https://master.example:6443". Without TLS only loopback addresses are allowed, because the token crosses in
// plain text. "": the address in the environment of a pod.
Result<ApiAddress> parse_api_address(const std::string& url);

struct ApiReply {
  int status = 0;
  nlohmann::json body;  // null if the answer is no JSON
};

class ApiServer {
 public:
  // `token_file` is read at each call, because the kubelet renews it.
  ApiServer(ApiAddress address, std::string token_file, std::string ca_file);

  // The answer, if its status is 2xx. NotFound (404), InUse (409), Denied (401, 403), BadRequest (other 4xx), and
  // Unavailable if there is no answer or a 5xx.
  Result<nlohmann::json> call(std::string_view method, const std::string& target, const nlohmann::json& body = nullptr,
                              const char* content_type = "application/json") const;

  Result<nlohmann::json> get(const std::string& target) const { return call("GET", target); }
  Result<nlohmann::json> patch(const std::string& target, const nlohmann::json& body, const char* kind) const {
    return call("PATCH", target, body, kind);
  }

  static constexpr Duration longest_call = std::chrono::seconds(10);

 private:
  ApiAddress address_;
  std::string token_file_, ca_file_;

  Result<ApiReply> exchange(const std::string& request) const;
  Result<std::shared_ptr<ssl_ctx_st>> context() const;
};

// The kinds of a patch.
inline constexpr const char* strategic_patch = "application/strategic-merge-patch+json";
inline constexpr const char* merge_patch = "application/merge-patch+json";

}  // namespace sublet::kube
