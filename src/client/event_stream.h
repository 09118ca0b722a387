// SPDX-License-Identifier: Apache-2.0
// Reads the daemon's stream of events, one event at a time. Blocks; single thread.
#pragma once

#include "base/fd.h"
#include "base/units.h"
#include "client/http.h"

#include <optional>
#include <string>

namespace sublet::client {

struct StreamedEvent {
  std::string type;
  std::string data;  // JSON
};

class EventStream {
 public:
  explicit EventStream(Endpoint endpoint) : endpoint_(std::move(endpoint)) {}

  // Requests `target`, for the events after `last_id` ("": from now on). Waits for the daemon's answer.
  boost::system::result<void, Failure> open(const std::string& target, const std::string& last_id);

  // Returns the next event. Nothing if the stream has ended, or if the daemon sent nothing, not even a keep-alive, for
  // `silence`.
  std::optional<StreamedEvent> next(Duration silence);

  // Returns the id of the last event, with which a new stream can continue.
  const std::string& last_id() const { return last_id_; }

  // Whether the daemon ended the stream, so that it was not cut off.
  bool complete() const { return complete_; }

 private:
  bool read_more(Duration silence);
  std::optional<StreamedEvent> take(std::string_view block);

  Endpoint endpoint_;
  Fd socket_;
  std::string buffer_;
  std::string last_id_;
  bool complete_ = false;
};

}  // namespace sublet::client
