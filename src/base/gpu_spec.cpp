// SPDX-License-Identifier: Apache-2.0
#include "base/gpu_spec.h"

#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

namespace sublet {
namespace {

constexpr std::array<std::string_view, 4> fields{"name", "memory", "cc", "link"};
constexpr const char* example = R"(for example "name=A100*,memory>=40GB,cc>=8.0,link=nvlink")";

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

// '*' stands for any text, '?' for one character; letters match in both cases.
bool fits(std::string_view pattern, std::string_view text) {
  std::size_t at = 0, in_text = 0, star = std::string_view::npos, after_star = 0;
  while (in_text < text.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      after_star = in_text;
    } else if (at < pattern.size() && (pattern[at] == '?' || lower(pattern[at]) == lower(text[in_text]))) {
      ++at, ++in_text;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      in_text = ++after_star;
    } else {
      return false;
    }
  }
  while (at < pattern.size() && pattern[at] == '*') ++at;
  return at == pattern.size();
}

// From the first word on, or from a later one: A100* means "NVIDIA A100-SXM4-80GB" too.
bool names(std::string_view pattern, std::string_view name) {
  while (true) {
    if (fits(pattern, name)) return true;
    const auto blank = name.find(' ');
    if (blank == std::string_view::npos) return false;
    name.remove_prefix(blank + 1);
  }
}

Error wrong(std::string_view part, std::string_view why) {
  return bad_request(fmt::format("gpu_spec: '{}' {}", printable(part), why), example);
}

}  // namespace

std::optional<int> parse_capability(std::string_view text) {
  const auto point = std::min(text.find('.'), text.size());
  const std::string_view major = text.substr(0, point), minor = point == text.size() ? "0" : text.substr(point + 1);
  const auto number = [](std::string_view digits, int& into) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), into);
    return error == std::errc{} && end == digits.data() + digits.size() && into >= 0;
  };
  int high = 0, low = 0;
  if (!number(major, high) || !number(minor, low) || high > 99 || minor.size() != 1) return std::nullopt;
  return high * 10 + low;
}

std::string describe(const DescribedGpu& gpu) {
  std::string text = gpu.name + ", " + format_size(gpu.total);
  if (gpu.capability) text += fmt::format(", cc {}.{}", *gpu.capability / 10, *gpu.capability % 10);
  text += gpu.has_nvlink.value_or(false) ? ", nvlink" : ", pcie";
  return text;
}

Result<GpuSpec::Part> GpuSpec::parse_part(std::string_view text) {
  const auto begin = std::min(text.find_first_of("=!<>"), text.size());
  const auto end = std::min(text.find_first_not_of("=!<>", begin), text.size());
  const std::string_view field = trim(text.substr(0, begin)), how = text.substr(begin, end - begin);
  const std::string_view value = trim(text.substr(end));
  if (std::ranges::find(fields, field) == fields.end())
    return wrong(text, fmt::format("has the unknown field '{}'{}; the fields are name, memory, cc and link",
                                   printable(field), did_you_mean(field, fields)));
  constexpr std::array<std::pair<std::string_view, Operator>, 6> operators{{{"=", Operator::equal},
                                                                            {"!=", Operator::not_equal},
                                                                            {"<", Operator::less},
                                                                            {"<=", Operator::at_most},
                                                                            {">", Operator::greater},
                                                                            {">=", Operator::at_least}}};
  const auto* found = std::ranges::find(operators, how, &std::pair<std::string_view, Operator>::first);
  if (found == operators.end())
    return wrong(text, fmt::format("has no operator after {}: =, !=, <, <=, > or >=", field));
  if (value.empty()) return wrong(text, fmt::format("has no value for {}", field));
  Part part{std::string(field), found->second, std::string(value), 0};
  const bool is_text = field == "name" || field == "link";
  if (is_text && part.how != Operator::equal && part.how != Operator::not_equal)
    return wrong(text, fmt::format("compares {} by {}; {} takes = and !=", field, how, field));
  if (field == "link" && value != "nvlink" && value != "pcie")
    return wrong(text, "has a link that is not nvlink or pcie");
  if (field == "memory") {
    const auto size = parse_size(value);
    if (!size) return wrong(text, fmt::format("has no size for memory: {}", size.error().detail));
    part.number = size->count;
  }
  if (field == "cc") {
    const auto capability = parse_capability(value);
    if (!capability) return wrong(text, "has no compute capability such as 8.0 for cc");
    part.number = *capability;
  }
  return part;
}

Result<GpuSpec> GpuSpec::parse(std::string_view text) {
  if (text.size() > longest_gpu_spec)
    return bad_request(fmt::format("gpu_spec has {} bytes, more than {}", text.size(), longest_gpu_spec), example);
  GpuSpec spec;
  while (true) {
    const auto end = std::min(text.find(','), text.size());
    const std::string_view part = trim(text.substr(0, end));
    if (part.empty()) return bad_request("gpu_spec has an empty part", example);
    auto parsed = parse_part(part);
    if (!parsed) return parsed.error();
    spec.parts_.push_back(std::move(*parsed));
    if (end == text.size()) return spec;
    text.remove_prefix(end + 1);
  }
}

bool GpuSpec::holds(const Part& part, const DescribedGpu& gpu) {
  const auto compare = [&part](std::int64_t has) {
    switch (part.how) {
      case Operator::equal: return has == part.number;
      case Operator::not_equal: return has != part.number;
      case Operator::less: return has < part.number;
      case Operator::at_most: return has <= part.number;
      case Operator::greater: return has > part.number;
      case Operator::at_least: return has >= part.number;
    }
    return false;
  };
  const bool wanted = part.how == Operator::equal;
  if (part.field == "name") return names(part.pattern, gpu.name) == wanted;
  if (part.field == "memory") return compare(gpu.total.count);
  if (part.field == "cc") return gpu.capability && compare(*gpu.capability);
  return ((part.pattern == "nvlink") == gpu.has_nvlink.value_or(false)) == wanted;
}

bool GpuSpec::matches(const DescribedGpu& gpu) const {
  return std::ranges::all_of(parts_, [&gpu](const Part& part) { return holds(part, gpu); });
}

}  // namespace sublet
