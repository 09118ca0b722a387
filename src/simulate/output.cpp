// SPDX-License-Identifier: Apache-2.0
#include "simulate/output.h"

#include "base/text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <set>

namespace sublet::simulate {
namespace {

using Json = nlohmann::json;
using Row = std::vector<std::string>;

double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }
std::string percent(double part) { return fmt::format("{:.1f} %", 100 * part); }

// The first column to the left, the others to the right.
std::string aligned(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths;
  for (const Row& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (widths.size() <= i) widths.push_back(0);
      widths[i] = std::max(widths[i], row[i].size());
    }
  std::string text;
  for (const Row& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i)
      line += i == 0 ? fmt::format("{:<{}}", row[i], widths[i]) : fmt::format("  {:>{}}", row[i], widths[i]);
    text += line + "\n";
  }
  return text;
}

template <typename Each, typename Value>
void add(std::vector<Row>& rows, std::string name, std::span<const Each> all, const Value& value) {
  Row row{std::move(name)};
  for (const Each& its : all) row.push_back(value(its));
  rows.push_back(std::move(row));
}

const Waits* waits_in(const Figures& all, const std::string& size) {
  const auto found = std::ranges::find(all.waits, size, &Waits::size);
  return found == all.waits.end() ? nullptr : &*found;
}

// Sizes of any setting, in the order of the figures.
std::vector<std::string> sizes_of(std::span<const Figures> all) {
  std::vector<std::string> sizes;
  for (const std::string_view size : all_sizes())
    if (std::ranges::any_of(all, [size](const Figures& its) { return waits_in(its, std::string(size)) != nullptr; }))
      sizes.emplace_back(size);
  return sizes;
}

const TenantFigures* tenant_in(const Figures& all, const std::string& name) {
  const auto found = std::ranges::find(all.tenants, name, &TenantFigures::name);
  return found == all.tenants.end() ? nullptr : &*found;
}

// The tenants of any setting.
std::set<std::string> tenants_of(std::span<const Figures> all) {
  std::set<std::string> names;
  for (const Figures& its : all)
    for (const TenantFigures& tenant : its.tenants) names.insert(tenant.name);
  return names;
}

std::string served_text(const TenantFigures& its) {
  return its.asked == 0 ? "-" : fmt::format("{} of {}", its.served, its.asked);
}

std::string error_text(const TenantFigures& its) {
  return its.error ? fmt::format("{:+.1f} %", 100 * *its.error) : "-";
}

void add_tenants(std::vector<Row>& rows, std::span<const Figures> all) {
  const std::set<std::string> tenants = tenants_of(all);
  if (tenants.size() > most_drawn_tenants)
    return add<Figures>(rows, "  tenants, told by --csv=tenants", all,
                        [](const Figures& its) { return std::to_string(its.tenants.size()); });
  for (const std::string& name : tenants.size() > 1 ? tenants : std::set<std::string>()) {
    const auto cell = [&name](const std::function<std::string(const TenantFigures&)>& text) {
      return [&name, text](const Figures& its) {
        const TenantFigures* tenant = tenant_in(its, name);
        return tenant == nullptr ? "-" : text(*tenant);
      };
    };
    add<Figures>(rows, "tenant " + printable(name) + ", held", all,
                 cell([](const auto& its) { return percent(its.held); }));
    add<Figures>(rows, "  entitled to", all,
                 cell([](const auto& its) { return its.entitled ? percent(*its.entitled) : "-"; }));
    add<Figures>(rows, "  share error", all, cell(error_text));
    if (std::ranges::any_of(all,
                            [&](const Figures& its) { return tenant_in(its, name) && tenant_in(its, name)->asked; }))
      add<Figures>(rows, "  guarantees served", all, cell(served_text));
    add<Figures>(rows, "  wait", all, cell([](const auto& its) { return format_duration(its.waits.p50); }));
    add<Figures>(rows, "  p99", all, cell([](const auto& its) { return format_duration(its.waits.p99); }));
  }
}

Json json_of_tenant(const TenantFigures& its) {
  return {{"tenant", its.name},
          {"guarantee_percent", 100 * its.guarantee},
          {"held_percent", 100 * its.held},
          {"entitled_percent", its.entitled ? Json(100 * *its.entitled) : Json(nullptr)},
          {"share_error_percent", its.error ? Json(100 * *its.error) : Json(nullptr)},
          {"guarantees_asked", its.asked},
          {"guarantees_served", its.served},
          {"latest_seconds", seconds(its.latest)},
          {"jobs", its.waits.jobs},
          {"wait_p50_seconds", seconds(its.waits.p50)},
          {"wait_p95_seconds", seconds(its.waits.p95)},
          {"wait_p99_seconds", seconds(its.waits.p99)},
          {"wait_max_seconds", seconds(its.waits.most)}};
}

