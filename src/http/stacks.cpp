// SPDX-License-Identifier: Apache-2.0
// Stacks: the list, one stack, its settings and its logs. stack_acquire.cpp has their acquisitions.
#include "http/stacks.h"

#include "base/number.h"
#include "base/size_bounds.h"
#include "base/text.h"
#include "http/body.h"
#include "http/query.h"
#include "http/render.h"
#include "http/routes.h"
#include "store/secret.h"

#include <fmt/format.h>

#include <filesystem>

namespace sublet::http {
namespace {

using stacks::Entry;
using stacks::Settings;
using stacks::Stacks;

constexpr Duration look_at_most = std::chrono::seconds(1);  // the list is shown as known by then
constexpr std::size_t most_log = std::size_t{8} << 20;      // bytes that wait for a slow reader
constexpr int most_lines = 10'000;

json render_settings(const Settings& set) {
  json out = json::object();
  out["vram_bytes"] = set.vram ? json(set.vram->count) : json(nullptr);
  out["devices"] = set.devices ? json(*set.devices) : json(nullptr);
  out["tier"] = set.tier ? json(core::to_string(*set.tier)) : json(nullptr);
  out["exclusive"] = set.exclusive ? json(*set.exclusive) : json(nullptr);
  out["pausable"] = set.pausable ? json(*set.pausable) : json(nullptr);
  return out;
}

json time_or_null(const std::optional<Time>& time) { return time ? json(format_rfc3339(*time)) : json(nullptr); }

json text_or_null(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

std::string_view to_string(compose::Origin origin) {
  switch (origin) {
    case compose::Origin::directory: return "directory";
    case compose::Origin::config: return "config";
    case compose::Origin::adopted: return "adopted";
  }
  return "";
}

json render_error(const Error& error) { return {{"detail", error.detail}, {"hint", error.hint}}; }

// How the next lease of the stack would be, or why there can be none.
void add_plan(json& shown, const Entry& entry, const Stacks& stacks) {
  const auto rule = stacks.rule(entry);
  const auto size = rule ? stacks.size(entry) : Result<stacks::Size>(rule.error());
  shown["rule"] = rule ? json(stacks::to_string(*rule)) : json(nullptr);
  shown["error"] = !rule ? render_error(rule.error()) : !size ? render_error(size.error()) : json(nullptr);
  shown["vram_bytes"] = size ? json(size->vram.count) : json(nullptr);
  shown["devices"] = size ? json(size->devices) : json(nullptr);
  shown["tier"] = size ? json(core::to_string(size->tier)) : json(nullptr);
  shown["exclusive"] = size ? json(size->exclusive) : json(nullptr);
  shown["pausable"] = size ? json(size->pausable) : json(nullptr);
  shown["interposer"] = size ? json(size->interposer) : json(nullptr);
  shown["share"] = size && size->share > 0 ? json(size->share) : json(nullptr);
  shown["size_from"] = size ? json(stacks::to_string(size->source)) : json(nullptr);
}

void add_lease(json& shown, const Entry& entry, const engine::Engine& engine) {
  const core::Lease* lease = entry.stack.use.lease ? engine.find(entry.stack.use.lease) : nullptr;
  shown["lease"] = lease != nullptr ? json(to_string(lease->id)) : json(nullptr);
  shown["lease_state"] = lease != nullptr ? json(core::to_string(lease->state)) : json(nullptr);
  shown["granted_bytes"] = lease != nullptr && lease->granted_at ? json(lease->vram.count) : json(nullptr);
  json on = json::array();
  if (lease != nullptr)
    for (const std::string& uuid : lease->devices) {
      const core::Device* device = core::find_device(engine.state(), uuid);
      on.push_back(device != nullptr ? device->reading.id() : uuid);
    }
  shown["on"] = std::move(on);
}

json render_containers(const Entry& entry) {
  json rows = json::array();
  if (!entry.seen) return rows;
  for (const compose::Container& one : entry.seen->containers) {
    const bool ended = one.status == "exited" || one.status == "dead";
    rows.push_back({{"name", one.name},
                    {"service", one.service},
                    {"status", one.status},
                    {"health", text_or_null(one.health)},
                    {"exit_code", ended ? json(one.exit_code) : json(nullptr)},
                    {"ports", one.ports},
                    {"pid", one.pid > 0 ? json(one.pid) : json(nullptr)}});
  }
  return rows;
}

json ports_of(const Entry& entry) {
  json ports = json::array();
  if (!entry.seen) return ports;
  for (const compose::Container& one : entry.seen->containers)
    for (const std::string& port : one.ports) ports.push_back(port);
  return ports;
}

json queue_of(const Entry& entry, const engine::Engine& engine) {
  const core::Lease* lease = entry.stack.use.lease ? engine.find(entry.stack.use.lease) : nullptr;
  if (lease == nullptr || lease->state != core::LeaseState::queued) return nullptr;
  JsonText out;
  explain::Estimates estimates = engine.estimates();
  write_queue(out, *lease, engine, estimates);
  return json::parse(out.take(), nullptr, false);
}

// "chat" of /srv/chat, and of /srv/chat/compose.yaml.
std::string name_of_path(const std::string& path) {
  std::filesystem::path place(path);
  if (place.filename().empty()) place = place.parent_path();
  const auto kind = place.extension();
  return (kind == ".yml" || kind == ".yaml" ? place.parent_path() : place).filename().string();
}

// An absent field keeps the setting, and null removes it.
Status take_settings(const json& body, Settings& into) {
  json given = body.is_object() ? body : json::object();
  const auto removed = [&](const char* field) {
    const bool is_null = given.contains(field) && given[field].is_null();
    if (is_null) given.erase(field);
    return is_null;
  };
  if (removed("vram_bytes")) into.vram.reset();
  if (removed("devices")) into.devices.reset();
  if (removed("tier")) into.tier.reset();
  if (removed("exclusive")) into.exclusive.reset();
  if (removed("pausable")) into.pausable.reset();
  Body fields(given);
  if (const auto vram = fields.integer("vram_bytes", least_lease.count, 1LL << 62)) into.vram = Bytes{*vram};
  if (const auto devices = fields.integer("devices", 1, 1024)) into.devices = static_cast<int>(*devices);
  if (const auto exclusive = fields.boolean("exclusive")) into.exclusive = *exclusive;
  if (const auto pausable = fields.boolean("pausable")) into.pausable = *pausable;
  const auto tier = fields.text("tier");
  if (auto finished = fields.finish(); !finished) return finished;
  if (!tier) return {};
  into.tier = core::parse_tier(*tier);
  if (into.tier) return {};
  return bad_request(fmt::format("tier '{}' is unknown", printable(*tier)),
                     "one of critical, interactive, standard, batch, spot");
}

// Text of logs on its way to a reader.
struct Logs {
  explicit Logs(Stacks& stacks) : worker(stacks.worker()), lives(stacks.lives()) {}
  ~Logs() {
    if (number != 0 && !done && lives.lock()) worker.stop_logs(number);
  }
  Logs(const Logs&) = delete;
  Logs& operator=(const Logs&) = delete;

  void add(const std::string& more) {
    if (text.size() + more.size() <= most_log) text += more;
    else left_out = true;
  }
  std::string take() {
    std::string taken = std::exchange(text, {});
    if (std::exchange(left_out, false)) taken += "… the reader was too slow, and lines are left out\n";
    return taken;
  }

  compose::Worker& worker;
  std::weak_ptr<const bool> lives;  // expires before the worker
  std::uint64_t number = 0;
  std::string text;
  bool left_out = false;
  bool done = false;
};

Reply follow_logs(Stacks& stacks, const compose::LogQuery& query) {
  const auto logs = std::make_shared<Logs>(stacks);
  const std::weak_ptr<Logs> reader = logs;
  logs->number = stacks.worker().logs(
      query,
      [reader](const std::string& text) {
        if (const auto still = reader.lock()) still->add(text);
      },
      [reader](const Status& done) {
        const auto still = reader.lock();
        if (!still) return;
        still->done = true;
        if (!done) still->add("… " + done.error().detail + "\n");
      });
  return TextStream{.next = [logs] { return logs->take(); },
                    .follow = true,
                    .over = [logs] { return logs->done && logs->text.empty(); }};
}

Reply read_logs(Stacks& stacks, const compose::LogQuery& query) {
  return Later{[&stacks, query](std::function<void(Reply)> answer) {
    const auto logs = std::make_shared<Logs>(stacks);
    logs->number = stacks.worker().logs(
        query, [logs](const std::string& text) { logs->add(text); },
        [logs, answer = std::move(answer)](const Status& done) {
          logs->done = true;
          if (!done) {
            Error error = done.error();
            if (error.hint.empty()) error.hint = "sublet stack status shows the containers of a stack";
            return answer(problem(error));
          }
          answer(Response{200, nullptr, {}, false, logs->take(), "text/plain; charset=utf-8"});
        });
  }};
}

Error hinted(Error error) {
  if (error.hint.empty()) error.hint = "correct the cause, and repeat the call";
  return error;
}

}  // namespace

Result<Stacks*> stacks_of(const Capabilities& capabilities) {
  if (capabilities.stacks != nullptr) return capabilities.stacks;
  return switched_off("stacks are switched off", "stacks.enabled");
}

Result<const Entry*> find_stack(const Capabilities& capabilities, const std::string& name) {
  const auto stacks = stacks_of(capabilities);
  if (!stacks) return stacks.error();
  if (const Entry* entry = (*stacks)->find(name)) return entry;
  if (const Status known = (*stacks)->known(); !known) return known.error();
  std::vector<std::string_view> known;
  for (const auto& [each, entry] : (*stacks)->entries()) known.push_back(each);
  return not_found(fmt::format("there is no stack '{}'{}", printable(name), did_you_mean(name, known)),
                   "sublet stack ls lists all");
}

bool is_token_of(const std::string& token, const Entry& entry) {
  const std::string& hash = entry.stack.use.token_hash;
  return !token.empty() && !hash.empty() && store::is_secret(token, hash);
}

Status may_use_stack(const engine::Peer& peer, const std::string& token, const Entry& entry) {
  const std::string name = printable(entry.stack.name);
  if (!token.empty() && !is_token_of(token, entry))
    return denied(fmt::format("the token is not that of the acquisition of stack {}", name),
                  "send the token of the reply to the acquisition; it is void once the acquisition has ended");
  if (!token.empty() || !entry.stack.use.lease || peer.may_act_for(entry.stack.use.uid)) return {};
  return denied(fmt::format("user {} has acquired stack {}", entry.stack.use.user, name),
                "only that user, the token's holder or an admin can do this");
}

json render_stack(const Entry& entry, const Stacks& stacks, const engine::Engine& engine, bool detailed) {
  const stacks::Stack& stack = entry.stack;
  const bool acquired = stack.acquired();
  json shown{{"name", stack.name},
             {"state", entry.state()},
             {"since", stack.since == Time{} ? json(nullptr) : json(format_rfc3339(stack.since))},
             {"why", text_or_null(stack.why)},
             {"warning", text_or_null(entry.trouble)},
             {"user", acquired ? json(stack.use.user) : json(nullptr)},
             {"owner", acquired ? text_or_null(stack.use.owner) : json(nullptr)},
             {"ttl_seconds", acquired ? json(stack.use.ttl / std::chrono::seconds(1)) : json(nullptr)},
             {"expires_at", stacks.parked_since(stack) ? json(nullptr) : time_or_null(stack.use.expires_at)},
             {"origin", entry.found ? json(to_string(entry.found->origin)) : json(nullptr)},
             {"file", entry.found ? json(entry.found->file) : json(nullptr)},
             {"project", entry.found ? json(entry.found->project) : json(nullptr)},
             {"ports", ports_of(entry)}};
  add_plan(shown, entry, stacks);
  add_lease(shown, entry, engine);
  if (!detailed) return shown;
  shown["containers"] = render_containers(entry);
  if (json queue = queue_of(entry, engine); queue.is_object()) shown["queue"] = std::move(queue);
  shown["set"] = render_settings(stack.set);
  shown["peak_bytes"] = stack.peak.count;
  return shown;
}

Reply store_stack(engine::Engine& engine, const engine::Remember& remember, int status,
                  const std::function<json()>& shown) {
  return stored(engine, remember, "stack_changed", status, shown);
}

namespace {

Reply get_stacks(Call& call) {
  const auto found = stacks_of(call.capabilities);
  if (!found) return problem(found.error());
  return Later{[stacks = *found, &engine = call.engine](std::function<void(Reply)> done) {
    stacks->refresh(look_at_most, [stacks, &engine, done = std::move(done)] {
      json rows = json::array();
      for (const auto& [name, entry] : stacks->entries()) rows.push_back(render_stack(entry, *stacks, engine, false));
      Status may = stacks->available();
      if (may) may = stacks->known();
      const auto& there = stacks->container_engine();
      const json container_engine{{"version", there ? text_or_null(there->version) : json(nullptr)},
                                  {"compose", there ? text_or_null(there->program) : json(nullptr)},
                                  {"problem", may ? json(nullptr) : json(may.error().detail)}};
      done(Response{200, {{"stacks", std::move(rows)}, {"engine", container_engine}}, {}});
    });
  }};
}

Reply get_stack(Call& call) {
  const auto wait = query_wait(call.request);
  if (!wait) return problem(wait.error());
  const std::string since = query_value(call.request, "since");
  const auto stacks = stacks_of(call.capabilities);
  if (!stacks) return problem(stacks.error());
  const auto answer = [capabilities = call.capabilities, &engine = call.engine, name = call.args[0]]() -> Reply {
    const auto entry = find_stack(capabilities, name);
    if (!entry) return problem(entry.error());
    return Response{200, render_stack(**entry, *capabilities.stacks, engine, true), {}};
  };
  if (*wait > Duration{}) {
    const auto news = [stacks = *stacks, since, name = call.args[0]] {
      const Entry* entry = stacks->find(name);
      return entry == nullptr || entry->state() != since;
    };
    return WaitForNews{.news = news, .at_most = *wait, .hold = {}, .answer = answer};
  }
  return Later{[stacks = *stacks, answer](std::function<void(Reply)> done) {
    stacks->refresh(look_at_most, [answer, done = std::move(done)] { done(answer()); });
  }};
}

Reply post_stack(Call& call) {
  const auto stacks = stacks_of(call.capabilities);
  if (!stacks) return problem(stacks.error());
  Body body(call.request.body);
  const auto path = body.text("path", 4096);
  const auto name = body.text("name");
  if (auto finished = body.finish(); !finished) return problem(finished.error());
  if (!path || !path->starts_with('/'))
    return problem(bad_request("path is not an absolute path", "name a directory with a Compose file, or the file"));
  if (const Status may = call.engine.may_decide(); !may) return problem(may.error());
  const compose::Adopted wanted{name.value_or(name_of_path(*path)), *path};
  return Later{[stacks = *stacks, wanted, &engine = call.engine, remember = call.remember,
                capabilities = call.capabilities](std::function<void(Reply)> done) {
    stacks->adopt(wanted, [=, &engine, done = std::move(done)](const Status& adopted) {
      if (!adopted) return done(problem(adopted.error()));
      const auto entry = find_stack(capabilities, wanted.name);
      if (!entry) return done(problem(entry.error()));
      done(store_stack(engine, remember, 201, [&] { return render_stack(**entry, *stacks, engine, true); }));
    });
  }};
}

Reply post_stack_set(Call& call) {
  const auto entry = find_stack(call.capabilities, call.args[0]);
  if (!entry) return problem(entry.error());
  Settings settings = (*entry)->stack.set;
  if (const Status taken = take_settings(call.request.body, settings); !taken) return problem(taken.error());
  if (const Status may = call.engine.may_decide(); !may) return problem(may.error());
  Stacks& stacks = *call.capabilities.stacks;
  if (const Status done = stacks.set(call.args[0], settings); !done) return problem(done.error());
  return store_stack(call.engine, call.remember, 200, [&] { return render_stack(**entry, stacks, call.engine, true); });
}

// The images are as large as they are: the answer comes when they are there.
Reply post_stack_pull(Call& call) {
  Body body(call.request.body);
  if (auto finished = body.finish(); !finished) return problem(finished.error());
  const auto entry = find_stack(call.capabilities, call.args[0]);
  if (!entry) return problem(entry.error());
  if (const Status may = call.capabilities.stacks->available(); !may) return problem(may.error());
  return Later{[stacks = call.capabilities.stacks, &engine = call.engine, capabilities = call.capabilities,
                name = call.args[0]](std::function<void(Reply)> answer) {
    const auto pulled = [=, &engine](const Status& done) {
      const auto now = find_stack(capabilities, name);
      if (!done || !now) return answer(problem(done ? now.error() : hinted(done.error())));
      answer(Response{200, render_stack(**now, *stacks, engine, true), {}});
    };
    stacks->refresh(look_at_most, [stacks, name, pulled] { stacks->pull(name, pulled); });
  }};
}

Reply delete_stack(Call& call) {
  const auto entry = find_stack(call.capabilities, call.args[0]);
  if (!entry) return problem(entry.error());
  if (const Status may = call.engine.may_decide(); !may) return problem(may.error());
  if (const Status done = call.capabilities.stacks->remove(call.args[0]); !done) return problem(done.error());
  return store_stack(call.engine, call.remember, 200, [&] { return json{{"name", call.args[0]}}; });
}

Reply get_stack_logs(Call& call) {
  const auto entry = find_stack(call.capabilities, call.args[0]);
  if (!entry) return problem(entry.error());
  if (const Status may = may_use_stack(call.request.peer, call.request.lease_token, **entry); !may)
    return problem(may.error());
  const bool is_admin = call.request.peer.role == engine::Role::admin;
  // The containers of a failed start are gone, and their last lines are kept.
  if (!(*entry)->runs() && !(*entry)->last_lines.empty() && (is_admin || (*entry)->last_uid == call.request.peer.uid))
    return Response{200, nullptr, {}, false, (*entry)->last_lines, "text/plain; charset=utf-8"};
  if (!(*entry)->stack.use.lease && !is_admin)
    return problem(denied(fmt::format("stack {} is not acquired", printable(call.args[0])),
                          "then only an admin can read its logs; acquire it first"));
  compose::LogQuery query;
  query.project = !(*entry)->stack.project.empty() ? (*entry)->stack.project
                  : (*entry)->found                ? (*entry)->found->project
                                                   : "";
  query.service = query_value(call.request, "service");
  if (const std::string text = query_value(call.request, "lines"); !text.empty()) {
    const auto lines = parse_number<int>(text);
    if (!lines || *lines < 0 || *lines > most_lines)
      return problem(bad_request(fmt::format("lines={} is not a number from 0 to {}", printable(text), most_lines),
                                 "leave lines out for the last 80 of each container"));
    query.tail = *lines;
  }
  const auto follow = query_flag(call.request, "follow");
  if (!follow) return problem(follow.error());
  query.follow = follow->value_or(false);
  Stacks& stacks = *call.capabilities.stacks;
  return query.follow ? follow_logs(stacks, query) : read_logs(stacks, query);
}

constexpr Route table[] = {
    Route{Method::get, "/v1/stacks", Role::user, Scope::read, get_stacks},
    Route{Method::post, "/v1/stacks", Role::admin, Scope::admin, post_stack, "path,name", "WholeStack"},
    Route{Method::get, "/v1/stacks/{name}", Role::user, Scope::read, get_stack, "wait,since", "WholeStack"},
    Route{Method::del, "/v1/stacks/{name}", Role::admin, Scope::admin, delete_stack},
    Route{Method::post, "/v1/stacks/{name}/set", Role::admin, Scope::admin, post_stack_set,
          "vram_bytes,devices,tier,exclusive,pausable", "WholeStack"},
    Route{Method::post, "/v1/stacks/{name}/pull", Role::admin, Scope::admin, post_stack_pull, "", "WholeStack"},
    Route{Method::get, "/v1/stacks/{name}/logs", Role::user, Scope::read, get_stack_logs, "lines,service,follow"},
};

}  // namespace

const std::span<const Route> stack_routes = table;

}  // namespace sublet::http
