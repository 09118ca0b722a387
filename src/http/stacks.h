// SPDX-License-Identifier: Apache-2.0
// Shared parts of the resources about stacks.
#pragma once

#include "http/message.h"
#include "http/stored.h"
#include "stacks/stacks.h"

namespace sublet::http {

// Unavailable while stacks are switched off.
Result<stacks::Stacks*> stacks_of(const Capabilities& capabilities);
// Unavailable while stacks are switched off, NotFound with the nearest name.
Result<const stacks::Entry*> find_stack(const Capabilities& capabilities, const std::string& name);
// Denied unless the caller shows the token of the acquisition, is its user, or an admin. A wrong token is Denied.
// Everybody may use a stack that is not in use.
Status may_use_stack(const engine::Peer& peer, const std::string& token, const stacks::Entry& entry);
// Whether the text is the token of the present acquisition.
bool is_token_of(const std::string& token, const stacks::Entry& entry);
// The stack as the API shows it. `detailed`: with its containers and its place in the queue.
json render_stack(const stacks::Entry& entry, const stacks::Stacks& stacks, const engine::Engine& engine,
                  bool detailed);
// As stored().
Reply store_stack(engine::Engine& engine, const engine::Remember& remember, int status,
                  const std::function<json()>& shown);

}  // namespace sublet::http
