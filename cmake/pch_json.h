// SPDX-License-Identifier: Apache-2.0
// For the folders most of whose files speak JSON.
#pragma once

#include "pch.h"

// The library's literal `_json`, which we do not use, is an inline function that parses: each file that sees it
// would instantiate the whole parser, for half a second. Here, and here only, its body belongs to a template that
// nobody asks for; code of ours means the same with and without this header.
#define _json(text, size) \
  _json(text, size);      \
  template <class Never>  \
  nlohmann::json never_parsed(text, size)
#include <nlohmann/json.hpp>
#undef _json
