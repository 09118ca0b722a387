// SPDX-License-Identifier: Apache-2.0
#include "keep/document.h"

#include "client/client.h"

namespace sublet::keep {
namespace {

using nlohmann::json;

Document read(const json& from) {
  Document document;
  from.at("host").get_to(document.host);
  if (from.contains("session")) from.at("session").at("id").get_to(document.session);
  else from.at("program").at("tag").get_to(document.tag), from.at("program").at("number").get_to(document.number);
  from.at(document.session.empty() ? "program" : "session").at("start").get_to(document.start);
  const json& log = from.at("log");
  log.at("path").get_to(document.log_path);
  log.at("max_bytes").get_to(document.log_max_size.count);
  log.at("keep").get_to(document.log_keep);
  log.at("user_max_bytes").get_to(document.log_user_max.count);
  if (from.contains("drain")) {
    const json& process = from.at("drain");
    document.drain = ProcessRef{process.at("pid").get<std::int32_t>(), process.at("start_ticks").get<std::uint64_t>()};
    return document;
  }
  if (from.contains("hook")) {
    const json& hook = from.at("hook");
    document.hook = {hook.at("number").get<std::uint64_t>(),
                     std::chrono::milliseconds(hook.at("timeout_ms").get<std::int64_t>())};
  } else {
    document.request = from.at("request");
  }
  from.at("arguments").get_to(document.arguments);
  from.at("environment").get_to(document.environment);
  from.at("directory").get_to(document.directory);
  from.at("umask").get_to(document.umask);
  for (const json& limit : from.at("limits")) {
    Limit& taken = document.limits.emplace_back();
    limit.at("resource").get_to(taken.resource);
    limit.at("soft").get_to(taken.values.rlim_cur);
    limit.at("hard").get_to(taken.values.rlim_max);
  }
  return document;
}

}  // namespace

Result<Document> parse_document(std::string_view text) {
  try {
    Document document = read(json::parse(text));
    if (document.drain || !document.arguments.empty()) return document;
    return bad_request("the document has no arguments");
  } catch (const json::exception& wrong) {
    return bad_request(std::string("the document cannot be read: ") + wrong.what());
  }
}

std::string report_path(const Document& document) {
  const bool of_session = !document.session.empty();
  return (of_session ? "/v1/sessions/" + client::encode(document.session)
                     : "/v1/programs/" + client::encode(document.tag)) +
         "/report";
}

std::string variable(const Document& document, std::string_view name) {
  std::string value;
  for (const std::string& entry : document.environment) {
    const auto equals = entry.find('=');
    if (equals == name.size() && std::string_view(entry).substr(0, equals) == name) value = entry.substr(equals + 1);
  }
  return value;
}

}  // namespace sublet::keep
