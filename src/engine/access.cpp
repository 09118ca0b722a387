// SPDX-License-Identifier: Apache-2.0
#include "engine/access.h"

#include "base/number.h"
#include "engine/engine.h"
#include "store/secret.h"

#include <utility>

namespace sublet::engine {

std::string_view to_string(Scope scope) {
  switch (scope) {
    case Scope::read: return "read";
    case Scope::submit: return "submit";
    case Scope::admin: return "admin";
  }
  return "read";
}

std::optional<Scope> parse_scope(std::string_view text) {
  for (const Scope scope : {Scope::read, Scope::submit, Scope::admin}) {
    if (text == to_string(scope)) return scope;
  }
  return std::nullopt;
}

// --- holding leases ---

void Access::hold(LeaseId lease, SessionId session, std::int32_t pid) {
  auto& sessions = holders_[lease];
  sessions.insert(session);
  held_by_[session].insert(lease);
  if (sessions.size() == 1 && core::find(engine_.state(), lease) != nullptr)
    engine_.tick(core::HeldChanged{lease, true, pid});
}

void Access::unhold(LeaseId lease, SessionId session) {
  const auto found = holders_.find(lease);
  if (found == holders_.end() || found->second.erase(session) == 0) return;
  if (const auto held = held_by_.find(session); held != held_by_.end()) held->second.erase(lease);
  if (!found->second.empty()) return;
  holders_.erase(found);
  if (const core::Lease* held = core::find(engine_.state(), lease); held != nullptr && !held->ended()) {
    engine_.tick(core::HeldChanged{lease, false});
  }
}

void Access::not_held(LeaseId lease) {
  if (!holders_.contains(lease) && core::find(engine_.state(), lease) != nullptr)
    engine_.tick(core::HeldChanged{lease, false});
}

void Access::session_closed(SessionId session) {
  bearers_.erase(session);
  const auto found = held_by_.find(session);
  if (found == held_by_.end()) return;
  const auto leases = std::move(found->second);
  held_by_.erase(found);
  for (const LeaseId lease : leases) unhold(lease, session);
}

void Access::forget_holders(LeaseId lease) {
  const auto found = holders_.find(lease);
  if (found == holders_.end()) return;
  for (const SessionId session : found->second) held_by_[session].erase(lease);
  holders_.erase(found);
}

void Access::tell_holders() {
  std::vector<LeaseId> held;  // a tick may end leases and remove their holders
  for (const auto& [lease, sessions] : holders_) held.push_back(lease);
  for (const LeaseId lease : held) {
    const core::Lease* live = core::find(engine_.state(), lease);
    if (live == nullptr || live->ended()) forget_holders(lease);
    else if (holders_.contains(lease)) engine_.tick(core::HeldChanged{lease, true});
  }
}

// --- waiting for leases ---

Access::Watchers::iterator Access::watch(LeaseId lease) {
  return watchers_.emplace(lease, std::make_shared<boost::asio::steady_timer>(io_));
}

void Access::announce(LeaseId lease) {
  const auto [first, last] = watchers_.equal_range(lease);
  for (auto it = first; it != last; ++it) it->second->cancel();
}

void Access::announce_all() {
  for (const auto& [lease, timer] : watchers_) timer->cancel();
}

// --- tokens ---

const store::AccessToken* Access::token_of(std::string_view text) const {
  constexpr std::string_view mark = "sublet_";
  if (!text.starts_with(mark)) return nullptr;
  text.remove_prefix(mark.size());
  const auto line = text.find('_');
  const auto number = parse_number<std::uint64_t>(text.substr(0, line));
  if (!number || line == std::string_view::npos) return nullptr;
  const auto secret = text.substr(line + 1);
  const auto found = tokens_.find(*number);
  if (found == tokens_.end() || !store::is_secret(secret, found->second.hash)) return nullptr;
  const store::AccessToken& token = found->second;
  return token.expired(engine_.now()) ? nullptr : &token;
}

void Access::shows(SessionId session, std::uint64_t token, std::function<void()> revoked) {
  Bearer& bearer = bearers_[session];
  bearer.tokens.insert(token);
  bearer.revoked = std::move(revoked);
}

Result<Answered> Access::add_token(store::AccessToken token, const Remember& remember,
                                   const std::function<Answered(const store::AccessToken&)>& answer) {
  if (const Status may = engine_.may_decide(); !may) return may.error();
  store::Batch batch;
  for (const auto& [number, old] : tokens_) {
    if (old.expired(engine_.now())) batch.revoked.push_back(number);
  }
  for (const std::uint64_t number : batch.revoked) tokens_.erase(number);
  token.number = ++last_token_;
  token.created_at = engine_.now();
  Answered answered = answer(token);
  tokens_.emplace(token.number, token);
  batch.tokens.push_back(std::move(token));
  engine_.write("token_made", std::move(batch), remember, answered);
  return answered;
}

Result<Answered> Access::revoke_token(std::uint64_t number, const Remember& remember, Answered answer) {
  if (const Status may = engine_.may_decide(); !may) return may.error();
  tokens_.erase(number);
  engine_.write("token_revoked", {.revoked = {number}}, remember, answer);
  // Wakes calls that wait or read events with this token.
  engine_.commits().wake_followers();
  announce_all();
  for (const auto& [session, bearer] : bearers_)
    if (bearer.tokens.contains(number)) bearer.revoked();
  return answer;
}

void Access::loaded(std::vector<store::AccessToken> tokens, std::uint64_t last) {
  tokens_.clear();
  for (store::AccessToken& token : tokens) tokens_.emplace(token.number, std::move(token));
  last_token_ = std::max(last, last_token_);
}

}  // namespace sublet::engine
