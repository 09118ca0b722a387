// SPDX-License-Identifier: Apache-2.0
// Leases in pages, the queue in pages, and why a lease is where it is.
#include "base/number.h"
#include "base/text.h"
#include "http/find_lease.h"
#include "http/query.h"
#include "http/render.h"
#include "http/routes.h"
#include "lease/reason_json.h"
#include "state/methods.h"

#include <fmt/format.h>
#include <set>

namespace sublet::http {
namespace {

using core::Lease;

// Only this many leases of a queue get estimates; later estimates would be useless.
constexpr std::size_t detailed_limit = 100;
constexpr std::size_t page_limit = 1000;  // rows of a page at most, and without `limit`

struct Page {
  std::size_t limit = page_limit;
  std::string after;  // `next` of the page before
};

Result<Page> read_page(const Request& request) {
  Page page;
  if (const auto given = request.query.find("after"); given != request.query.end()) page.after = given->second;
  const auto given = request.query.find("limit");
  if (given == request.query.end()) return page;
  page.limit = parse_number<std::size_t>(given->second).value_or(0);
  if (page.limit < 1 || page.limit > page_limit) {
    return bad_request(fmt::format("limit={} is not a number from 1 to {}", printable(given->second), page_limit),
                       "leave limit out, or give a number in this range");
  }
  return page;
}

Error no_place(const std::string& after) {
  return bad_request(fmt::format("after={} is not a position in this list", printable(after)),
                     "give the `next` of the previous page, or leave after out for the first page");
}

std::optional<std::uint64_t> number_behind(std::string_view text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  text.remove_prefix(prefix.size());
  return parse_number<std::uint64_t>(text);
}

// The live leases with an id above `after`, the first `limit` and one more if there are more, in order.
std::vector<const Lease*> live_above(const core::State& state, LeaseId after, std::size_t limit) {
  std::vector<const Lease*> found;
  for (const auto& [id, lease] : state.leases.by_id) {
    if (!lease.ended() && id > after) found.push_back(&lease);
  }
  const auto by_id = [](const Lease* a, const Lease* b) { return a->id < b->id; };
  const auto middle = found.begin() + static_cast<std::ptrdiff_t>(std::min(found.size(), limit + 1));
  std::partial_sort(found.begin(), middle, found.end(), by_id);
  found.erase(middle, found.end());
  return found;
}

// Writes a page of live leases; whether there are more.
bool write_live(JsonText& out, const engine::Engine& engine, const engine::Peer& viewer, LeaseId after,
                std::size_t limit, std::string& next) {
  const auto live = live_above(engine.state(), after, limit);
  const bool more = live.size() > limit;
  std::size_t detailed = 0;
  explain::Estimates estimates = engine.estimates();
  for (std::size_t i = 0; i < std::min(live.size(), limit); ++i) {
    const bool queued = engine.state().queue.contains(live[i]->id);
    const bool detail = live[i]->held_back_at || (queued && detailed++ < detailed_limit);
    write_lease(out, *live[i], engine, viewer, detail, &estimates);
  }
  if (more) next = to_string(live[limit - 1]->id);
  return more;
}

Response list(const char* name, JsonText rows, const std::string& next) {
  JsonText out;
  out.begin_object().key(name).raw(rows.end_array().text()).key("next");
  if (next.empty()) out.value(nullptr);
  else out.value(next);
  return as_json(200, out.end_object().take());
}

// "ended-1795276861000000000-12": after the lease that ended then.
std::string place_of(const Lease& lease) { return fmt::format("ended-{}-{}", lease.ended_at->ns, lease.id.number); }

std::optional<store::EndedBefore> parse_place(std::string_view text) {
  const auto dash = text.rfind('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto ended = number_behind(text.substr(0, dash), "ended-");
  const auto id = number_behind(text.substr(dash), "-");
  if (!ended || !id) return std::nullopt;
  return store::EndedBefore{Time{static_cast<std::int64_t>(*ended)}, LeaseId{*id}};
}

// The live ones first, by id, then those that have ended, the newest end first. The live ones are those of before the
// store is read: who ends in between is in both, and told once, instead of in neither.
Reply list_all(Call& call, const Page& page, LeaseId after_live, std::optional<store::EndedBefore> before) {
  engine::Engine& engine = call.engine;
  const engine::Peer& peer = call.request.peer;
  JsonText rows;
  rows.begin_array();
  std::set<LeaseId> told;
  if (!before) {
    for (const Lease* lease : live_above(engine.state(), after_live, page.limit)) told.insert(lease->id);
    std::string next;
    if (write_live(rows, engine, peer, after_live, page.limit, next)) return list("leases", std::move(rows), next);
  }
  return Later{[&engine, peer, page, before, rows, told](const std::function<void(Reply)>& done) {
    engine.commits().read([&engine, peer, page, before, rows, told, done](store::Reader& reader) {
      return [&engine, peer, rows, told, done, room = page.limit - told.size(),
              ended = reader.ended(page.limit + 1, std::nullopt, before)]() mutable {
        if (!ended) return done(problem(ended.error()));
        std::erase_if(*ended, [&told](const Lease& lease) { return told.contains(lease.id); });
        for (std::size_t i = 0; i < std::min(ended->size(), room); ++i) {
          write_lease(rows, (*ended)[i], engine, peer, false);
        }
        std::string next;
        if (ended->size() > room) {
          next = room > 0 ? place_of((*ended)[room - 1]) : fmt::format("ended-{}-{}", INT64_MAX, INT64_MAX);
        }
        done(list("leases", std::move(rows), next));
      };
    });
  }};
}

// The first `limit` waiting leases in their order, and behind them those that are held back, in the order of the places
// that are kept for them.
std::vector<const Lease*> waiting(const core::State& state, std::size_t limit) {
  std::vector<const Lease*> all;
  for (const LeaseId id : state.queue.in_order(limit)) all.push_back(core::find(state, id));
  if (all.size() == limit) return all;
  std::vector<std::pair<std::size_t, const Lease*>> held_back;
  for (const auto& [id, lease] : state.leases.by_id)
    if (lease.held_back_at) held_back.emplace_back(state.queue.place_of(lease), &lease);
  std::ranges::sort(held_back, {}, [](const auto& entry) { return std::pair(entry.first, entry.second->queued_at); });
  for (const auto& [place, lease] : held_back) all.push_back(lease);
  return all;
}

Reply get_leases(Call& call) {
  const auto page = read_page(call.request);
  if (!page) return problem(page.error());
  const auto all = query_flag(call.request, "all");
  if (!all) return problem(all.error());
  const bool with_ended = all->value_or(false);
  const auto before = with_ended ? parse_place(page->after) : std::nullopt;
  LeaseId after;
  if (!page->after.empty() && !before) {
    const auto id = parse_lease_id(page->after);
    if (!id) return problem(no_place(page->after));
    after = *id;
  }
  if (with_ended) return list_all(call, *page, after, before);
  JsonText rows;
  rows.begin_array();
  std::string next;
  write_live(rows, call.engine, call.request.peer, after, page->limit, next);
  return list("leases", std::move(rows), next);
}

// Pages are counted by rows: a lease that moves up between two pages may be missed or seen twice.
Reply get_queue(Call& call) {
  const auto page = read_page(call.request);
  if (!page) return problem(page.error());
  std::size_t skipped = 0;
  if (!page->after.empty()) {
    const auto place = number_behind(page->after, "place-");
    if (!place) return problem(no_place(page->after));
    skipped = std::min<std::uint64_t>(*place, 100'000'000);
  }
  const auto order = waiting(call.engine.state(), skipped + page->limit + 1);
  const std::size_t end = std::min(order.size(), skipped + page->limit);
  JsonText rows;
  rows.begin_array();
  explain::Estimates estimates = call.engine.estimates();
  for (std::size_t place = skipped; place < end; ++place) {
    const bool detail = place < detailed_limit || order[place]->held_back_at;
    write_lease(rows, *order[place], call.engine, call.request.peer, detail, &estimates);
  }
  return list("queue", std::move(rows), order.size() > end && end > skipped ? fmt::format("place-{}", end) : "");
}

Reply get_why(Call& call) {
  return with_lease(call, call.args[0], [&engine = call.engine, peer = call.request.peer](const Lease& lease) -> Reply {
    JsonText body;
    explain::Estimates estimates = engine.estimates();
    body.begin_object().key("lease");
    write_lease(body, lease, engine, peer, true, &estimates);
    body.key("queue");
    write_queue(body, lease, engine, estimates);
    body.key("helps").begin_array();
    for (const std::string& help : explain::what_would_help(engine.state(), engine.rules(), lease, engine.now())) {
      body.value(help);
    }
    body.end_array().key("pause_methods").begin_array();
    if (!lease.ended())
      for (const core::MethodChoice& its : core::method_choices(engine.state(), lease, engine.now())) {
        body.begin_object().field("method", core::to_string(its.method)).field("chosen", its.chosen);
        body.key("why_not");
        if (its.why_not.empty()) body.value(nullptr);
        else body.value(its.why_not);
        body.end_object();
      }
    body.end_array().key("reasons").begin_array();
    return Later{[&engine, body, id = lease.id](const std::function<void(Reply)>& done) {
      engine.commits().read([body, id, done](store::Reader& reader) {
        return [body, done, reasons = reader.reasons(id)]() mutable {
          if (!reasons) return done(problem(reasons.error()));
          for (const core::Reason& reason : *reasons) {
            body.begin_object().field("at", format_rfc3339(reason.at)).field("code", core::code(reason));
            body.field("kind", core::to_string(reason.kind)).field("text", core::text_of(reason));
            core::write_args(body.key("args"), reason.args);
            body.end_object();
          }
          done(as_json(200, body.end_array().end_object().take()));
        };
      });
    }};
  });
}

constexpr Route table[] = {
    Route{Method::get, "/v1/queue", Role::user, Scope::read, get_queue, "limit,after"},
    Route{Method::get, "/v1/leases", Role::user, Scope::read, get_leases, "limit,after,all"},
    Route{Method::get, "/v1/leases/{id}/why", Role::user, Scope::read, get_why, "", "Why"},
};

}  // namespace

const std::span<const Route> list_routes = table;

}  // namespace sublet::http
