// SPDX-License-Identifier: Apache-2.0
#include "cli/process_tree.h"

#include "cli/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace sublet::cli {
namespace {

using nlohmann::json;

constexpr int deepest = 100;

class TreeMaker {
 public:
  TreeMaker(const std::vector<proc::ProcessInfo>& all, const json& rows, const Look& look,
            const std::function<std::string(std::int32_t)>& command_of)
      : look_(look), command_of_(command_of) {
    for (const proc::ProcessInfo& process : all) {
      if (process.dead()) continue;
      known_.insert(process.ref.pid);
      children_[process.ppid].insert(process.ref.pid);
    }
    for (const json& row : rows) rows_[static_cast<std::int32_t>(number_at(row, "pid").value_or(0))].push_back(&row);
  }

  std::vector<TreeLine> from(std::int32_t main_pid) {
    if (known_.contains(main_pid)) add(main_pid, 0);
    for (const auto& [pid, rows] : rows_) add(pid, 0);
    return std::move(lines_);
  }

 private:
  const Look& look_;
  const std::function<std::string(std::int32_t)>& command_of_;
  std::set<std::int32_t> known_;
  std::map<std::int32_t, std::set<std::int32_t>> children_;
  std::map<std::int32_t, std::vector<const json*>> rows_;  // by pid, one row for each device
  std::set<std::int32_t> added_;
  std::vector<TreeLine> lines_;

  void add(std::int32_t pid, int depth) {
    if (depth > deepest || !added_.insert(pid).second) return;
    const auto rows = rows_.find(pid);
    std::string used, command;
    if (rows != rows_.end()) {
      used = used_text(rows->second);
      command = text_at(*rows->second.front(), "command");
    }
    if (command.empty()) command = command_of_(pid);
    lines_.push_back({pid, depth, std::move(used), std::move(command)});
    const auto children = children_.find(pid);
    if (children == children_.end()) return;
    for (const std::int32_t child : children->second) add(child, depth + 1);
  }

  std::string used_text(const std::vector<const json*>& rows) const {
    if (rows.size() == 1) return size_at(*rows.front(), "used_bytes");
    std::string text;
    for (const json* row : rows)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", device_name(text_at(*row, "device"), look_),
                          size_at(*row, "used_bytes"));
    return text;
  }
};

}  // namespace

std::vector<TreeLine> process_tree(std::int32_t main_pid, const std::vector<proc::ProcessInfo>& all, const json& rows,
                                   const Look& look, const std::function<std::string(std::int32_t)>& command_of) {
  return TreeMaker(all, rows, look, command_of).from(main_pid);
}

}  // namespace sublet::cli
