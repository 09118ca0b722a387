// SPDX-License-Identifier: Apache-2.0
// For the folders most of whose files speak JSON. Its literals are inline functions that parse, so every file that sees
// the library instantiates the parser, half a second each, precompiled or not: no header for those who do without.
#pragma once

#include "pch.h"

#include <nlohmann/json.hpp>
