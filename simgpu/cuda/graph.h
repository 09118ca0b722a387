// SPDX-License-Identifier: Apache-2.0
// Streams that are being captured, and the graphs that become of them.
#pragma once

#include "driver.h"

namespace simgpu {

enum class CaptureMode : int { global = 0, of_thread = 1, relaxed = 2 };

// A captured launch: what the stream would have got.
struct Node {
  std::function<CUresult()> run;
  std::vector<Touch> touches;
};

// Also what is instantiated of it, since nothing here changes a graph.
struct Graph {
  std::vector<Node> nodes;
};

struct Capture {
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  CaptureMode mode{};
  std::uint64_t id = 0, thread = 0;
  bool broken = false;  // invalidated by a call that a capture does not allow
};

// All functions take the driver's lock as held.

// The calling thread's mode of captures (cuThreadExchangeStreamCaptureMode).
CaptureMode& capture_mode();
// The result of a call that puts work into the stream which a capture cannot take, or asks for its work. Such a call
// ends the capture.
CUresult refuse_in_capture(Stream& stream);
// Puts a launch into the stream, or into the graph that it is captured for.
CUresult submit_or_capture(const std::shared_ptr<Stream>& stream, Node node);
// The result of a call that no thread may make while a capture that is not relaxed goes on.
CUresult refuse_unsafe();

}  // namespace simgpu
