// SPDX-License-Identifier: Apache-2.0
// The daemon's stream of events, one at a time. Blocks; single thread.
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

  // Asks for `target`, for what came after the event `last_id` ("": from now on). Waits for the daemon's yes or no.
  boost::system::result<void, Failure> open(const std::string& target, const std::string& last_id);

  // The next event; nothing when the stream has ended, or the daemon was silent for `silence`, signs of life included.
  std::optional<StreamedEvent> next(Duration silence);

  // Where to go on after a stream has ended: the id of the last event that was returned.
  const std::string& last_id() const { return last_id_; }

  // Whether the daemon said that there is no more, rather than that it was cut off.
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
