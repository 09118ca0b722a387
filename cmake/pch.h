// SPDX-License-Identifier: Apache-2.0
// The headers that take longest to parse and that nearly every file of src/ needs. No header of ours: a change here
// rebuilds everything.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include <boost/system/result.hpp>
#include <fmt/format.h>
