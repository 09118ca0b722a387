// SPDX-License-Identifier: Apache-2.0
#include "cli/fetch.h"

#include "cli/render.h"
#include "cli/watch.h"

#include <fmt/format.h>

#include <sys/stat.h>

namespace sublet::cli {
namespace {

using namespace std::chrono_literals;
using client::FailureKind;

// A daemon whose store fails for a moment answers 503. After this time its reason is news.
constexpr Duration refused_for_long = 10s;

// The previous daemon crashed: otherwise its socket would be gone.
bool left_behind(const client::Endpoint& endpoint) {
  struct stat info {};
  return !endpoint.tcp() && ::stat(endpoint.path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode);
}

// With --json what stands on stderr may be for machines.
void tell(const Common& common, const std::string& text) {
  if (!common.json) say(common, visible("sublet: " + text));
}

client::Patience patience(const Common& common) {
  client::Patience patience;
  patience.say = [&common](const Error& error, Duration away) {
    tell(common, fmt::format("{}; no answer for {}, retrying every 5 s", error.detail, format_duration(away)));
  };
  patience.refused_limit = refused_for_long;
  return patience;
}

}  // namespace

Result<client::Client> connect(const Common& common) {
  auto endpoint = client::resolve_endpoint(common.host);
  if (!endpoint) return endpoint.error();
  if (common.verbose) say(common, "asking " + visible(endpoint->url()));
  return client::Client(*endpoint);
}

client::Answer<client::Reply> meet(const Common& common, client::Client& client, const MeetingTime& time) {
  const client::Request request{"GET", "/v1/status", {}, {}, {}};
  // A service manager accepts calls for a daemon that does not start.
  auto answer = client.call(request, std::min<Duration>(time.answer, std::chrono::seconds(3)));
  if (!answer && answer.error().kind == FailureKind::no_daemon && !left_behind(client.endpoint())) {
    if (client.pause(time.new_socket)) answer = client.call(request, time.answer);
  }
  const auto kind = answer ? FailureKind::answered : answer.error().kind;
  if (kind == FailureKind::lost || (kind == FailureKind::no_daemon && left_behind(client.endpoint()))) {
    tell(common, fmt::format("{}; retrying for {}, in case the daemon restarts", answer.error().error.detail,
                             format_duration(time.restart)));
    client::Patience brief;
    brief.limit = time.restart;
    answer = client.insist(request, brief, time.answer);
  }
  client.be_patient(patience(common));
  return answer;
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

Error in_flags(Error error, std::string_view verb) {
  using Named = std::pair<std::string_view, std::string_view>;
  static constexpr Named flags[] = {
      {"consumer", "--name"},           {"device", "--gpu"},          {"devices", "--gpus"},
      {"min_vram_bytes", "--min-vram"}, {"memory_bytes", "--memory"}, {"soft_bytes", "--soft"},
      {"restart", "--restart"},         {"share", "--share"},         {"name", "--name"},
      {"pausable", "--pausable"},       {"priority", "--priority"},   {"tag", "--tag"},
      {"tenant", "--tenant"},           {"tier", "--tier"},           {"ttl_seconds", "--ttl"},
      {"vram_bytes", "--vram"}};
  if (error.code != Code::BadRequest) return error;
  for (const auto& [field, flag] : flags) {
    if (error.detail.starts_with(fmt::format("{} is ", field))) error.detail.replace(0, field.size(), flag);
  }
  if (error.hint.starts_with("GET /v1/openapi.json")) error.hint = fmt::format("see: sublet {} --help", verb);
  return error;
}

namespace {

constexpr const char* usual_hint = "sublet doctor checks this machine and says what to do";

}  // namespace

int fail(const Common& common, const client::Failure& failure) {
  if (common.json && !failure.text.empty()) fmt::print("{}\n", failure.text);
  const Error error = in_flags(failure.error, common.verb);
  print_error(error.detail, error.hint.empty() ? usual_hint : error.hint);
  return exit_code(failure);
}

int fail(const Common& common, const Error& error) {
  if (common.json) {
    const std::string code(to_string(error.code));
    fmt::print("{}\n", client::to_text({{"type", "urn:sublet:" + code},
                                        {"title", code},
                                        {"status", http_status(error.code)},
                                        {"code", code},
                                        {"detail", error.detail},
                                        {"hint", error.hint.empty() ? usual_hint : error.hint}}));
  }
  return fail(error);
}

namespace {

std::string with_newline(std::string text) {
  if (!text.ends_with('\n')) text += '\n';
  return text;
}

client::Answer<Asked> ask(client::Client& client, const std::string& target) {
  const auto reply = client.get(target);
  if (!reply) return reply.error();
  auto body = client::parse(*reply);
  if (!body) return body.error();
  return Asked{std::move(*body), with_newline(reply->text)};
}

int show_asked(const Common& common, const std::function<client::Answer<Asked>(client::Client&)>& question,
               const Render& render) {
  auto client = connect(common);
  if (!client) return fail(client.error());
  const LookOnce look = [&](client::Client& daemon) -> client::Answer<std::string> {
    auto asked = question(daemon);
    if (!asked) return asked.error();
    if (common.json) return std::move(asked->text);
    auto text = render(asked->body, daemon);
    if (!text) return client::Failure{client::FailureKind::answered, text.error(), 0, {}};
    return std::move(*text);
  };
  if (common.watch) return watch(common, std::move(*client), look);
  const auto text = look(*client);
  if (!text) return fail(common, text.error());
  fmt::print("{}", *text);
  return kOk;
}

}  // namespace

client::Answer<Asked> ask_pages(client::Client& client, const std::string& target, const std::string& list) {
  auto whole = ask(client, target);
  if (!whole) return whole;
  std::string after = text_at(whole->body, "next");
  if (after.empty()) return whole;
  while (!after.empty()) {
    const char joint = target.find('?') == std::string::npos ? '?' : '&';
    auto page = ask(client, fmt::format("{}{}after={}", target, joint, client::encode(after)));
    if (!page) return page;
    for (auto& row : page->body[list]) whole->body[list].push_back(std::move(row));
    after = text_at(page->body, "next");
  }
  whole->body["next"] = nullptr;
  whole->text = with_newline(client::to_text(whole->body));
  return whole;
}

int show(const Common& common, const std::string& target, const Render& render) {
  return show_asked(
      common, [&](client::Client& client) { return ask(client, target); }, render);
}

int show_pages(const Common& common, const std::string& target, const std::string& list, const Render& render) {
  return show_asked(
      common, [&](client::Client& client) { return ask_pages(client, target, list); }, render);
}

Result<std::string> with_remark(const Common& common, Result<std::string> text, std::string_view remark) {
  if (!text || remark.empty()) return text;
  if (common.watch) return fmt::format("{}{}\n", *text, remark);
  say(common, remark);
  return text;
}

nlohmann::json ask_also(client::Client& client, const std::string& target) {
  const auto reply = client.get(target);
  if (!reply) return nullptr;
  const auto body = client::parse(*reply);
  return body ? *body : nlohmann::json();
}

std::string why_inactive(const Common& common, client::Client& client, const std::string& lease) {
  Look look = look_for(common);
  learn_devices(ask_also(client, "/v1/devices"), look);
  const std::string reason = whole_reason(ask_also(client, "/v1/leases/" + lease), look);
  const std::string more = fmt::format("sublet why {} tells what it waits for", lease);
  return reason.empty() ? "; " + more : fmt::format(" ({}); {}", reason, more);
}

std::string names_of(const Common& common, const std::vector<std::string>& uuids) {
  Look look;
  if (auto client = connect(common)) learn_devices(ask_also(*client, "/v1/devices"), look);
  std::string names;
  for (const std::string& uuid : uuids) names += (names.empty() ? "" : ", ") + device_name(uuid, look);
  return names;
}

void learn_devices(const nlohmann::json& body, Look& look) {
  for (const auto& device : list_at(body, "devices")) {
    const std::string id = text_at(device, "id");
    const auto& uuid = member(device, "uuid");
    if (uuid.is_string() && !id.empty()) look.device_names[uuid.get<std::string>()] = id;
  }
}

}  // namespace sublet::cli
