// SPDX-License-Identifier: Apache-2.0
// Finds stacks: directories with a Compose file, named files, adopted ones. Reads the file system; any thread.
#pragma once

#include "compose/trust.h"
#include "compose/worker.h"

#include <string>
#include <vector>

namespace sublet::compose {

inline constexpr std::size_t most_stacks = 1000;

// Returns all stacks, sorted by name, with name, origin, file, directory and the project's default name. A stack that
// is unsafe, has no legal name, or shares its name with another one has `error`. A source that cannot be read is a
// stack with the name of the source and an error.
std::vector<Description> discover(const Sources& sources, const Trust& trust);

// Marks stacks that are one Compose project: the second would replace the containers of the first.
void refuse_shared_projects(std::vector<Description>& stacks);

}  // namespace sublet::compose
