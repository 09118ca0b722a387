// SPDX-License-Identifier: Apache-2.0
// The routes and their parameters are those of the contract.
#include "http/contract.h"

#include "http/routes.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>
#include <sstream>

namespace sublet::http {
namespace {

// The target of a reference inside the contract.
const json& resolved(const json& contract, const json& node) {
  const auto ref = node.find("$ref");
  return ref == node.end() ? node : contract.at(json::json_pointer(ref->get<std::string>().substr(1)));
}

std::set<std::string> names_in(std::string_view list) {
  std::set<std::string> names;
  std::istringstream text{std::string(list)};
  for (std::string name; std::getline(text, name, ',');) names.insert(name);
  return names;
}

std::string last_part(const std::string& ref) { return ref.substr(ref.rfind('/') + 1); }

// The parameters of the query; of a POST the fields of the body, or the name of its schema.
std::set<std::string> taken_by(const json& document, const json& call) {
  std::set<std::string> names;
  for (const json& parameter : call.value("parameters", json::array())) {
    const json& one = resolved(document, parameter);
    if (one.at("in") == "query") names.insert(one.at("name").get<std::string>());
  }
  if (!call.contains("requestBody")) return names;
  const json& body = resolved(document, call.at("requestBody")).at("content").at("application/json").at("schema");
  if (body.contains("$ref")) return {last_part(body.at("$ref"))};
  const json fields = body.value("properties", json::object());
  for (const auto& [name, field] : fields.items()) names.insert(name);
  return names;
}

// The names of the schemas of the good answers.
std::set<std::string> answers_of(const json& document, const json& call) {
  std::set<std::string> names;
  for (const auto& [status, answer] : call.at("responses").items()) {
    if (!status.starts_with('2')) continue;
    const json content = resolved(document, answer).value("content", json::object());
    for (const auto& [type, one] : content.items())
      if (one.contains("schema") && one["schema"].contains("$ref")) names.insert(last_part(one["schema"]["$ref"]));
  }
  return names;
}

TEST(Routes, AreTheContractsWithWhatTheyTakeAndAnswer) {
  const json document = json::parse(contract());
  std::set<std::string> promised, there;
  for (const auto& [path, item] : document.at("paths").items()) {
    for (const auto& [method, call] : item.items()) {
      if (method == "parameters") continue;
      promised.insert(fmt::format("{} {} takes {}, answers {}", method, path, fmt::join(taken_by(document, call), ","),
                                  fmt::join(answers_of(document, call), ",")));
    }
  }
  for (const Route& route : routes()) {
    std::string method(to_string(route.method));
    std::transform(method.begin(), method.end(), method.begin(), [](unsigned char c) { return std::tolower(c); });
    there.insert(fmt::format("{} {} takes {}, answers {}", method, route.path, fmt::join(names_in(route.takes), ","),
                             fmt::join(names_in(route.answers), ",")));
  }
  std::vector<std::string> differ;
  std::ranges::set_symmetric_difference(promised, there, std::back_inserter(differ));
  EXPECT_TRUE(differ.empty()) << fmt::format("in the contract or the table alone:\n{}", fmt::join(differ, "\n"));
}

}  // namespace
}  // namespace sublet::http
