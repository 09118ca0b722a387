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

TEST(Routes, AreTheContractsWithTheirParameters) {
  const json document = json::parse(contract());
  std::set<std::string> promised, there;
  for (const auto& [path, item] : document.at("paths").items()) {
    for (const auto& [method, call] : item.items()) {
      if (method == "parameters") continue;
      std::set<std::string> names;
      for (const json& parameter : call.value("parameters", json::array())) {
        const json& one = resolved(document, parameter);
        if (one.at("in") == "query") names.insert(one.at("name").get<std::string>());
      }
      promised.insert(fmt::format("{} {} {}", method, path, fmt::join(names, ",")));
    }
  }
  for (const Route& route : routes()) {
    std::set<std::string> names;
    std::istringstream query{std::string(route.query)};
    for (std::string name; std::getline(query, name, ',');) names.insert(name);
    std::string method(to_string(route.method));
    std::transform(method.begin(), method.end(), method.begin(), [](unsigned char c) { return std::tolower(c); });
    there.insert(fmt::format("{} {} {}", method, route.path, fmt::join(names, ",")));
  }
  EXPECT_EQ(promised, there);
}

}  // namespace
}  // namespace sublet::http
