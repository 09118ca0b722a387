// SPDX-License-Identifier: Apache-2.0
// Shared parts of the resources about sessions.
#pragma once

#include "http/message.h"
#include "sessions/sessions.h"

namespace sublet::http {

// Unavailable while sessions are switched off.
Result<sessions::Sessions*> sessions_of(const Capabilities& capabilities);
// The session of that id. Denied: it belongs to somebody else, and the caller is no admin.
Result<const sessions::Session*> find_session(const Call& call, const std::string& id);
// The session as the API shows it to this caller.
json render_session(const sessions::Session& session, const sessions::Sessions& sessions, const engine::Engine& engine,
                    const engine::Peer& viewer);
// As stored(), with the session.
Reply store_session(Call& call, int status, const sessions::Session& session);
// Gives the session a lease that the caller submits, and answers with the session and the token of the lease.
// `session`: a new one, or one that is closed.
Reply submit_session(Call& call, sessions::Session session);

}  // namespace sublet::http