Json json_of_bounds(const Bounds& its) {
  return {{"stated", its.stated},
          {"kept", its.kept},
          {"late", its.late},
          {"broken", its.broken},
          {"largest_overrun_seconds", seconds(its.largest)}};
}

void add_bounds(std::vector<Row>& rows, std::span<const Figures> all) {
  if (std::ranges::none_of(all, [](const Figures& its) { return its.outcome.bounds.stated > 0; })) return;
  const auto count = [](std::size_t Bounds::*which) {
    return [which](const Figures& its) { return std::to_string(its.outcome.bounds.*which); };
  };
  add<Figures>(rows, "waits with a stated bound", all, count(&Bounds::stated));
  add<Figures>(rows, "  started within it", all, count(&Bounds::kept));
  add<Figures>(rows, "  started later", all, count(&Bounds::late));
  add<Figures>(rows, "  later without an exception", all, count(&Bounds::broken));
  add<Figures>(rows, "  largest overrun", all,
               [](const Figures& its) { return format_duration(its.outcome.bounds.largest); });
}

// A cell of CSV.
std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string cell = "\"";
  for (const char c : text) cell += c == '"' ? "\"\"" : std::string(1, c);
  return cell + "\"";
}

std::string percent_cell(std::optional<double> part) { return part ? fmt::format("{:.4f}", 100 * *part) : ""; }

constexpr std::array<std::size_t, 6> loads{80, 90, 95, 100, 120, 130};

template <typename Each>
Json one_or_all(std::span<const Each> all, const std::function<Json(const Each&)>& one) {
  if (all.size() == 1) return one(all.front());
  Json settings = Json::array();
  for (const Each& its : all) settings.push_back(one(its));
  return {{"settings", std::move(settings)}};
}

Json json_of_run(const Figures& its) {
  Json waits = Json::array();
  for (const Waits& wait : its.waits)
    waits.push_back({{"size", wait.size},
                     {"jobs", wait.jobs},
                     {"p50_seconds", seconds(wait.p50)},
                     {"p95_seconds", seconds(wait.p95)},
                     {"p99_seconds", seconds(wait.p99)},
                     {"max_seconds", seconds(wait.most)}});
  Json tenants = Json::array();
  for (const TenantFigures& tenant : its.tenants) tenants.push_back(json_of_tenant(tenant));
  return {
      {"setting", its.name},
      {"partial", its.outcome.partial},
      {"jobs", {{"done", its.done}, {"refused", its.refused}, {"ended", its.ended}, {"unfinished", its.unfinished}}},
      {"waits", std::move(waits)},
      {"slowdown_p50", its.slowdown_p50},
      {"slowdown_p95", its.slowdown_p95},
      {"jain_index", its.jain ? Json(*its.jain) : Json(nullptr)},
      {"tenants", std::move(tenants)},
      {"allocated_percent", 100 * its.allocated},
      {"useful_percent", 100 * its.useful},
      {"fragmented_percent", 100 * its.fragmented},
      {"pauses", its.outcome.pauses},
      {"moved_bytes", its.outcome.moved.count},
      {"bounds", json_of_bounds(its.outcome.bounds)},
      {"guarantees_without_ledger", its.outcome.without_ledger},
      {"lasted_seconds", seconds(its.outcome.lasted)},
      {"capacity_bytes", its.outcome.capacity.count},
      {"decisions", its.outcome.events}};
}

Json json_of_fill(const NamedFill& its) {
  Json json{{"setting", its.first},
            {"partial", its.second.partial},
            {"placed", its.second.placed},
            {"refused", its.second.refused},
            {"allocated_percent", its.second.allocated},
            {"fragmented_percent", its.second.fragmented}};
  for (const std::size_t load : loads)
    if (load < its.second.allocated.size()) {
      json[fmt::format("allocated_at_{}", load)] = its.second.allocated[load];
      json[fmt::format("fragmented_at_{}", load)] = its.second.fragmented[load];
    }
  return json;
}

}  // namespace

