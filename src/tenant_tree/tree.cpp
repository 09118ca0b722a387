// SPDX-License-Identifier: Apache-2.0
#include "tenant_tree/tree.h"

#include "base/text.h"
#include "state/tenant_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>

namespace sublet::tenants {
namespace {

using Index = std::map<std::string, std::size_t, std::less<>>;  // of an entry in the list, by name

Error wrong(std::size_t entry, std::string detail, std::string hint) {
  return {Code::BadRequest, std::move(detail), std::move(hint), {{entry_number, static_cast<std::int64_t>(entry)}}};
}

Result<Index> index_of(const std::vector<Tenant>& entries) {
  Index index;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto [first, fresh] = index.emplace(entries[i].name, i);
    if (!fresh) return wrong(i, fmt::format("tenant {} is given twice", entries[i].name), "give each tenant one entry");
  }
  return index;
}

Status check_parents(const std::vector<Tenant>& entries, const Index& index) {
  std::vector<std::string_view> names;
  for (const auto& [name, i] : index) names.push_back(name);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    std::vector<std::string> path{entries[i].name};
    for (std::string parent = entries[i].parent; !parent.empty(); parent = entries[index.at(parent)].parent) {
      if (!index.contains(parent))
        return wrong(i,
                     fmt::format("the parent of tenant {}, {}, has no entry{}", path.back(), printable(parent),
                                 did_you_mean(parent, names)),
                     "give the parent an entry, or leave `parent` out");
      path.push_back(parent);
      if (std::ranges::count(path, parent) > 1)
        return wrong(i, fmt::format("the parents of tenant {} are a cycle: {}", path[0], fmt::join(path, " -> ")),
                     "leave one `parent` out");
      if (path.size() > core::tenant_levels)
        return wrong(i, fmt::format("tenant {} is on level {}: {}", path[0], path.size(), fmt::join(path, " -> ")),
                     fmt::format("a tree has at most {} levels", core::tenant_levels));
    }
  }
  return {};
}

// One of the two measures of an amount.
struct Measure {
  const char* name;
  std::optional<std::int64_t> (*of)(const TenantAmount&);
  std::string (*text)(std::int64_t);
};
constexpr Measure measures[] = {
    {"bytes",
     +[](const TenantAmount& amount) {
       return amount.bytes ? std::optional(amount.bytes->count) : std::optional<std::int64_t>();
     },
     +[](std::int64_t bytes) { return format_size(Bytes{bytes}); }},
    {"devices",
     +[](const TenantAmount& amount) {
       return amount.thousandths ? std::optional<std::int64_t>(*amount.thousandths) : std::optional<std::int64_t>();
     },
     +[](std::int64_t thousandths) { return core::format_devices(thousandths); }},
};

// The guarantees of an entry and all below it, and the names that they come from.
struct Guaranteed {
  std::int64_t sum = 0;
  std::vector<std::string> of;
};

Error too_much(std::size_t entry, const Measure& measure, const Tenant& above, const char* what, std::int64_t most,
               const Guaranteed& below) {
  constexpr std::size_t shown = 5;
  std::string names = fmt::format(
      "{}", fmt::join(below.of.begin(),
                      below.of.begin() + static_cast<std::ptrdiff_t>(std::min(shown, below.of.size())), ", "));
  if (below.of.size() > shown) names += fmt::format(" and {} others", below.of.size() - shown);
  return wrong(
      entry,
      fmt::format("the quotas below tenant {} add up to {} ({}), and its {} is {}", above.name, measure.text(below.sum),
                  names, what, measure.text(most)),
      fmt::format("lower these quotas, or raise the {} of {} to {}", what, above.name, measure.text(below.sum)));
}

Result<Guaranteed> check_quotas(const std::vector<Tenant>& entries, const Index& index, const Tree::Children& children,
                                const Measure& measure, const std::string& name) {
  Guaranteed below;
  if (const auto found = children.find(name); found != children.end()) {
    for (const std::string& child : found->second) {
      auto its = check_quotas(entries, index, children, measure, child);
      if (!its) return its.error();
      below.sum += its->sum;
      below.of.insert(below.of.end(), its->of.begin(), its->of.end());
    }
  }
  if (name.empty()) return below;
  const std::size_t entry = index.at(name);
  const Tenant& tenant = entries[entry];
  const auto quota = measure.of(tenant.quota), limit = measure.of(tenant.limit);
  if (quota && limit && *quota > *limit)
    return wrong(entry,
                 fmt::format("the quota of tenant {}, {}, is more than its limit, {}", name, measure.text(*quota),
                             measure.text(*limit)),
                 "raise the limit, or lower the quota");
  if (quota && below.sum > *quota) return too_much(entry, measure, tenant, "quota", *quota, below);
  if (limit && below.sum > *limit) return too_much(entry, measure, tenant, "limit", *limit, below);
  return quota ? Guaranteed{*quota, {name}} : below;
}

Tree::Children children_of(const auto& entries) {
  Tree::Children children;
  for (const Tenant& entry : entries) children[entry.parent].push_back(entry.name);
  for (auto& [parent, names] : children) std::ranges::sort(names);
  return children;
}

}  // namespace

