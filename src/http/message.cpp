// SPDX-License-Identifier: Apache-2.0
#include "http/message.h"

#include <fmt/format.h>

namespace sublet::http {

std::string url_decode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto hex = [&](std::size_t at) {
      const char c = at < text.size() ? text[at] : 'x';
      if (c >= '0' && c <= '9') return c - '0';
      if (c >= 'a' && c <= 'f') return c - 'a' + 10;
      if (c >= 'A' && c <= 'F') return c - 'A' + 10;
      return -1;
    };
    if (text[i] == '%' && hex(i + 1) >= 0 && hex(i + 2) >= 0) {
      out += static_cast<char>(hex(i + 1) * 16 + hex(i + 2));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string_view to_string(Method method) {
  switch (method) {
    case Method::get: return "GET";
    case Method::post: return "POST";
    case Method::del: return "DELETE";
  }
  return "GET";
}

Status may_name_processes(const engine::Peer& peer, std::int64_t pid) {
  if (peer.tcp)
    return denied("a caller over TCP cannot act for a process of this machine", "use the daemon's Unix socket");
  if (pid != 1) return {};
  return bad_request("process 1 is the ancestor of every process, so the lease would own them all",
                     "name the program's own process");
}

Response as_json(int status, std::string text, std::string location) {
  return {status, nullptr, std::move(location), true, std::move(text), "application/json"};
}

Response as_json(Result<engine::Answered> answered) {
  if (!answered) return problem(answered.error());
  Response response = as_json(answered->status, std::move(answered->body));
  response.after = answered->after;
  return response;
}

namespace {

std::string_view usual_hint(Code code) {
  switch (code) {
    case Code::BadRequest: return "GET /v1/openapi.json describes the call";
    case Code::NotFound:
      return "`sublet ps --all`, `sublet gpus` and `sublet proclist` list leases, devices and processes";
    case Code::Denied: return "only the owner or an admin can do this";
    case Code::Unavailable: return "retry; `sublet status` and the daemon's log show the cause";
    case Code::Stale: return "read the lease again and check its state";
    case Code::TooLarge: return "`sublet gpus` shows each device's memory";
    default: return "`sublet why LEASE` shows the state of the lease; `sublet doctor` says what to do";
  }
}

}  // namespace

Response problem(const Error& error) { return problem(http_status(error.code), error); }

Response problem(int status, const Error& error) {
  Response response;
  response.status = status;
  response.of_leases = false;
  response.body = {{"type", fmt::format("urn:sublet:{}", to_string(error.code))},
                   {"title", std::string(to_string(error.code))},
                   {"status", response.status},
                   {"code", std::string(to_string(error.code))},
                   {"detail", error.detail},
                   {"hint", error.hint.empty() ? std::string(usual_hint(error.code)) : error.hint}};
  if (!error.numbers.empty()) response.body["numbers"] = error.numbers;
  return response;
}

Response durable_problem(const Error& error) {
  Response response = problem(error);
  response.of_leases = true;
  return response;
}

}  // namespace sublet::http
