// SPDX-License-Identifier: Apache-2.0
// For folders whose files mostly use JSON.
#pragma once

#include "pch.h"

// The library's literal `_json`, which we do not use, is an inline function that parses. Each file that sees it would
// instantiate the whole parser, for half a second. In this header its body belongs to a template that is never
// instantiated. Our code means the same with and without this header.
#define _json(text, size) \
  _json(text, size);      \
  template <class Never>  \
  nlohmann::json never_parsed(text, size)
#include <nlohmann/json.hpp>
#undef _json
