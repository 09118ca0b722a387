// SPDX-License-Identifier: Apache-2.0
#include "compose/yaml.h"

#include "base/number.h"
#include "base/text.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <cmath>
#include <cstdlib>

namespace sublet::compose {
namespace {

using nlohmann::json;

// A text may name a part of itself many times, so the document can be larger than its text.
constexpr std::size_t most_nodes = 200'000;
constexpr std::size_t most_bytes = 4 * most_yaml;
constexpr int most_depth = 100;

struct Converter {
  std::string source;
  std::size_t nodes = 0, bytes = 0;
  std::string problem;  // set: the conversion is given up

  json convert(const YAML::Node& node, int depth);
  json map(const YAML::Node& node, int depth);
  void give_up(const YAML::Node& node, std::string_view why) {
    if (problem.empty()) problem = fmt::format("{}:{}: {}", source, node.Mark().line + 1, why);
  }
};

// The scalars of YAML 1.2, with the booleans that Compose also knows.
json plain_scalar(const std::string& text) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return nullptr;
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  if (const auto number = parse_number<std::int64_t>(text)) return *number;
  if (text.find_first_not_of("0123456789.eE+-") == std::string::npos) {
    char* end = nullptr;
    const double number = std::strtod(text.c_str(), &end);
    if (*end == '\0' && std::isfinite(number)) return number;
  }
  return text;
}

json Converter::map(const YAML::Node& node, int depth) {
  json whole = json::object();
  for (const auto& entry : node) {
    if (!entry.first.IsScalar()) {
      give_up(entry.first, "a key is not a word");
      return {};
    }
    const std::string& key = entry.first.Scalar();
    bytes += key.size();
    if (whole.contains(key)) give_up(entry.first, fmt::format("the key '{}' is given twice", printable(key)));
    whole[key] = convert(entry.second, depth + 1);
    if (!problem.empty()) return {};
  }
  return whole;
}

json Converter::convert(const YAML::Node& node, int depth) {
  if (depth > most_depth) give_up(node, fmt::format("more than {} levels deep", most_depth));
  if (++nodes > most_nodes || bytes > most_bytes) give_up(node, "the document is too large");
  if (!problem.empty()) return {};
  if (node.IsMap()) return map(node, depth);
  if (node.IsSequence()) {
    json list = json::array();
    for (const auto& entry : node) {
      list.push_back(convert(entry, depth + 1));
      if (!problem.empty()) return {};
    }
    return list;
  }
  if (!node.IsScalar()) return nullptr;
  bytes += node.Scalar().size();
  return node.Tag() == "?" || node.Tag().empty() ? plain_scalar(node.Scalar()) : json(node.Scalar());
}

}  // namespace

Result<Document> read_yaml(std::string_view text, const std::string& source) {
  auto all = read_all_yaml(text, source);
  if (!all) return all.error();
  return all->empty() ? Document{} : std::move(all->front());
}

Result<std::vector<Document>> read_all_yaml(std::string_view text, const std::string& source) {
  if (text.size() > most_yaml) {
    return bad_request(fmt::format("{} has {} bytes, at most {} are read", source, text.size(), most_yaml));
  }
  try {
    Converter converter;
    converter.source = source;
    std::vector<Document> all;
    for (const YAML::Node& node : YAML::LoadAll(std::string(text))) {
      all.push_back({converter.convert(node, 0)});
      if (!converter.problem.empty()) return bad_request(std::move(converter.problem));
    }
    return all;
  } catch (const YAML::Exception& error) {
    const int line = error.mark.is_null() ? 1 : error.mark.line + 1;
    return bad_request(fmt::format("{}:{}: {}", source, line, printable(error.msg)), "correct the YAML");
  }
}

std::string scalar_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null() || value.is_structured()) return {};
  return value.dump();
}

}  // namespace sublet::compose
