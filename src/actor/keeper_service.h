// SPDX-License-Identifier: Apache-2.0
// Starts keepers outside of the actor's confinement. The service manager runs `sublet-actor keep` in a unit of its own
// for each connection to sublet-keeper.socket (packaging/sublet-keeper@.service). Nothing here waits for a keeper.
#pragma once

#include "actor/keeper_start.h"

#include <cstdint>
#include <string>

namespace sublet::actor {

// Sends the order to the service at this path: the user, the document, and the writing end of the keeper's report.
// Returns "" or a sentence about the failure, with errno.
std::string hand_keeper_over(const std::string& path, std::uint32_t uid, int document, int report);

// Receives one order from the connected socket, makes the directory of the user's logs, and becomes the keeper. Only
// root and this process's user may order one. Returns why it became no keeper; the report has the same sentence, if an
// order came. Takes `socket`.
std::string become_ordered_keeper(int socket, const KeeperOptions& options);

}  // namespace sublet::actor
