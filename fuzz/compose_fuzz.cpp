// SPDX-License-Identifier: Apache-2.0
// Compose files and what Compose makes of them, overlays, messages between daemon and worker, logs of containers. The
// first byte chooses the reader.
#include "compose/description.h"
#include "compose/log_frames.h"
#include "compose/protocol.h"
#include "compose/yaml.h"
#include "fuzz.h"

namespace {

using namespace sublet;

void read_files(const std::string& text) {
  compose::Description stack;
  stack.name = stack.project = "one";
  stack.file = "/one/compose.yml";
  const auto read = compose::read_resolved(text, text, stack);
  FUZZ_CHECK(!read || (!stack.services.empty() && compose::is_project_name(stack.project)));
  // An overlay that is let through says nothing but this, and is let through again.
  const auto checked = compose::checked_overlay(text, text);
  if (!checked) return;
  const auto whole = compose::read_yaml(*checked, "overlay");
  FUZZ_CHECK(whole && whole->root.is_object());
  const auto services = whole->root.value("services", nlohmann::json::object());
  for (const auto& service : services) {
    for (const auto& [key, value] : service.items()) {
      FUZZ_CHECK(key == "environment" || key == "labels" || key == "deploy");
    }
  }
}

template <typename T>
void expect_stable(const nlohmann::json& message) {
  const auto value = compose::from_json<T>(message);
  if (!value) return;
  const auto again = compose::from_json<T>(compose::to_json(*value));
  FUZZ_CHECK(again && compose::to_line(compose::to_json(*again)) == compose::to_line(compose::to_json(*value)));
}

void read_messages(std::string_view text) {
  compose::Lines lines;
  FUZZ_CHECK(lines.feed(text));
  while (const auto line = lines.next()) {
    const auto message = compose::parse_line(*line);
    if (!message) continue;
    expect_stable<compose::Sources>(message->root);
    expect_stable<compose::Observation>(message->root);
    expect_stable<compose::Engine>(message->root);
    expect_stable<compose::Start>(message->root);
    expect_stable<compose::Stop>(message->root);
    expect_stable<compose::LogQuery>(message->root);
    expect_stable<Error>(message->root);
    (void)compose::from_json<std::vector<compose::Description>>(nlohmann::json::array({message->root}));
  }
}

// The pieces in which a log arrives do not matter.
void read_log(std::string_view text, bool terminal) {
  compose::LogFrames whole("web", terminal), pieces("web", terminal);
  std::string expected = whole.feed(text), got;
  expected += whole.end();
  for (const char c : text) got += pieces.feed({&c, 1});
  got += pieces.end();
  FUZZ_CHECK(expected == got);
  FUZZ_CHECK(got.empty() || got.ends_with('\n'));
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text = text_of(data + 1, size - 1);
  switch (data[0] % 4) {
    case 0: read_files(std::string(text)); break;
    case 1: read_messages(text); break;
    default: read_log(text, data[0] % 4 == 2); break;
  }
  return 0;
}
