// SPDX-License-Identifier: Apache-2.0
// Receives the questions of wire/credit.h on a Unix socket. Each question has a connection of its own. A caller that
// sends nothing is sent away, the oldest first of a user with many of them. Belongs to the loop thread.
#pragma once

#include "base/error.h"
#include "base/fd.h"
#include "credit/channel.h"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <memory>
#include <string>

namespace sublet::limit {

// A question and its connection, which gets one answer (credit::answer) and is closed.
struct Asked {
  credit::Question question;
  Fd connection;
};

class Questions {
 public:
  // `root` must outlive it. `asked` is called on the loop.
  Questions(boost::asio::io_context& io, const proc::ProcRoot& root, std::function<void(Asked)> asked);
  ~Questions();

  Status start(const std::string& path);
  void stop();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace sublet::limit
