// SPDX-License-Identifier: Apache-2.0
// Reads a long answer in pieces as they come. Blocks; single thread.
#pragma once

#include "base/fd.h"
#include "client/http.h"

#include <memory>
#include <optional>
#include <string>

namespace sublet::client {

class TextStream {
 public:
  explicit TextStream(Endpoint endpoint);
  ~TextStream();
  TextStream(TextStream&&) = delete;
  TextStream& operator=(TextStream&&) = delete;

  // Requests `target` and waits for the head of the answer. A refusal is the daemon's own error.
  boost::system::result<void, Failure> open(const std::string& target);

  // Returns the next piece, which is not empty. Nothing at the end; complete() tells whether the daemon ended it.
  std::optional<std::string> next();
  bool complete() const { return complete_; }

 private:
  struct Answer;
  bool read_more(int timeout_ms);

  Endpoint endpoint_;
  Fd socket_;
  std::unique_ptr<Answer> answer_;
  bool complete_ = false;
};

}  // namespace sublet::client