Result<Tree> Tree::from(const std::vector<Tenant>& entries) {
  if (entries.size() > most_tenants)
    return Error{Code::BadRequest,
                 fmt::format("{} tenants are more than {}", entries.size(), most_tenants),
                 "give fewer tenants",
                 {{"limit", static_cast<std::int64_t>(most_tenants)}}};
  const auto index = index_of(entries);
  if (!index) return index.error();
  if (const Status parents = check_parents(entries, *index); !parents) return parents.error();
  const Children children = children_of(entries);
  for (const Measure& measure : measures)
    if (const auto checked = check_quotas(entries, *index, children, measure, {}); !checked) return checked.error();
  Tree tree;
  for (const Tenant& entry : entries) tree.entries_.emplace(entry.name, entry);
  return tree;
}

const Tenant* Tree::find(std::string_view name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second;
}

bool Tree::has_quotas() const {
  return std::ranges::any_of(entries_, [](const auto& entry) { return entry.second.quota.stated(); });
}

Tree::Children Tree::children() const { return children_of(entries_ | std::views::values); }

std::vector<std::string> Tree::path(std::string_view name) const {
  std::vector<std::string> path{std::string(name)};
  for (const Tenant* entry = find(name); entry != nullptr && !entry->parent.empty(); entry = find(entry->parent))
    path.push_back(entry->parent);
  return path;
}

static void add_below(const Tree::Children& children, const std::string& name, std::vector<std::string>& into) {
  const auto found = children.find(name);
  if (found == children.end()) return;
  for (const std::string& child : found->second) {
    into.push_back(child);
    add_below(children, child, into);
  }
}

std::vector<std::string> Tree::below(std::string_view name) const {
  std::vector<std::string> all;
  if (find(name) == nullptr) return all;
  all.emplace_back(name);
  add_below(children(), all.front(), all);
  return all;
}

std::vector<Tenant> Tree::list() const {
  std::vector<std::string> names;
  add_below(children(), {}, names);
  std::vector<Tenant> all;
  all.reserve(names.size());
  for (const std::string& name : names) all.push_back(entries_.at(name));
  return all;
}

// The quota of the entry as far as no quota above states the same measure.
TenantAmount Tree::own_quota(const std::string& name) const {
  const std::vector<std::string> above = path(name);
  const auto covered = [&](auto part) {
    return std::any_of(above.begin() + 1, above.end(),
                       [&](const std::string& parent) { return (find(parent)->quota.*part).has_value(); });
  };
  TenantAmount quota = find(name)->quota;
  if (quota.bytes && covered(&TenantAmount::bytes)) quota.bytes.reset();
  if (quota.thousandths && covered(&TenantAmount::thousandths)) quota.thousandths.reset();
  return quota;
}

TenantAmount Tree::guaranteed() const {
  TenantAmount sum;
  for (const auto& [name, entry] : entries_) {
    const TenantAmount quota = own_quota(name);
    if (quota.bytes) sum.bytes = sum.bytes.value_or(Bytes{}) + *quota.bytes;
    if (quota.thousandths) sum.thousandths = sum.thousandths.value_or(0) + *quota.thousandths;
  }
  return sum;
}

double Tree::guaranteed_part(Bytes bytes, int thousandths) const {
  double sum = 0;
  for (const auto& [name, entry] : entries_) {
    const std::vector<std::string> above = path(name);
    const bool inside = std::any_of(above.begin() + 1, above.end(),
                                    [&](const std::string& parent) { return find(parent)->quota.stated(); });
    if (inside) continue;
    const TenantAmount& quota = entry.quota;
    const auto part = [](double of, double all) { return all > 0 ? of / all : 0; };
    sum += std::max(part(static_cast<double>(quota.bytes.value_or(Bytes{}).count), static_cast<double>(bytes.count)),
                    part(quota.thousandths.value_or(0), thousandths));
  }
  return sum;
}

Status Tree::check_memory(Bytes bytes, int thousandths) const {
  const TenantAmount sum = guaranteed(), have{bytes, thousandths};
  const bool fits = (!sum.bytes || *sum.bytes <= bytes) && (!sum.thousandths || *sum.thousandths <= thousandths) &&
                    guaranteed_part(bytes, thousandths) <= 1 + 1e-9;
  if (fits) return {};
  return Error{Code::BadRequest,
               fmt::format("the quotas add up to {}, and the devices have {} for leases", core::format_amount(sum),
                           core::format_amount(have)),
               "lower the quotas of the tenants at the top of the tree",
               {{"sum_bytes", sum.bytes.value_or(Bytes{}).count}, {"device_bytes", bytes.count}}};
}

Tree Tree::scaled_to(Bytes bytes, int thousandths) const {
  const TenantAmount sum = guaranteed();
  const auto part = [](std::int64_t quota, std::int64_t have, std::int64_t need) {
    return static_cast<std::int64_t>(core::Integral{quota} * have / need);
  };
  Tree scaled = *this;
  for (auto& [name, entry] : scaled.entries_) {
    TenantAmount& quota = entry.quota;
    if (quota.bytes && sum.bytes && *sum.bytes > bytes)
      quota.bytes = Bytes{part(quota.bytes->count, bytes.count, sum.bytes->count)};
    if (quota.thousandths && sum.thousandths && *sum.thousandths > thousandths)
      quota.thousandths = static_cast<int>(part(*quota.thousandths, thousandths, *sum.thousandths));
  }
  return scaled;
}

}  // namespace sublet::tenants
