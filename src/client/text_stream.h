// SPDX-License-Identifier: Apache-2.0
// Reads a long answer in pieces as they come. Blocks; single thread.
#pragma once

#include "base/fd.h"
#include "base/units.h"
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

  // Returns the next piece; "" if no piece came within `silence`. Nothing at the end: complete() tells whether the
  // answer was whole. An answer without a length is whole when the daemon closes the connection.
  std::optional<std::string> next(Duration silence);
  bool complete() const { return complete_; }

  void close() { socket_.reset(); }

 private:
  struct Answer;
  enum class Came { some, nothing, end };
  Came read_more(Duration timeout);

  Endpoint endpoint_;
  Fd socket_;
  std::unique_ptr<Answer> answer_;
  bool complete_ = false;
};

}  // namespace sublet::client
