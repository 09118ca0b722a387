// SPDX-License-Identifier: Apache-2.0
#include "store/reason_column.h"

#include "lease/reason_json.h"

#include <nlohmann/json.hpp>

namespace sublet::store {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view bytes_suffix = "_bytes", ms_suffix = "_ms";

std::string_view without(std::string_view name, std::string_view suffix) {
  return name.substr(0, name.size() - suffix.size());
}

bool add_list(core::ReasonArgs& args, const std::string& name, const ordered_json& list) {
  std::vector<std::string> texts;
  std::vector<core::ReasonPart> parts;
  for (const ordered_json& entry : list) {
    if (entry.is_string()) {
      texts.push_back(entry.get<std::string>());
      continue;
    }
    const auto what = entry.find("what"), bytes = entry.find("bytes");
    if (!entry.is_object() || what == entry.end() || bytes == entry.end()) return false;
    if (!what->is_string() || !bytes->is_number_integer()) return false;
    parts.push_back({what->get<std::string>(), {bytes->get<std::int64_t>()}});
  }
  if (!texts.empty() && !parts.empty()) return false;
  args.add(name, std::move(texts));
  args.add(name, std::move(parts));
  return true;
}

bool add_number(core::ReasonArgs& args, std::string_view name, std::int64_t number) {
  if (name.ends_with(bytes_suffix)) args.add(without(name, bytes_suffix), Bytes{number});
  else if (name.ends_with(ms_suffix)) args.add(without(name, ms_suffix), Duration(std::chrono::milliseconds(number)));
  else args.add(name, number);
  return true;
}

std::optional<core::ReasonArgs> args_in(const ordered_json& object) {
  if (!object.is_object()) return std::nullopt;
  core::ReasonArgs args;
  for (const auto& [name, value] : object.items()) {
    bool good = true;
    if (value.is_boolean()) args.add(name, value.get<bool>());
    else if (value.is_number_integer()) good = add_number(args, name, value.get<std::int64_t>());
    else if (value.is_string()) args.add(name, value.get<std::string>());
    else good = value.is_array() && add_list(args, name, value);
    if (!good) return std::nullopt;
  }
  return args;
}

}  // namespace

std::string encode_args(const core::ReasonArgs& args) {
  JsonText out(256);
  write_args(out, args);
  return out.take();
}

std::optional<core::ReasonArgs> decode_args(std::string_view text) {
  return args_in(ordered_json::parse(text, nullptr, false));
}

std::optional<core::Reason> decode_reason(std::string_view kind, std::string_view args) {
  auto known = decode_args(args);
  if (!known) return std::nullopt;
  core::Reason reason;
  if (const auto its = core::parse_reason_kind(kind)) {
    reason.kind = *its;
    reason.args = std::move(*known);
  } else {
    reason.args = core::args("code", kind, "text", kind);
  }
  return reason;
}

std::string encode_cause(const core::PauseCause& cause) {
  JsonText out(256);
  out.begin_object().field("kind", core::to_string(cause.kind)).field("preemptor", cause.preemptor.number);
  core::write_args(out.key("args"), cause.args);
  return out.end_object().take();
}

std::optional<core::PauseCause> decode_cause(std::string_view text) {
  const ordered_json object = ordered_json::parse(text, nullptr, false);
  if (!object.is_object()) return std::nullopt;
  const auto kind = object.find("kind"), preemptor = object.find("preemptor"), args = object.find("args");
  if (kind == object.end() || preemptor == object.end() || args == object.end()) return std::nullopt;
  if (!kind->is_string() || !preemptor->is_number_unsigned()) return std::nullopt;
  const auto its = core::parse_pause_cause_kind(kind->get<std::string>());
  auto known = args_in(*args);
  if (!its || !known) return std::nullopt;
  return core::PauseCause{*its, LeaseId{preemptor->get<std::uint64_t>()}, std::move(*known)};
}

}  // namespace sublet::store
