// SPDX-License-Identifier: Apache-2.0
// The text of /metrics as it is put together, and the part about the devices.
#pragma once

#include "engine/engine.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace sublet::limit {
class Limits;
}
namespace sublet::tenants {
class Tenants;
}

namespace sublet::http {

inline std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') out += "\\n";
    else out += c;
  }
  return out;
}

class Page {
 public:
  // Begins a metric; its samples follow.
  void metric(std::string_view name, std::string_view type, std::string_view help) {
    name_ = name;
    text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  // `labels` as they are written, without braces; `suffix`: of a histogram's parts.
  void sample(const std::string& labels, double value, std::string_view suffix = "") {
    text_ += fmt::format("{}{}{}{}{} {}\n", name_, suffix, labels.empty() ? "" : "{", labels, labels.empty() ? "" : "}",
                         value);
  }
  void single(std::string_view name, std::string_view type, std::string_view help, double value) {
    metric(name, type, help);
    sample("", value);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
  std::string_view name_;
};

inline double count(Bytes bytes) { return static_cast<double>(bytes.count); }

// Each device under the names of Sublet, and under the names of the vendor's exporter (DCGM).
void device_metrics(Page& page, const engine::Engine& engine);
// Launches, bytes, errors and computing time of programs behind the interposer.
void interposer_metrics(Page& page, const engine::Engine& engine, const limit::Limits& limits);
// The entries of the tree of tenants.
void tenant_metrics(Page& page, const engine::Engine& engine, const tenants::Tenants& all);

}  // namespace sublet::http
