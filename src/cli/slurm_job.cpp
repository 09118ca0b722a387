// SPDX-License-Identifier: Apache-2.0
// Jobs of Slurm as values: their groups, sizes, comments and lost time. Pure functions.
#include "base/number.h"
#include "cli/output.h"
#include "cli/slurm.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::cli {
namespace {

using nlohmann::json;
using namespace std::chrono_literals;

constexpr std::string_view ours = "sublet: ", given = "; given back ", minutes = " min";

// Shards of a job on a node, in GiB.
constexpr std::int64_t most_shards = 1 << 20;
// Characters of a list of nodes: "gpu[01-04,7],big1".
constexpr std::string_view of_node_lists = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,-_[]";

std::optional<std::uint64_t> number_in(std::string_view text) { return parse_number<std::uint64_t>(text); }

std::vector<std::string_view> parts_of(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find(separator, at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

// "0,2-3"
void add_numbers(std::string_view list, std::vector<int>& into) {
  for (const std::string_view part : parts_of(list, ',')) {
    const auto first = parse_number<int>(part.substr(0, part.find('-')));
    const auto last = parse_number<int>(part.substr(part.rfind('-') + 1));
    for (int number = first.value_or(0); first && last && number <= std::min(*last, *first + 1024); ++number)
      into.push_back(number);
  }
}

// Calls `each` with the number and the end of every part "job_NUMBER" of the path.
template <typename Each>
void for_each_job(std::string_view path, const Each& each) {
  for (std::size_t at = 0; at < path.size();) {
    const auto end = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, end - at);
    if (part.starts_with("job_"))
      if (const auto job = number_in(part.substr(4))) each(*job, end);
    at = end + 1;
  }
}

Duration since(const json& lease, std::string_view from, Time until) {
  const auto at = time_at(lease, from);
  return at ? std::max<Duration>(until - *at, 0s) : 0s;
}

std::string comment_of(const json& lease, Time now, const std::function<std::string(Time)>& clock) {
  const std::string state = text_at(lease, "state");
  if (state == "queued") {
    const json& queue = member(lease, "queue");
    const auto eta = number_at(queue, "eta_seconds");
    return fmt::format("waits for memory, place {}{}", number_at(queue, "place").value_or(0),
                       eta ? fmt::format(", starts about {}", clock(now + std::chrono::seconds(*eta))) : "");
  }
  const json& pause = member(lease, "pause");
  if (!pause.is_object() || state == "active") return {};
  if (state == "poisoned") return "poisoned: its program can never run again";
  const std::string preemptor = text_at(pause, "preemptor");
  const auto until = time_at(pause, "until");
  return fmt::format("paused{}{}", preemptor.empty() ? "" : " for " + preemptor,
                     until ? ", back about " + clock(*until) : "");
}

}  // namespace

NodeShare parse_gres(std::string_view gres) {
  NodeShare share;
  while (!gres.empty()) {
    const auto open = gres.find('(');
    const auto end = gres.find(',', open < gres.find(',') ? gres.find(')', open) : 0);
    const std::string_view one = gres.substr(0, end), name = one.substr(0, one.find('('));
    gres.remove_prefix(end == std::string_view::npos ? gres.size() : end + 1);
    if (!name.starts_with("shard:")) continue;
    share.shards += std::clamp<std::int64_t>(parse_number<std::int64_t>(name.substr(name.rfind(':') + 1)).value_or(0),
                                             0, most_shards - share.shards);
    const auto at = one.find("(IDX:");
    if (at != std::string_view::npos) add_numbers(one.substr(at + 5, one.find(')') - at - 5), share.cards);
  }
  return share;
}

// Names and paths of the job stand in the same line, and its user chose them: two shares on one node are no share.
std::optional<NodeShare> share_of(std::string_view text, const std::string& node, const Expand& expand) {
  std::string list;
  std::optional<NodeShare> found;
  for (const std::string_view word : parts_of(text, ' ')) {
    if (word.starts_with("Nodes=")) list = word.substr(6);
    if (!word.starts_with("GRES=") || list.empty()) continue;
    if (list.starts_with('-') || list.find_first_not_of(of_node_lists) != std::string::npos) return std::nullopt;
    const auto names = list.find('[') == std::string::npos && list.find(',') == std::string::npos
                           ? std::vector<std::string>{list}
                           : expand(list);
    if (std::ranges::count(names, node) == 0) continue;
    if (found) return std::nullopt;
    found = parse_gres(word.substr(5));
  }
  return found;
}

std::string line_of_job(std::string_view text, std::uint64_t job) {
  std::string found;
  for (const std::string_view line : parts_of(text, '\n')) {
    if (!line.starts_with(fmt::format("JobId={} ", job))) continue;
    if (!found.empty()) return {};
    found = line;
  }
  return found;
}

// The user's words come after these: nobody else's job is addressed.
std::string address_of_job(std::string_view line, std::uint64_t job) {
  const auto words = parts_of(line, ' ');
  const auto number_at = [&words](std::size_t at, std::string_view name) {
    return words.size() > at && words[at].starts_with(name) ? number_in(words[at].substr(name.size())) : std::nullopt;
  };
  const auto array = number_at(1, "ArrayJobId="), task = number_at(2, "ArrayTaskId=");
  return array && task ? fmt::format("{}_{}", *array, *task) : fmt::format("{}", job);
}

std::string word_of_user(std::string_view text) {
  for (const std::string_view name : {"Account=", "AdminComment=", "TimeLimit=", "JobState="}) {
    const auto is_it = [name](std::string_view word) { return word.starts_with(name); };
    if (std::ranges::count_if(parts_of(text, ' '), is_it) > 1) return std::string(name);
  }
  return {};
}

std::optional<std::uint64_t> job_of_group(std::string_view path) {
  std::optional<std::uint64_t> found;
  for_each_job(path, [&found](std::uint64_t job, std::size_t) { found = job; });
  return found;
}

std::string group_of_job(std::string_view path, std::uint64_t job) {
  std::string found;
  for_each_job(path, [&](std::uint64_t number, std::size_t end) {
    if (number == job && found.empty()) found = path.substr(0, end);
  });
  return found;
}

std::optional<std::string> tenant_of_account(std::string_view accounts, std::string_view account) {
  std::string tenant(account);
  for (const std::string_view pair : parts_of(accounts, ',')) {
    const auto colon = pair.find(':');
    if (colon == 0 || colon >= pair.size() - 1) return std::nullopt;
    if (pair.substr(0, colon) == account) tenant = pair.substr(colon + 1);
  }
  return tenant;
}

std::optional<Bytes> parse_vram(const std::string& text) {
  const bool bare = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  std::string full = bare ? text + "GiB" : text;
  const char last = full.empty() ? '\0' : full.back();
  if (last == 'g' || last == 'G' || last == 'm' || last == 'M') full += "iB";
  const auto size = parse_size(full, true);
  if (!size) return std::nullopt;
  return *size;
}

std::vector<JobState> jobs_of(const json& leases, Time now, const std::function<std::string(Time)>& clock) {
  std::vector<JobState> jobs;
  for (const json& lease : list_at(leases, "leases")) {
    const json& owner = member(lease, "owner");
    if (text_at(owner, "kind") != "group" || text_at(lease, "state") == "ended") continue;
    const auto job = job_of_group(text_at(owner, "cgroup"));
    if (!job) continue;
    const Time granted = time_at(lease, "granted_at").value_or(now);
    const Duration waited = since(lease, "created_at", granted);
    const Duration parked = std::chrono::seconds(number_at(lease, "paused_seconds").value_or(0));
    jobs.push_back({*job, waited + parked, comment_of(lease, now, clock), text_at(lease, "tenant")});
  }
  return jobs;
}

AdminComment parse_comment(std::string_view comment) {
  AdminComment parsed;
  if (comment == "(null)") return parsed;
  const auto at = comment.find(ours);
  parsed.others = comment.substr(0, at);
  while (parsed.others.ends_with(' ')) parsed.others.pop_back();
  if (at == std::string_view::npos) return parsed;
  std::string_view text = comment.substr(at + ours.size());
  if (const auto back = text.rfind(given); back != std::string_view::npos && text.ends_with(minutes)) {
    const auto from = back + given.size();
    if (const auto number = number_in(text.substr(from, text.size() - minutes.size() - from)))
      parsed.given_minutes = static_cast<std::int64_t>(std::min<std::uint64_t>(*number, 1U << 30));
    text = text.substr(0, back);
  }
  parsed.text = text;
  return parsed;
}

std::string to_text(const AdminComment& comment) {
  return fmt::format("{}{}{}{}{}{}{}", comment.others, comment.others.empty() ? "" : " ", ours, comment.text, given,
                     comment.given_minutes, minutes);
}

std::optional<std::int64_t> minutes_of_limit(std::string_view limit) {
  const auto dash = limit.find('-');
  const auto days = dash == std::string_view::npos ? std::optional<std::uint64_t>(0) : number_in(limit.substr(0, dash));
  const auto parts = parts_of(dash == std::string_view::npos ? limit : limit.substr(dash + 1), ':');
  if (parts.size() != 3 || !days || *days > 100'000) return std::nullopt;
  const auto hours = number_in(parts[0]), minutes_left = number_in(parts[1]);
  if (!hours || !minutes_left || *hours > 100'000 || *minutes_left > 59) return std::nullopt;
  return static_cast<std::int64_t>((*days * 24 + *hours) * 60 + *minutes_left);
}

std::int64_t minutes_due(Duration lost, Duration ahead) {
  if (lost + ahead < 1s) return 0;
  return std::chrono::ceil<std::chrono::minutes>(lost + ahead).count();
}

}  // namespace sublet::cli
