// SPDX-License-Identifier: Apache-2.0
// The head of a browser's request: the head for the daemon is one request, whatever came.
#include "cli/web_request.h"
#include "fuzz.h"

#include <algorithm>

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sublet;
  const auto request = cli::parse_web_request(text_of(data, size));
  if (!request) return 0;
  (void)cli::check_origin(*request);
  const std::string head = cli::head_for_daemon(*request, "localhost", "token");
  FUZZ_CHECK(head.find("\r\n\r\n") == head.size() - 4);
  FUZZ_CHECK(std::ranges::count(head, '\n') == std::ranges::count(head, '\r'));
  const auto again = cli::parse_web_request(head);
  FUZZ_CHECK(again && again->target == request->target && again->field("host") == "localhost");
  return 0;
}
