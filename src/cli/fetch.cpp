// SPDX-License-Identifier: Apache-2.0
#include "cli/fetch.h"

#include <fmt/format.h>

namespace sublet::cli {

Result<client::Client> connect(const Common& common) {
  auto endpoint = client::resolve_endpoint(common.host);
  if (!endpoint) return endpoint.error();
  if (common.verbose) say(common, "asking " + visible(endpoint->url()));
  return client::Client(*endpoint);
}

int exit_code(const client::Failure& failure) {
  switch (failure.kind) {
    case client::FailureKind::no_daemon:
    case client::FailureKind::lost: return kNoDaemon;
    case client::FailureKind::cancelled: return kFailed;
    case client::FailureKind::answered: break;
  }
  return exit_code(failure.error.code);
}

int fail(const Common& common, const client::Failure& failure) {
  if (common.json && !failure.text.empty()) fmt::print("{}\n", failure.text);
  print_error(failure.error.detail, failure.error.hint);
  return exit_code(failure);
}

int show(const Common& common, const std::string& target, const Render& render) {
  auto client = connect(common);
  if (!client) return fail(client.error());
  const auto reply = client->get(target);
  if (!reply) return fail(common, reply.error());
  if (common.json) {
    fmt::print("{}\n", reply->text);
    return kOk;
  }
  const auto body = client::parse(*reply);
  if (!body) return fail(common, body.error());
  const auto text = render(*body, *client);
  if (!text) return fail(text.error());
  fmt::print("{}", *text);
  return kOk;
}

int show_pages(const Common& common, const std::string& target, const std::string& list, const Render& render) {
  auto client = connect(common);
  if (!client) return fail(client.error());
  nlohmann::json whole;
  std::string next = target;
  for (bool first = true;; first = false) {
    const auto reply = client->get(next);
    if (!reply) return fail(common, reply.error());
    auto page = client::parse(*reply);
    if (!page) return fail(common, page.error());
    const std::string after = text_at(*page, "next");
    if (first) {
      if (common.json && after.empty()) return fmt::print("{}\n", reply->text), kOk;
      whole = std::move(*page);
    } else {
      for (auto& row : (*page)[list]) whole[list].push_back(std::move(row));
      whole["next"] = nullptr;
    }
    if (after.empty()) break;
    next =
        fmt::format("{}{}after={}", target, target.find('?') == std::string::npos ? '?' : '&', client::encode(after));
  }
  if (common.json) return fmt::print("{}\n", client::to_text(whole)), kOk;
  const auto text = render(whole, *client);
  if (!text) return fail(text.error());
  fmt::print("{}", *text);
  return kOk;
}

nlohmann::json ask_also(client::Client& client, const std::string& target) {
  const auto reply = client.get(target);
  if (!reply) return nullptr;
  const auto body = client::parse(*reply);
  return body ? *body : nlohmann::json();
}

void learn_devices(const nlohmann::json& body, Look& look) {
  for (const auto& device : list_at(body, "devices")) {
    const std::string id = text_at(device, "id");
    const auto& uuid = member(device, "uuid");
    if (uuid.is_string() && !id.empty()) look.device_names[uuid.get<std::string>()] = id;
  }
}

}  // namespace sublet::cli
