// SPDX-License-Identifier: Apache-2.0
// The compatible service: its calls, from the body to the answer. Belongs to the loop thread.
#pragma once

#include "http/compatible.h"
#include "http/compatible_server.h"
#include "stacks/one_slot.h"

#include <boost/asio/io_context.hpp>

namespace sublet::http {

class CompatibleService {
 public:
  // `is_admin`: stacks.http_role. Keeps references.
  CompatibleService(boost::asio::io_context& io, engine::Engine& engine, stacks::Stacks& stacks,
                    stacks::OneSlot& one_slot, bool is_admin);

  // The answers of the server's calls; valid as long as this object.
  CompatibleServer::Handler handler();

 private:
  using Done = CompatibleServer::Done;
  void status(Done done);
  void tell_status(Done done);
  std::function<void()> acquire(const std::string& body, Done done);
  void release(const std::string& body, Done done);
  void answer(const stacks::SlotAnswer& got, const std::string& target, Done done);
  compatible::View view(const std::string& target) const;
  bool may_show(const stacks::Entry& entry) const;
  std::string current_target() const;  // the holder's stack, or the one that was started last; "": none was
  // Reads the last lines of the target's master container, or of all its containers.
  void with_logs(const std::string& target, int lines, bool of_master, std::function<void(std::string)> then);

  boost::asio::io_context& io_;
  engine::Engine& engine_;
  stacks::Stacks& stacks_;
  stacks::OneSlot& one_slot_;
  const bool is_admin_;
};

}  // namespace sublet::http
