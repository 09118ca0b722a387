// SPDX-License-Identifier: Apache-2.0
// Waiting for a session, for the verbs of `sublet session`.
#pragma once

#include "cli/output.h"
#include "client/client.h"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <variant>

namespace sublet::cli {

// "/v1/sessions/ID" and a call below it.
std::string session_target(const std::string& id, const std::string& call = {});

// Where a session goes: to its memory, or to its end.
enum class Goal { active, end };

// Follows a session until it is active or has ended, and prints it.
class SessionWait {
 public:
  SessionWait(const Common& common, client::Client client, Goal goal = Goal::active)
      : common_(common), client_(std::move(client)), goal_(goal) {}
  // An end without its checkpoint is a success.
  SessionWait& accept_loss(bool accepts) {
    accepts_loss_ = accepts;
    return *this;
  }

  int go(nlohmann::json session, bool no_wait, std::optional<Duration> at_most = {});
  // The session once it is where it goes; else the exit code, after the failure was printed. A session that is not
  // there after `at_most` is closed.
  std::variant<nlohmann::json, int> arrive(nlohmann::json session, std::optional<Duration> at_most);

 private:
  const Common& common_;
  client::Client client_;
  Goal goal_;
  bool accepts_loss_ = false;
  std::string told_;

  void tell(const nlohmann::json& session);
  int give_up(const std::string& id, Duration waited);
  int tell_end(const nlohmann::json& session);
  int print(const nlohmann::json& session, bool waited);
};

}  // namespace sublet::cli
