// SPDX-License-Identifier: Apache-2.0
// Connections to the daemon: the leases that they hold and wait for, and the access tokens that they showed. Belongs to
// the loop thread.
#pragma once

#include "engine/options.h"
#include "engine/peer.h"
#include "store/store.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace sublet::engine {

class Engine;

class Access {
 public:
  Access(Engine& engine, boost::asio::io_context& io) : engine_(engine), io_(io) {}

  // --- holding leases ---
  // The connection of process `pid` (0: unknown) holds the lease until it closes or calls unhold().
  void hold(LeaseId lease, SessionId session, std::int32_t pid = 0);
  void unhold(LeaseId lease, SessionId session);  // ends hold()
  void not_held(LeaseId lease);  // the call that submitted the lease was answered, and no connection waits
  void session_closed(SessionId session);
  void forget_holders(LeaseId lease);  // an ended lease has no holder, however long a connection stays open
  void tell_holders();                 // the leases were read again: the core learns which of them are held

  // --- waiting for leases ---
  // Returns a timer that is cancelled at each durable change of the lease, until unwatch().
  using Watchers = std::multimap<LeaseId, std::shared_ptr<boost::asio::steady_timer>>;
  Watchers::iterator watch(LeaseId lease);
  void unwatch(Watchers::iterator watcher) { watchers_.erase(watcher); }
  void announce(LeaseId lease);  // its change is durable
  void announce_all();           // all waiting calls look at the new state

  // --- tokens ---
  const std::map<std::uint64_t, store::AccessToken>& tokens() const { return tokens_; }
  // Returns the token with this secret ("sublet_3_…"); null if there is none or it has expired.
  const store::AccessToken* token_of(std::string_view text) const;
  // The connection showed the access token of this number. `revoked` is called if the token is revoked while the
  // connection is open.
  void shows(SessionId session, std::uint64_t token, std::function<void()> revoked);
  // Stores the token under a new number, with the answer that `answer` makes from it. Removes expired tokens.
  Result<Answered> add_token(store::AccessToken token, const Remember& remember,
                             const std::function<Answered(const store::AccessToken&)>& answer);
  Result<Answered> revoke_token(std::uint64_t number, const Remember& remember, Answered answer);
  void loaded(std::vector<store::AccessToken> tokens, std::uint64_t last);  // the store was read

 private:
  struct Bearer {
    std::set<std::uint64_t> tokens;
    std::function<void()> revoked;
  };

  Engine& engine_;
  boost::asio::io_context& io_;
  std::unordered_map<LeaseId, std::unordered_set<SessionId>> holders_;
  std::unordered_map<SessionId, std::unordered_set<LeaseId>> held_by_;
  Watchers watchers_;
  std::map<std::uint64_t, store::AccessToken> tokens_;
  std::unordered_map<SessionId, Bearer> bearers_;
  std::uint64_t last_token_ = 0;
};

}  // namespace sublet::engine
