// SPDX-License-Identifier: Apache-2.0
// Access tokens, and the common part of all requested changes: a missing store refuses the change, and its answer may
// be remembered.
#include "engine/engine.h"

#include "base/mutants.h"
#include "base/number.h"
#include "store/secret.h"

#include <fmt/format.h>

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

Status Engine::may_decide() const {
  if (!store_problem_.empty()) {
    return unavailable("no change is possible while the store is not usable: " + store_problem_,
                       "'sublet status' shows when the store is back");
  }
  if (const auto backlog = store_.backlog(); backlog.full()) {
    return unavailable(fmt::format("{} changes wait to be written, which is the limit", backlog.batches),
                       "retry in a moment");
  }
  return {};
}

std::optional<store::Remembered> Engine::remembered_answer(const Remember& remember, const Answered& answer,
                                                           Time now) const {
  if (remember.key.empty() || mutant(Mutant::answers_are_not_kept)) return std::nullopt;
  return store::Remembered{remember.uid, remember.key, remember.fingerprint, answer.status, answer.body, now};
}

const store::AccessToken* Engine::token_of(std::string_view text) const {
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
  return token.expired(now()) ? nullptr : &token;
}

void Engine::remember(const Remember& remember, const Answered& answer) {
  if (!remember.key.empty() && store_problem_.empty()) write("answered", {}, remember, answer);
}

void Engine::write(std::string_view transition, store::Batch batch, const Remember& remember, const Answered& answer) {
  hand_over();  // what was decided before comes first
  batch.now = now();
  batch.remembered = remembered_answer(remember, answer, batch.now);
  batch.transitions = {transition};
  reach(batch.transitions, Failpoints::decided);
  AfterCommit next;
  next.transitions = batch.transitions;
  next.sequence = hand_to_store(std::move(batch));
  reach(next.transitions, Failpoints::queued);
  after_commit_.push_back(std::move(next));
}

Result<Answered> Engine::add_token(store::AccessToken token, const Remember& remember,
                                   const std::function<Answered(const store::AccessToken&)>& answer) {
  if (const Status may = may_decide(); !may) return may.error();
  store::Batch batch;
  for (const auto& [number, old] : tokens_) {
    if (old.expired(now())) batch.revoked.push_back(number);
  }
  for (const std::uint64_t number : batch.revoked) tokens_.erase(number);
  token.number = ++last_token_;
  token.created_at = now();
  Answered answered = answer(token);
  tokens_.emplace(token.number, token);
  batch.tokens.push_back(std::move(token));
  write("token_made", std::move(batch), remember, answered);
  return answered;
}

Result<Answered> Engine::revoke_token(std::uint64_t number, const Remember& remember, Answered answer) {
  if (const Status may = may_decide(); !may) return may.error();
  tokens_.erase(number);
  write("token_revoked", {.revoked = {number}}, remember, answer);
  // Wakes calls that wait or read events with this token.
  wake_followers();
  for (const auto& [lease, timer] : watchers_) timer->cancel();
  for (const auto& [session, bearer] : bearers_)
    if (bearer.tokens.contains(number)) bearer.revoked();
  return answer;
}

}  // namespace sublet::engine