std::string table_of(std::span<const Figures> all) {
  std::vector<Row> rows;
  add<Figures>(rows, "", all, [](const Figures& its) { return its.name + (its.outcome.partial ? " (partial)" : ""); });
  add<Figures>(rows, "jobs done", all, [](const Figures& its) { return std::to_string(its.done); });
  add<Figures>(rows, "  refused", all, [](const Figures& its) { return std::to_string(its.refused); });
  add<Figures>(rows, "  ended early", all, [](const Figures& its) { return std::to_string(its.ended); });
  add<Figures>(rows, "  not finished", all, [](const Figures& its) { return std::to_string(its.unfinished); });
  for (const std::string& size : sizes_of(all)) {
    const auto wait = [&](Duration Waits::*which) {
      return [&size, which](const Figures& its) {
        const Waits* waits = waits_in(its, size);
        return waits == nullptr ? "-" : format_duration(waits->*which);
      };
    };
    add<Figures>(rows, "wait, " + size, all, wait(&Waits::p50));
    add<Figures>(rows, "  p95", all, wait(&Waits::p95));
    add<Figures>(rows, "  p99", all, wait(&Waits::p99));
  }
  add<Figures>(rows, "slowdown, median", all,
               [](const Figures& its) { return fmt::format("{:.2f}", its.slowdown_p50); });
  add<Figures>(rows, "  p95", all, [](const Figures& its) { return fmt::format("{:.2f}", its.slowdown_p95); });
  add<Figures>(rows, "Jain's index of tenants", all,
               [](const Figures& its) { return its.jain ? fmt::format("{:.3f}", *its.jain) : "-"; });
  add_tenants(rows, all);
  add_bounds(rows, all);
  add<Figures>(rows, "memory allocated", all, [](const Figures& its) { return percent(its.allocated); });
  add<Figures>(rows, "  useful", all, [](const Figures& its) { return percent(its.useful); });
  add<Figures>(rows, "  fragmented", all, [](const Figures& its) { return percent(its.fragmented); });
  add<Figures>(rows, "pauses", all, [](const Figures& its) { return std::to_string(its.outcome.pauses); });
  add<Figures>(rows, "  bytes moved", all, [](const Figures& its) { return format_size(its.outcome.moved); });
  add<Figures>(rows, "simulated time", all, [](const Figures& its) { return format_duration(its.outcome.lasted); });
  return aligned(rows);
}

std::string table_of(std::span<const NamedFill> all) {
  std::vector<Row> rows;
  add<NamedFill>(rows, "", all,
                 [](const NamedFill& its) { return its.first + (its.second.partial ? " (partial)" : ""); });
  for (const std::size_t load : loads) {
    const auto at = [load](std::vector<double> Filled::*which) {
      return [load, which](const NamedFill& its) {
        const auto& values = its.second.*which;
        return load < values.size() ? fmt::format("{:.2f} %", values[load]) : std::string("-");
      };
    };
    add<NamedFill>(rows, fmt::format("allocated at {} %", load), all, at(&Filled::allocated));
    add<NamedFill>(rows, "  fragmented", all, at(&Filled::fragmented));
  }
  add<NamedFill>(rows, "jobs placed", all, [](const NamedFill& its) { return std::to_string(its.second.placed); });
  add<NamedFill>(rows, "  refused", all, [](const NamedFill& its) { return std::to_string(its.second.refused); });
  return aligned(rows);
}

Json json_of(std::span<const Figures> all) { return one_or_all<Figures>(all, json_of_run); }
Json json_of(std::span<const NamedFill> all) { return one_or_all<NamedFill>(all, json_of_fill); }

std::string csv_of(std::span<const Figures> all) {
  std::string text = "setting,seconds,allocated_bytes,fragmented_bytes,waiting\n";
  for (const Figures& its : all)
    for (const Sample& at : its.outcome.samples)
      text += fmt::format("{},{:.3f},{},{},{:g}\n", quoted(its.name), seconds(at.at), at.allocated.count,
                          at.fragmented.count, at.waiting);
  return text;
}

std::string tenants_csv_of(std::span<const Figures> all) {
  std::string text =
      "setting,tenant,guarantee_percent,held_percent,entitled_percent,share_error_percent,guarantees_asked,"
      "guarantees_served,latest_seconds,jobs,wait_p50_seconds,wait_p95_seconds,wait_p99_seconds\n";
  for (const Figures& its : all)
    for (const TenantFigures& of : its.tenants)
      text += fmt::format("{},{},{:.4f},{:.4f},{},{},{},{},{:.3f},{},{:.3f},{:.3f},{:.3f}\n", quoted(its.name),
                          quoted(of.name), 100 * of.guarantee, 100 * of.held, percent_cell(of.entitled),
                          percent_cell(of.error), of.asked, of.served, seconds(of.latest), of.waits.jobs,
                          seconds(of.waits.p50), seconds(of.waits.p95), seconds(of.waits.p99));
  return text;
}

std::string csv_of(std::span<const NamedFill> all) {
  std::string text = "setting,asked_percent,allocated_percent,fragmented_percent\n";
  for (const NamedFill& its : all)
    for (std::size_t i = 0; i < its.second.allocated.size(); ++i)
      text +=
          fmt::format("{},{},{:.4f},{:.4f}\n", quoted(its.first), i, its.second.allocated[i], its.second.fragmented[i]);
  return text;
}

}  // namespace sublet::simulate
