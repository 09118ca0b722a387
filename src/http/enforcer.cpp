// SPDX-License-Identifier: Apache-2.0
// The enforcer: records about processes without a lease, approvals, policies, and a preview of enforcement.
#include "enforcer/enforcer.h"

#include "base/number.h"
#include "base/text.h"
#include "http/body.h"
#include "http/query.h"
#include "http/routes.h"
#include "http/stored.h"
#include "machine/account.h"

#include <fmt/format.h>

namespace sublet::http {
namespace {

using enforcer::Enforcer;
using enforcer::Rule;
using enforcer::Subject;
using enforcer::Verdict;

constexpr std::string_view rules_changed = "enforcement_changed";

constexpr std::size_t most_rules = 1000;

Error enforcer_is_off() { return switched_off("the enforcer is switched off", "enforcer.enabled"); }

json render_rule(const Rule& rule) {
  json shown{{"id", rule.id},
             {"subject", enforcer::to_string(rule.subject)},
             {"by", rule.by},
             {"created_at", format_rfc3339(rule.at)}};
  if (rule.kind == Rule::Kind::policy) {
    shown["policy"] = enforcer::to_string(rule.policy);
    shown["graphics"] = rule.graphics;
  } else {
    shown["until"] = rule.until ? json(format_rfc3339(*rule.until)) : json(nullptr);
    shown["reason"] = rule.reason.empty() ? json(nullptr) : json(rule.reason);
  }
  return shown;
}

// The list of a table leaves out what only one verdict's page shows.
json render_short(const Verdict& verdict) {
  json shown = enforcer::describe(verdict);
  for (const char* field : {"holdings", "steps", "ancestry", "missing_record"}) shown.erase(field);
  return shown;
}

json render_sources(const Enforcer& enforcer) {
  json rows = json::array();
  for (const machine::LinkSource& source : enforcer.sources())
    rows.push_back({{"name", source.name}, {"works", source.works}, {"text", source.text}});
  return rows;
}

bool may_see(const Call& call, const Verdict& verdict) { return call.request.peer.may_act_for(verdict.record.uid); }

json rules_of(const Enforcer& enforcer, Rule::Kind kind, Time now) {
  json rows = json::array();
  for (const Rule& rule : enforcer.rules())
    if (rule.kind == kind && (!rule.until || now < *rule.until)) rows.push_back(render_rule(rule));
  return rows;
}

Result<std::optional<Subject>> subject_in_query(const Call& call) {
  const std::string text = query_value(call.request, "subject");
  if (text.empty()) return std::optional<Subject>();
  auto subject = enforcer::parse_subject(text);
  if (!subject) return subject.error();
  return std::optional<Subject>(std::move(*subject));
}

// A user may get an account later, so the rule is taken all the same.
std::string warning_of(const Subject& subject) {
  if (subject.kind != Subject::Kind::user || parse_number<std::uint32_t>(subject.value)) return {};
  if (machine::account_exists(subject.value).value_or(true)) return {};
  return fmt::format("there is no user '{}' on this machine now, so the rule is for nobody", printable(subject.value));
}

Reply store_rule(Call& call, Rule rule) {
  if (const Status may = call.engine.may_decide(); !may) return problem(may.error());
  Enforcer& enforcer = *call.capabilities.enforcer;
  if (enforcer.rules().size() >= most_rules && !enforcer.replaces(rule))
    return problem(Error{Code::Quota,
                         fmt::format("there are {} approvals and policies, which is the limit", most_rules),
                         "remove some: sublet approve --ls, sublet enforce ls",
                         {{"limit", static_cast<std::int64_t>(most_rules)}}});
  rule.by = call.request.peer.user;
  const Subject rule_subject = rule.subject;
  json shown = render_rule(enforcer.add(std::move(rule)));
  const std::string warning = warning_of(rule_subject);
  shown["warning"] = warning.empty() ? json(nullptr) : json(warning);
  return stored(call.engine, call.remember, rules_changed, 201, [&] { return shown; });
}

Reply remove_rule(Call& call, Rule::Kind kind) {
  if (call.capabilities.enforcer == nullptr) return problem(enforcer_is_off());
  const auto id = parse_number<std::uint64_t>(call.args[0]);
  if (const Status may = call.engine.may_decide(); !may) return problem(may.error());
  if (const Status done = call.capabilities.enforcer->remove(id.value_or(0), kind); !done) return problem(done.error());
  return stored(call.engine, call.remember, rules_changed, 200, [&] { return json{{"id", id.value_or(0)}}; });
}

Reply get_verdicts(Call& call) {
  if (call.capabilities.enforcer == nullptr) return problem(enforcer_is_off());
  const auto all = query_flag(call.request, "all");
  if (!all) return problem(all.error());
  const std::string text = query_value(call.request, "pid");
  const auto pid = parse_number<std::int32_t>(text);
  if (!text.empty() && (!pid || *pid < 1))
    return problem(
        bad_request(fmt::format("pid={} is no number of a process", printable(text)), "for example pid=4711"));
  json rows = json::array();
  const auto& verdicts = call.capabilities.enforcer->verdicts();
  for (auto entry = verdicts.rbegin(); entry != verdicts.rend(); ++entry) {
    const Verdict& verdict = entry->second;
    if (!may_see(call, verdict)) continue;
    if (pid ? verdict.record.process.pid != *pid : !verdict.open() && !all->value_or(false)) continue;
    rows.push_back(render_short(verdict));
  }
  return Response{200, {{"verdicts", std::move(rows)}}, {}};
}

Reply get_verdict(Call& call) {
  if (call.capabilities.enforcer == nullptr) return problem(enforcer_is_off());
  const auto id = parse_number<std::uint64_t>(call.args[0]);
  const auto& verdicts = call.capabilities.enforcer->verdicts();
  const auto found = id ? verdicts.find(*id) : verdicts.end();
  if (found == verdicts.end() || !may_see(call, found->second))
    return problem(not_found(fmt::format("there is no verdict '{}'", printable(call.args[0])),
                             "sublet verdicts --all lists them"));
  return Response{200, enforcer::describe(found->second), {}};
}

Reply get_enforcer(Call& call) {
  if (call.capabilities.enforcer == nullptr) return problem(enforcer_is_off());
  const Enforcer& enforcer = *call.capabilities.enforcer;
  const Time now = call.engine.now();
  return Response{200,
                  {{"policy", enforcer::to_string(enforcer.options().policy)},
                   {"interval_seconds", enforcer.options().interval / std::chrono::seconds(1)},
                   {"grace_seconds", enforcer.options().grace / std::chrono::seconds(1)},
                   {"sources", render_sources(enforcer)},
                   {"policies", rules_of(enforcer, Rule::Kind::policy, now)},
                   {"approvals", rules_of(enforcer, Rule::Kind::approval, now)}},
                  {}};
}

// Reads the records: nothing is decided and nothing is sent.
Reply get_enforcer_preview(Call& call) {
  if (call.capabilities.enforcer == nullptr) return problem(enforcer_is_off());
  const auto since = query_moment(call.request, "since", call.engine.now());
  if (!since) return problem(since.error());
  const auto subject = subject_in_query(call);
  if (!subject) return problem(subject.error());
  const Time from = *since ? (*since)->at : call.engine.now() - std::chrono::hours(24 * 7);
  json rows = json::array(), spared = json::array();
  for (const enforcer::Preview& each : call.capabilities.enforcer->preview(from, *subject)) {
    json row = render_short(*each.verdict);
    if (!each.spared.empty()) {
      row["spared_because"] = each.spared;
      spared.push_back(std::move(row));
      continue;
    }
    row["would_end_now"] = each.verdict->open();
    row["would_get_sigterm_at"] = format_rfc3339(each.term_at);
    row["would_get_sigkill_at"] = each.kill_at ? json(format_rfc3339(*each.kill_at)) : json(nullptr);
    rows.push_back(std::move(row));
  }
  return Response{
      200, {{"since", format_rfc3339(from)}, {"would_end", std::move(rows)}, {"spared", std::move(spared)}}, {}};
}

Reply post_approval(Call& call) {
  if (call.capabilities.enforcer == nullptr) return problem(enforcer_is_off());
  Body body(call.request.body);
  const auto text = body.text("subject", 1100);
  const auto ttl = body.integer("ttl_seconds", 1, 100LL * 366 * 86400);
  Rule rule{.kind = Rule::Kind::approval, .reason = body.text("reason", 1024).value_or("")};
  if (const Status read = body.finish(); !read) return problem(read.error());
  auto subject = enforcer::parse_subject(text.value_or(""));
  if (!subject) return problem(subject.error());
  rule.subject = std::move(*subject);
  if (ttl) rule.until = call.engine.now() + std::chrono::seconds(*ttl);
  return store_rule(call, std::move(rule));
}

Reply delete_approval(Call& call) { return remove_rule(call, Rule::Kind::approval); }

Reply post_policy(Call& call) {
  if (call.capabilities.enforcer == nullptr) return problem(enforcer_is_off());
  Body body(call.request.body);
  const auto text = body.text("subject", 1100);
  const auto word = body.text("policy");
  const bool graphics = body.boolean("graphics").value_or(false);
  if (const Status read = body.finish(); !read) return problem(read.error());
  auto subject = enforcer::parse_subject(text.value_or(""));
  if (!subject) return problem(subject.error());
  if (subject->kind != Subject::Kind::user && subject->kind != Subject::Kind::cgroup)
    return problem(bad_request(
        fmt::format("a policy is for a user or a control group, not for {}", printable(enforcer::to_string(*subject))),
        "write user:NAME or cgroup:PATH; sublet approve takes units and containers too"));
  const auto policy = enforcer::parse_policy(word.value_or(""));
  if (!policy)
    return problem(bad_request(fmt::format("'{}' is no policy", printable(word.value_or(""))),
                               "one of observe, warn, adopt, enforce"));
  return store_rule(
      call, {.kind = Rule::Kind::policy, .subject = std::move(*subject), .policy = *policy, .graphics = graphics});
}

Reply delete_policy(Call& call) { return remove_rule(call, Rule::Kind::policy); }

constexpr Route table[] = {
    Route{Method::get, "/v1/verdicts", Role::user, Scope::read, get_verdicts, "all,pid"},
    Route{Method::get, "/v1/verdicts/{id}", Role::user, Scope::read, get_verdict, "", "Verdict"},
    Route{Method::get, "/v1/enforcer", Role::user, Scope::read, get_enforcer},
    Route{Method::get, "/v1/enforcer/preview", Role::admin, Scope::read, get_enforcer_preview, "since,subject"},
    Route{Method::post, "/v1/approvals", Role::admin, Scope::admin, post_approval, "subject,ttl_seconds,reason",
          "Approval"},
    Route{Method::del, "/v1/approvals/{id}", Role::admin, Scope::admin, delete_approval, "", "RuleId"},
    Route{Method::post, "/v1/policies", Role::admin, Scope::admin, post_policy, "subject,policy,graphics",
          "PolicyRule"},
    Route{Method::del, "/v1/policies/{id}", Role::admin, Scope::admin, delete_policy, "", "RuleId"},
};

}  // namespace

const std::span<const Route> enforcer_routes = table;

}  // namespace sublet::http
