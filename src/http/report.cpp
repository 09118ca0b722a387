// SPDX-License-Identifier: Apache-2.0
// GET /v1/report: usage and contention over a time. The past is read in slices, so that between two of them the store
// writes what was decided and the loop answers others.
#include "http/query.h"
#include "http/resources.h"
#include "http/usage.h"

#include <memory>
#include <unordered_set>

namespace sublet::http {
namespace {

using core::Lease;

constexpr std::size_t slice = 500;
constexpr std::size_t most = 100'000;  // leases of a report: more are left out, and it says so

struct Job {
  engine::Engine& engine;
  Usage usage;
  std::unordered_set<std::uint64_t> live;  // counted already: they may end while the past is read
  std::size_t read = 0;
  std::optional<Time> complete_since{};  // leases that ended by then are missing
  std::function<void(Reply)> done;
};

void miss(Job& job, Time until) {
  if (until > job.usage.window().from) job.complete_since = std::max(job.complete_since.value_or(until), until);
}

// Whether the past may hold more that matters.
bool take(Job& job, const std::vector<Lease>& ended, std::optional<store::EndedBefore>& place) {
  for (const Lease& lease : ended) {
    if (*lease.ended_at < job.usage.window().from) return false;
    if (!job.live.contains(lease.id.number)) job.usage.add(lease);
  }
  job.read += ended.size();
  if (ended.size() < slice) return false;
  place = store::EndedBefore{*ended.back().ended_at, ended.back().id};
  if (job.read < most) return true;
  miss(job, place->ended_at);
  return false;
}

void finish(Job& job, const std::string& by) {
  job.done(Response{200,
                    {{"from", format_rfc3339(job.usage.window().from)},
                     {"to", format_rfc3339(job.usage.window().to)},
                     {"by", by},
                     {"complete", !job.complete_since},
                     {"complete_since", format_rfc3339(job.complete_since.value_or(job.usage.window().from))},
                     {"rows", job.usage.rows()},
                     {"total", job.usage.total()}},
                    {}});
}

void read_on(const std::shared_ptr<Job>& job, std::string by, std::optional<store::EndedBefore> place) {
  job->engine.read_store([job, by = std::move(by), place](store::Reader& reader) mutable {
    // Runs on the store's thread, which owns the job meanwhile.
    auto ended = reader.ended(slice, std::nullopt, place);
    const bool more = ended && take(*job, *ended, place);
    std::optional<Error> failure;
    if (!ended) failure = ended.error();
    if (ended && !more) {
      // Last of all, so that what went while it was read counts as well.
      const auto forgotten = reader.forgotten();
      if (forgotten) miss(*job, *forgotten);
      else failure = forgotten.error();
    }
    return [job, by, place, more, failure] {
      if (failure) return job->done(problem(*failure));
      if (more) return read_on(job, by, place);
      finish(*job, by);
    };
  });
}

Result<UsageBy> parse_by(const std::string& text) {
  if (text == "user") return UsageBy::user;
  if (text == "consumer") return UsageBy::consumer;
  if (text == "tenant") return UsageBy::tenant;
  return bad_request(fmt::format("by={} is not one of user, consumer, tenant", printable(text)),
                     "for example by=consumer");
}

}  // namespace

Reply get_report(Call& call) {
  std::string by = "user";
  if (const auto given = call.request.query.find("by"); given != call.request.query.end()) by = given->second;
  const auto parsed_by = parse_by(by);
  if (!parsed_by) return problem(parsed_by.error());
  Duration since = std::chrono::hours(24);
  if (const std::string text = query_value(call.request, "since"); !text.empty()) {
    const auto parsed = parse_duration(text);
    if (!parsed) return problem(parsed.error());
    since = *parsed;
  }
  if (since < std::chrono::seconds(1) || since > std::chrono::hours(24 * 3650)) {
    return problem(bad_request("since is not between 1s and 3650d", "for example since=24h"));
  }
  return Later{[&engine = call.engine, since, by, parsed_by = *parsed_by](std::function<void(Reply)> done) {
    const Time now = engine.now();
    auto job = std::make_shared<Job>(
        Job{.engine = engine, .usage = Usage({now - since, now}, parsed_by), .live = {}, .done = std::move(done)});
    for (const auto& [id, lease] : engine.state().leases()) {
      job->usage.add(lease);
      job->live.insert(id.number);
    }
    read_on(job, by, std::nullopt);
  }};
}

}  // namespace sublet::http
