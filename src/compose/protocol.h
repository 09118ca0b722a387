// SPDX-License-Identifier: Apache-2.0
// The protocol between the daemon and `sublet-stacks`: a line of JSON for each message. The worker begins with a
// greeting. A request has a number, and its reply has the same; reports have none. Values; any thread.
//   request      {"id": 1, "do": "describe", "with": {…}}    do: describe up pull down watch logs stop_logs
//   reply        {"id": 1, "stacks": […]} or {"id": 1}, or {"id": 1, "error": {"code": …, "detail": …, "hint": …}}
//   report       {"hello": 2} {"engine": {…}} {"observation": {…}} {"log": 1, "text": "…"}
#pragma once

#include "base/error.h"
#include "compose/document.h"
#include "compose/worker.h"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sublet::compose {

inline constexpr int protocol_version = 2;
// A message with all stacks has their whole configurations.
inline constexpr std::size_t most_message = std::size_t{256} << 20;
inline constexpr const char* default_socket = "/run/sublet-stacks.sock";

// The line of a message, with its end. Bytes that are not UTF-8 are replaced.
std::string to_line(const nlohmann::json& message);
// Returns the message of a line. BadRequest: it is none.
Result<Document> parse_line(std::string_view line);

nlohmann::json to_json(const Sources& sources);
nlohmann::json to_json(const Description& stack);
nlohmann::json to_json(const Observation& seen);
nlohmann::json to_json(const Engine& engine);
nlohmann::json to_json(const Start& start);
nlohmann::json to_json(const Stop& stop);
nlohmann::json to_json(const LogQuery& query);
nlohmann::json to_json(const Error& error);

// Reads a part of a message: nothing if a field is missing or has a wrong type.
template <typename T>
std::optional<T> from_json(const nlohmann::json& object);
extern template std::optional<Sources> from_json(const nlohmann::json&);
extern template std::optional<std::vector<Description>> from_json(const nlohmann::json&);
extern template std::optional<Observation> from_json(const nlohmann::json&);
extern template std::optional<Engine> from_json(const nlohmann::json&);
extern template std::optional<Start> from_json(const nlohmann::json&);
extern template std::optional<Stop> from_json(const nlohmann::json&);
extern template std::optional<LogQuery> from_json(const nlohmann::json&);
extern template std::optional<Error> from_json(const nlohmann::json&);
extern template std::optional<std::vector<std::string>> from_json(const nlohmann::json&);
extern template std::optional<std::uint64_t> from_json(const nlohmann::json&);

// Collects bytes into lines.
class Lines {
 public:
  // False: a line is longer than most_message.
  bool feed(std::string_view bytes);
  std::optional<std::string> next();

 private:
  std::string text_;
  std::size_t begin_ = 0, searched_ = 0;
};

}  // namespace sublet::compose
