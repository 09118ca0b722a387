// SPDX-License-Identifier: Apache-2.0
#include "cli/top_view.h"
#include "base/size_bounds.h"

#include "cli/render.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::cli {

using nlohmann::json;

namespace {

using Lines = std::vector<TopLine>;

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

void head(Lines& out, const TopData& data, const Look& look) {
  const auto& daemon = member(data.status, "daemon");
  const auto since = time_at(daemon, "since");
  std::string line = fmt::format("sublet top   {}Z", format_rfc3339(look.now).substr(11, 8));
  if (since) line += fmt::format("   subletd {} up {}", text_at(daemon, "version"), compact(look.now - *since));
  if (const std::string counts = counts_phrase(member(data.status, "leases")); !counts.empty()) line += "   " + counts;
  if (const auto wanted = number_at(data.status, "waiting_bytes").value_or(0); wanted > 0)
    line += fmt::format("   {} requested", format_size_down(Bytes{wanted}));
  out.push_back({line, Paint::bold});
  if (const std::string parked = parked_phrase(data.status); !parked.empty()) out.push_back({parked, Paint::cyan});
  if (const std::string tenants = tenants_phrase(data.tenants); !tenants.empty()) out.push_back({tenants});
  if (!data.problem.empty()) out.push_back({fmt::format("! {}; retrying", data.problem), Paint::red});
  for (const auto& warning : list_at(data.status, "warnings")) {
    out.push_back({fmt::format("! {}: {}", text_at(warning, "code"), text_at(warning, "text")), Paint::red});
  }
}

// "▁▁▃▅█": used memory of a device in the last hour, of its total; "" if it is not known.
std::string sparkline(const json& past, const std::string& device, std::size_t columns) {
  static constexpr std::string_view levels[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  for (const json& each : list_at(member(past, "series"), "devices")) {
    const double total = static_cast<double>(number_at(each, "total_bytes").value_or(0));
    const json& points = list_at(each, "points");
    if (text_at(each, "device") != device || total <= 0 || points.empty()) continue;
    const std::size_t count = std::min(columns, points.size());
    std::string out;
    for (std::size_t i = 0; i < count; ++i) {
      const auto used = number_at(points[i * points.size() / count], "used_bytes");
      const double part = static_cast<double>(used.value_or(0)) / total;
      const auto level = static_cast<std::size_t>(std::clamp(part * 8, 0.0, 7.0));
      out += used ? levels[level] : " ";
    }
    return out;
  }
  return {};
}

void devices(Lines& out, const TopData& data, std::size_t columns) {
  const json& status = data.status;
  for (const auto& device : list_at(status, "devices")) {
    const bool well = text_at(device, "state") == "ok";
    std::string numbers =
        fmt::format(" {} free of {}", size_at_most(device, "effective_free_bytes"), size_at(device, "total_bytes"));
    if (!well) numbers = fmt::format(" {}", text_at(device, "state"));  // what is not known is not zero
    else if (number_at(device, "other_bytes").value_or(0) > 0)
      numbers += fmt::format(", {} unleased", size_at(device, "other_bytes"));
    const std::string name = fmt::format("{:<5} ", text_at(device, "id"));
    const std::size_t taken = name.size() + numbers.size() + 3;
    const std::size_t width = columns > taken + 10 ? std::min<std::size_t>(columns - taken, 100) : 10;
    out.push_back({fmt::format("{}{}{}", name, device_bar(device, width), numbers), well ? Paint::none : Paint::red});
    if (const std::string condition = condition_text(device); well && !condition.empty())
      out.push_back({"      " + condition, Paint::dim});
    const std::string used = sparkline(data.past, text_at(device, "id"), std::min<std::size_t>(width, 60));
    if (!used.empty()) out.push_back({fmt::format("      {}  used, last hour", used), Paint::dim});
    const std::string problem = text_at(device, "problem");
    if (!problem.empty()) out.push_back({"      " + problem, Paint::red});
    if (const std::string service = service_text(device); !service.empty())
      out.push_back({"      " + service, Paint::yellow});
  }
  if (list_at(status, "devices").empty()) out.push_back({"the daemon knows no device", Paint::yellow});
  else out.push_back({"  # leased, used  = leased, unused  x unleased  . free  blank: driver, headroom", Paint::dim});
}

std::int64_t number(const json& row, const char* key) { return number_at(row, key).value_or(0); }

// Those that wait stay last and in the queue's order, whatever the rest is sorted by.
json sorted(const json& leases, TopSort sort) {
  json rows = leases;
  const auto waits = [](const json& row) { return text_at(row, "state") == "queued"; };
  std::stable_sort(rows.begin(), rows.end(), [&](const json& a, const json& b) {
    if (waits(a) != waits(b)) return waits(b);
    if (waits(a)) return number(member(a, "queue"), "place") < number(member(b, "queue"), "place");
    switch (sort) {
      case TopSort::order: return false;
      case TopSort::vram: return number(a, "vram_bytes") > number(b, "vram_bytes");
      case TopSort::used: return number(a, "used_bytes") > number(b, "used_bytes");
      case TopSort::age: return text_at(a, "created_at") < text_at(b, "created_at");
      case TopSort::user: return text_at(a, "user") < text_at(b, "user");
    }
    return false;
  });
  return {{"leases", rows}};
}

Paint paint_of(const json& row) {
  const std::string state = text_at(row, "state");
  if (state == "queued") return Paint::yellow;
  if (state == "poisoned") return Paint::red;
  return state == "active" ? Paint::green : Paint::cyan;
}

// The heading first, then the rows that scroll.
Lines table(const TopData& data, TopSort sort, const Look& look) {
  Look plain = look;
  plain.color = false;
  const json rows = sorted(list_at(data.leases, "leases"), sort);
  Common common;
  plain.width = 0;  // cut by fit()
  common.columns = {"id", "name", "user", "state", "gpu", "vram", "used", "age", "reason"};
  const auto tagged = [](const json& row) { return !text_at(row, "tag").empty(); };
  if (std::any_of(rows["leases"].begin(), rows["leases"].end(), tagged))
    common.columns.insert(common.columns.begin() + 2, "tag");
  const auto text = render_leases(rows, common, plain);
  Lines out;
  const auto lines = text ? split(*text) : std::vector<std::string>{};
  for (std::size_t i = 0; i < lines.size(); ++i) {
    out.push_back({lines[i], i == 0 ? Paint::bold : paint_of(rows["leases"][i - 1])});
  }
  for (const auto& process : list_at(data.status, "unleased_processes")) {
    out.push_back({fmt::format("pid {} of {}, unleased: {}  {}", number(process, "pid"), text_at(process, "user"),
                               number_at(process, "used_bytes") ? size_at(process, "used_bytes") : "? B",
                               text_at(process, "command")),
                   Paint::red});
  }
  return out;
}

// Why the selected one waits, or else the first that does: its row may be cut.
Lines reason(const TopData& data, const TopState& state, const Window& window, const Look& look) {
  const json rows = sorted(list_at(data.leases, "leases"), state.sort)["leases"];
  const auto waits = [](const json& row) { return member(row, "queue").is_object(); };
  auto row = state.selected < rows.size() ? rows.begin() + static_cast<std::ptrdiff_t>(state.selected) : rows.end();
  if (row == rows.end() || whole_reason(*row, look).empty()) row = std::find_if(rows.begin(), rows.end(), waits);
  if (row == rows.end()) return {};
  Lines out;
  const std::string text = fmt::format("{}: {}", text_at(*row, "id"), whole_reason(*row, look));
  for (std::string& line : wrapped(text, window.columns)) out.push_back({std::move(line), paint_of(*row)});
  if (out.size() > 3) out.resize(3);
  return out;
}

Lines help() {
  Lines out{{"sublet top: devices, leases, the queue, and unleased processes", Paint::bold}, {}};
  for (const char* line :
       {"q            quit", "up, k        previous row", "down, j      next row", "PgUp, PgDn   a page",
        "Home, End    first and last row", "s            sort by the next column: id, vram, used, age, user",
        "space, r     refresh now", "h, ?         this help; any key closes it"}) {
    out.push_back({std::string("  ") + line});
  }
  return out;
}

void fit(Lines& lines, const Window& window) {
  if (lines.size() > window.rows) lines.resize(window.rows);
  for (TopLine& line : lines) line.text = cut(line.text, window.columns);
}

}  // namespace

std::string_view to_string(TopSort sort) {
  static constexpr std::string_view names[] = {"id", "vram", "used", "age", "user"};
  return names[static_cast<std::size_t>(sort)];
}

std::vector<TopLine> top_lines(const TopData& data, TopState& state, const Window& window, const Look& look) {
  Lines out;
  if (state.help) {
    out = help();
    fit(out, window);
    return out;
  }
  head(out, data, look);
  devices(out, data, window.columns);
  out.push_back({});
  Lines rows = table(data, state.sort, look);
  if (!rows.empty()) {
    out.push_back(rows.front());
    rows.erase(rows.begin());
  }
  state.selected = rows.empty() ? 0 : std::min(state.selected, rows.size() - 1);
  Lines foot = reason(data, state, window, look);
  if (window.rows < out.size() + foot.size() + 6) foot.clear();
  // One line is the footer's.
  const std::size_t taken = out.size() + foot.size() + 1;
  const std::size_t room = window.rows > taken ? window.rows - taken : 0;
  const std::size_t first = room == 0 || state.selected < room ? 0 : state.selected - room + 1;
  for (std::size_t i = first; i < rows.size() && i < first + room; ++i) {
    rows[i].selected = i == state.selected;
    out.push_back(rows[i]);
  }
  if (rows.empty() && room > 0) out.push_back({"no leases, and no other process on the GPUs", Paint::dim});
  while (out.size() + foot.size() + 1 < window.rows) out.push_back({});
  out.insert(out.end(), foot.begin(), foot.end());
  const std::string below =
      first + room < rows.size() ? fmt::format("   {} more below", rows.size() - first - room) : "";
  if (window.rows > 0 && out.size() >= window.rows) out.resize(window.rows - 1);
  const std::string keys = fmt::format("q quit   h help   s sort by another column (now {})", to_string(state.sort));
  out.push_back({keys + below, Paint::dim});
  fit(out, window);
  return out;
}

}  // namespace sublet::cli
