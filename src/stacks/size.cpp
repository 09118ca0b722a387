// SPDX-License-Identifier: Apache-2.0
#include "stacks/size.h"

#include "base/gpu_spec.h"
#include "base/size_bounds.h"
#include "base/text.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>

namespace sublet::stacks {
namespace {

using nlohmann::json;

constexpr int most_devices = 1024;
constexpr std::int64_t peak_margin = 10;  // a tenth more than the peak

Error wrong(std::string_view name, std::string_view field, const json& value, std::string_view expected) {
  return bad_request(fmt::format("x-sublet of stack {} has {}: {}", printable(name), printable(field),
                                 printable(value.dump(-1, ' ', false, json::error_handler_t::replace))),
                     fmt::format("{} is {}", printable(field), expected));
}

Result<Bytes> read_size(const json& value) {
  if (value.is_number_integer()) return Bytes{value.get<std::int64_t>()};
  if (value.is_string()) return parse_size(value.get<std::string>());
  return bad_request("no size");
}

Status take(std::string_view name, const std::string& field, const json& value, Settings& into) {
  if (field == "vram") {
    const auto size = read_size(value);
    if (!size || *size < least_lease) return wrong(name, field, value, "a size such as 16GiB");
    into.vram = *size;
  } else if (field == "gpus") {
    if (!value.is_number_integer() || value.get<std::int64_t>() < 1 || value.get<std::int64_t>() > most_devices)
      return wrong(name, field, value, "a number of devices, 1 or more");
    into.devices = value.get<int>();
  } else if (field == "tier") {
    const auto tier = value.is_string() ? core::parse_tier(value.get<std::string>()) : std::nullopt;
    if (!tier) return wrong(name, field, value, "one of critical, interactive, standard, batch, spot");
    into.tier = *tier;
  } else if (field == "exclusive") {
    if (!value.is_boolean()) return wrong(name, field, value, "true or false");
    into.exclusive = value.get<bool>();
  } else if (field == "pausable") {
    if (!value.is_boolean()) return wrong(name, field, value, "true or false");
    into.pausable = value.get<bool>();
  } else if (field == "gpu_spec") {
    const auto spec =
        value.is_string() ? GpuSpec::parse(value.get<std::string>()) : Result<GpuSpec>(bad_request("it is no text"));
    if (!spec) return wrong(name, field, value, "a description of devices such as cc>=8.0; " + spec.error().detail);
    into.gpu_spec = value.get<std::string>();
  } else if (field == "interposer") {
    if (!value.is_boolean()) return wrong(name, field, value, "true or false");
    into.interposer = value.get<bool>();
  } else if (field == "share") {
    if (!value.is_number_integer() || value.get<std::int64_t>() < 1 || value.get<std::int64_t>() > 100)
      return wrong(name, field, value, "a percentage of the computing time, 1 to 100");
    into.share = value.get<int>();
  } else {
    return bad_request(
        fmt::format("x-sublet of stack {} has the unknown field '{}'", printable(name), printable(field)),
        "its fields are vram, gpus, gpu_spec, tier, exclusive, pausable, interposer and share");
  }
  return {};
}

// The most bytes that `count` devices can lease on each of them.
Bytes whole(std::vector<Bytes> capacities, int count) {
  std::ranges::sort(capacities, std::greater());
  const auto index = static_cast<std::size_t>(count) - 1;
  if (capacities.empty()) return {};
  return capacities[std::min(index, capacities.size() - 1)];
}

}  // namespace

Result<Settings> parse_extension(std::string_view name, const std::string& text) {
  if (text.empty()) return Settings{};
  const json read = json::parse(text, nullptr, false);
  if (!read.is_object())
    return bad_request(fmt::format("x-sublet of stack {} is no mapping", printable(name)),
                       "for example x-sublet: {vram: 16GiB, tier: batch}");
  Settings found;
  for (const auto& [field, value] : read.items())
    if (const Status taken = take(name, field, value, found); !taken) return taken.error();
  if (found.share && !found.interposer.value_or(false))
    return bad_request(
        fmt::format("x-sublet of stack {} has share without interposer: the library in its programs keeps them to the "
                    "share",
                    printable(name)),
        "add interposer: true");
  return found;
}

std::string_view to_string(Source source) {
  switch (source) {
    case Source::exclusive: return "exclusive";
    case Source::set: return "set";
    case Source::file: return "file";
    case Source::peak: return "peak";
    case Source::device: return "device";
  }
  return "";
}

Size choose_size(const Settings& set, const Settings& file, Bytes peak, std::vector<Bytes> capacities) {
  Size size;
  size.devices = set.devices ? *set.devices : file.devices.value_or(1);
  size.tier = set.tier ? *set.tier : file.tier.value_or(core::Tier::standard);
  size.pausable = set.pausable ? *set.pausable : file.pausable.value_or(true);
  size.exclusive = set.exclusive ? *set.exclusive : file.exclusive.value_or(false);
  size.gpu_spec = file.gpu_spec.value_or("");
  size.interposer = file.interposer.value_or(false);
  size.share = file.share.value_or(0);
  const Bytes all = whole(std::move(capacities), size.devices);
  if (size.exclusive) {
    size.source = Source::exclusive;
    size.vram = all;
  } else if (set.vram) {
    size.source = Source::set;
    size.vram = *set.vram;
  } else if (file.vram) {
    size.source = Source::file;
    size.vram = *file.vram;
  } else if (peak > Bytes{}) {
    size.source = Source::peak;
    size.vram = std::min(std::max(peak + Bytes{peak.count / peak_margin}, least_lease), std::max(all, peak));
  } else {
    size.vram = all;
  }
  return size;
}

}  // namespace sublet::stacks
