// SPDX-License-Identifier: Apache-2.0
#include "lease/reason_json.h"

#include <chrono>

namespace sublet::core {
namespace {

struct Writer {
  JsonText& out;
  const std::string& name;

  void operator()(bool flag) const { out.field(name, flag); }
  void operator()(std::int64_t number) const { out.field(name, number); }
  void operator()(Bytes bytes) const { out.field(name + "_bytes", bytes.count); }
  void operator()(Duration duration) const {
    out.field(name + "_ms", std::chrono::duration_cast<std::chrono::milliseconds>(duration).count());
  }
  void operator()(const std::string& text) const { out.field(name, text); }
  void operator()(const std::vector<std::string>& list) const {
    out.key(name).begin_array();
    for (const std::string& entry : list) out.value(entry);
    out.end_array();
  }
  void operator()(const std::vector<ReasonPart>& parts) const {
    out.key(name).begin_array();
    for (const auto& [what, bytes] : parts)
      out.begin_object().field("what", what).field("bytes", bytes.count).end_object();
    out.end_array();
  }
};

}  // namespace

void write_args(JsonText& out, const ReasonArgs& args) {
  out.begin_object();
  for (const auto& [name, value] : args.all()) std::visit(Writer{out, name}, value);
  out.end_object();
}

}  // namespace sublet::core
