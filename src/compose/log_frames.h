// SPDX-License-Identifier: Apache-2.0
// Takes the log stream of the engine apart into lines. Values; any thread.
#pragma once

#include <nlohmann/json.hpp>

#include <map>
#include <string>
#include <string_view>

namespace sublet::compose {

// Whether a container has a terminal: its log then has no frames. `document`: the engine's answer to inspect.
bool has_terminal(const nlohmann::json& document);

// Returns whole lines with the name of the service before each. Standard output and error come in frames with a header
// of 8 bytes; a line may be spread over several frames. Longer lines than 16 KiB are cut into several.
class LogFrames {
 public:
  LogFrames(std::string service, bool terminal) : service_(std::move(service)), terminal_(terminal) {}
  std::string feed(std::string_view bytes);
  std::string end();  // the unfinished lines

 private:
  void take(std::string& line, std::string_view text, std::string& out);
  std::string service_;
  bool terminal_;
  std::string header_;
  std::size_t left_ = 0;               // bytes of the current frame
  std::map<char, std::string> lines_;  // by stream
};

}  // namespace sublet::compose
