// SPDX-License-Identifier: Apache-2.0
// Reads a resolved Compose configuration, and checks a configuration that overlays it. Pure; any thread.
#pragma once

#include "compose/interposer.h"
#include "compose/worker.h"

#include <string>
#include <string_view>

namespace sublet::compose {

// 1 to 63 characters: letters, 0 to 9, '_', '.' and '-', the first a letter or digit.
bool is_stack_name(std::string_view name);
// As Compose has them: a stack name without '.' and capitals.
bool is_project_name(std::string_view name);

// Returns the project name that Compose gives to a directory of this name; "": none.
std::string project_of(std::string_view directory_name);

// Reads what `config` printed into `into`: project, services, extension, resolved. `raw`: text of the Compose file, for
// the extension: Compose v1 leaves it out.
Status read_resolved(const std::string& resolved, const std::string& raw, Description& into);

// Returns the overlay as JSON, which Compose reads as YAML. Denied: it says more than environment, labels and devices
// of services that `resolved` has. `interposed`: mounts that are added for services of it.
Result<std::string> checked_overlay(const std::string& overlay, const std::string& resolved,
                                    const Interposed& interposed = {});

}  // namespace sublet::compose
