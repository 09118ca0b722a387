// SPDX-License-Identifier: Apache-2.0
#include "stacks/stack.h"

#include "base/text.h"
#include "base/words.h"
#include "store/fields.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::stacks {
namespace {

constexpr std::size_t longest_name = 58;  // the tag of its lease, "stack-NAME", has at most 64

constexpr Words<Phase, 8> phases{{{Phase::down, "down"},
                                  {Phase::queued, "queued"},
                                  {Phase::creating, "creating"},
                                  {Phase::starting, "starting"},
                                  {Phase::ready, "ready"},
                                  {Phase::released, "released"},
                                  {Phase::stopping, "stopping"},
                                  {Phase::failed, "failed"}}};

}  // namespace

std::string_view to_string(Phase phase) { return word_of(phases, phase); }
std::optional<Phase> parse_phase(std::string_view text) { return value_of(phases, text); }

bool Stack::blank() const {
  return adopted.empty() && set == Settings{} && peak == Bytes{} && phase == Phase::down && why.empty();
}

void fields(auto& visit, store::Like<Settings> auto& set) {
  visit("vram", set.vram);
  visit("devices", set.devices);
  visit.word("tier", set.tier, core::parse_tier);
  visit("exclusive", set.exclusive);
  visit("pausable", set.pausable);
}

void fields(auto& visit, store::Like<Use> auto& use) {
  visit("uid", use.uid);
  visit("user", use.user);
  visit("owner", use.owner);
  visit("token_hash", use.token_hash);
  visit("lease", use.lease);
  visit("ttl", use.ttl);
  visit("expires_at", use.expires_at);
  visit("ready_by", use.ready_by);
  visit.word("tier", use.tier, core::parse_tier);
}

void fields(auto& visit, store::Like<Stack> auto& stack) {
  visit("adopted", stack.adopted);
  visit("set", stack.set);
  visit("peak", stack.peak);
  visit.word("phase", stack.phase, parse_phase);
  visit("since", stack.since);
  visit("why", stack.why);
  visit("use", stack.use);
  visit("will_fail", stack.will_fail);
  visit("project", stack.project);
  visit("directory", stack.directory);
  visit("by_label", stack.by_label);
  visit("recreate", stack.recreate);
}

store::CapabilityRow to_row(const Stack& stack) { return store::row_of("stack", stack.name, stack); }

Result<Stack> from_row(const store::CapabilityRow& row) {
  Stack stack{.name = row.key};
  if (const Status read = store::read_row(row, stack); !read) return read.error();
  return stack;
}

Status check_name(std::string_view name) {
  const auto alphanumeric = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  };
  const auto good = [&](char c) { return alphanumeric(c) || c == '.' || c == '_' || c == '-'; };
  if (!name.empty() && name.size() <= longest_name && alphanumeric(name[0]) && std::ranges::all_of(name, good))
    return {};
  return bad_request(
      fmt::format("'{}' cannot be the name of a stack", printable(name)),
      fmt::format("use at most {} letters, digits, '.', '_' and '-'; begin with a letter or a digit", longest_name));
}

}  // namespace sublet::stacks
