// SPDX-License-Identifier: Apache-2.0
// An event in the form that a tool takes. Pure functions.
#pragma once

#include "events/target.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sublet::events {

// One event to send.
struct Event {
  std::string id;    // of /v1/events, "1f2e3d4c-17"; "test" for a test, "" for a gap
  std::string type;  // lease, device, …; gap, test
  nlohmann::json data;
  std::string host = {};  // name of the machine; "": not told
};

struct Message {
  std::string content_type;
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
};

// One line for people: "gpu-box: lease-3 granted: … (train, ana)". Without line breaks, at most 1500 bytes of UTF-8.
std::string sentence(const Event& event);

// The POST for a webhook, signed if it has a secret: Sublet-Signature is "sha256=" and the HMAC-SHA256 of the body, in
// hexadecimal digits (RFC 2104).
//   json     the event's object, with its id
//   ntfy     text, with the headers Title, Priority and Tags (docs.ntfy.sh/publish)
//   slack    {"text": …}, with &, < and > escaped (incoming webhooks)
//   discord  {"content": …}, without mentions (Execute Webhook)
Message message_for(const Webhook& webhook, const Event& event);

// The object that Redis readers get; `data` with the fields "id" and "host".
std::string object_of(const Event& event);

}  // namespace sublet::events
