// SPDX-License-Identifier: Apache-2.0
#include "simgpu/tools/ctl_fault.h"

#include "base/text.h"
#include "base/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace simgpu::tools {
namespace {

using sublet::bad_request;
using sublet::Result;
using sublet::Status;

constexpr std::array<std::string_view, 8> options = {"--device",    "--pid",  "--nth",       "--duration",
                                                     "--bandwidth", "--code", "--first-pid", "--after"};

Result<std::uint64_t> parse_count(std::string_view flag, std::string_view text, std::uint64_t high) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > high)
    return bad_request(fmt::format("{} '{}' is not a whole number from 0 to {}", flag, sublet::printable(text), high));
  return value;
}

std::string_view name_of(FaultKind kind) { return faults()[static_cast<unsigned>(kind)].name; }

// The meaning of `argument` in the table's fault depends on the kind; the options that set it describe it.
std::vector<FaultKind> owners(std::string_view flag) {
  if (flag == "--bandwidth") return {FaultKind::bandwidth};
  if (flag == "--code") return {FaultKind::nvml_error, FaultKind::checkpoint_fail, FaultKind::restore_fail};
  if (flag == "--after") return {FaultKind::checkpoint_fail, FaultKind::restore_fail};
  return {FaultKind::nvml_wrong_namespace};
}

Status check_argument_option(std::string_view flag, FaultKind kind) {
  std::string names;
  for (const FaultKind owner : owners(flag)) {
    if (kind == owner) return {};
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(owner));
  }
  return bad_request(fmt::format("{} belongs to {}, not to {}", flag, names, name_of(kind)));
}

Status set_option(Fault& fault, std::string_view flag, std::string_view value) {
  constexpr std::uint64_t max_pid = 1 << 22;
  if (flag == "--duration") {
    const auto parsed = sublet::parse_duration(value);
    if (!parsed) return parsed.error();
    if (parsed->count() == 0) return bad_request("--duration is zero");
    fault.duration_ns = static_cast<std::uint64_t>(parsed->count());
    return {};
  }
  if (flag == "--bandwidth") {
    if (auto fits = check_argument_option(flag, fault.kind); !fits) return fits;
    if (value.ends_with("/s")) value.remove_suffix(2);
    const auto parsed = sublet::parse_size(value);
    if (!parsed) return parsed.error();
    fault.argument = static_cast<std::uint64_t>(parsed->count);
    return {};
  }
  const auto number = parse_count(flag, value,
                                  flag == "--device"  ? max_places - 1
                                  : flag == "--nth"   ? UINT32_MAX
                                  : flag == "--code"  ? 999
                                  : flag == "--after" ? 100
                                                      : max_pid);
  if (!number) return number.error();
  if (flag == "--device") {
    fault.device = static_cast<int>(*number);
  } else if (flag == "--nth") {
    fault.nth = *number;
  } else if (flag == "--pid") {
    // The process that is missing from the list, not the process that asks for the list.
    if (fault.kind == FaultKind::nvml_missing_pid) fault.argument = *number;
    else fault.pid = static_cast<std::uint32_t>(*number);
  } else {
    if (auto fits = check_argument_option(flag, fault.kind); !fits) return fits;
    if (flag == "--after") fault.after = static_cast<int>(*number);
    else fault.argument = *number;
  }
  return {};
}

template <typename Info, typename Text>
std::vector<std::string_view> words(const std::vector<Info>& infos, Text text) {
  std::vector<std::string_view> all;
  all.reserve(infos.size());
  for (const auto& info : infos) all.push_back(text(info));
  return all;
}

}  // namespace

Result<FaultKind> parse_fault_name(std::string_view name) {
  if (const auto kind = fault_from_name(name)) return *kind;
  const auto known = words(faults(), [](const auto& info) { return info.name; });
  return bad_request(fmt::format("unknown fault '{}'{}", sublet::printable(name), sublet::did_you_mean(name, known)),
                     "simgpu-ctl --help lists all faults");
}

Result<SettingInfo> parse_setting_key(std::string_view key) {
  for (const auto& info : settings())
    if (info.key == key) return info;
  const auto known = words(settings(), [](const auto& info) { return info.key; });
  return bad_request(fmt::format("unknown setting '{}'{}", sublet::printable(key), sublet::did_you_mean(key, known)),
                     "simgpu-ctl --help lists all settings");
}

Result<Fault> parse_fault(const std::vector<std::string_view>& arguments) {
  if (arguments.empty()) return bad_request("which fault? simgpu-ctl --help lists them");
  const auto kind = parse_fault_name(arguments[0]);
  if (!kind) return kind.error();
  Fault fault;
  fault.kind = *kind;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    std::string_view flag = arguments[i], value;
    const auto equals = flag.find('=');
    const bool inline_value = equals != std::string_view::npos;
    if (inline_value) value = flag.substr(equals + 1), flag = flag.substr(0, equals);
    if (std::find(options.begin(), options.end(), flag) == options.end())
      return bad_request(
          fmt::format("unknown option '{}'{}", sublet::printable(flag), sublet::did_you_mean(flag, options)));
    if (!inline_value && ++i == arguments.size()) return bad_request(fmt::format("{} needs a value", flag));
    if (auto set = set_option(fault, flag, inline_value ? value : arguments[i]); !set) return set.error();
  }
  if (fault.kind == FaultKind::bandwidth && fault.argument == 0)
    return bad_request("the fault bandwidth needs --bandwidth SIZE/s");
  return fault;
}

Result<std::pair<Figure, std::uint64_t>> parse_card_figure(std::string_view word) {
  const auto equals = std::min(word.find('='), word.size());
  const auto key = word.substr(0, equals);
  const auto figure = figure_from_key(key);
  if (!figure) {
    const auto known = words(figures(), [](const auto& info) { return info.key; });
    return bad_request(fmt::format("unknown figure '{}'{}", sublet::printable(key), sublet::did_you_mean(key, known)),
                       "simgpu-ctl --help lists all figures");
  }
  const auto value = parse_figure(*figure, word.substr(std::min(equals + 1, word.size())));
  if (!value) return bad_request(fmt::format("'{}' is not KEY=VALUE of a figure", sublet::printable(word)));
  return std::pair(*figure, *value);
}

std::string figure_list() {
  std::string text;
  for (const auto& info : figures()) text += fmt::format("  {:22} {}\n", info.key, info.help);
  return text;
}

std::string fault_list() {
  std::string text;
  for (const auto& info : faults()) text += fmt::format("  {:22} {}\n", info.name, info.help);
  return text;
}

std::string setting_list() {
  std::string text;
  for (const auto& info : settings()) text += fmt::format("  {:22} {}\n", info.key, info.help);
  return text;
}

}  // namespace simgpu::tools
