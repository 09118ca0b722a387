// SPDX-License-Identifier: Apache-2.0
// MIG slices: records behind those of the cards, which are made and destroyed while programs run.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "layout.h"
#include "spec.h"

namespace simgpu {

// The card of a slice that exists; nothing for any other place.
std::optional<unsigned> parent_of(const layout::Cards& table, unsigned place);
// The slices of a card, in the order of their indices.
std::vector<unsigned> slices_of(const layout::Cards& table, unsigned card);
// Makes a slice in the first place that has none, and that `is_free` allows. Nothing if there is no such place.
std::optional<unsigned> add_slice(layout::Cards& table, unsigned card, const Profile& profile,
                                  const std::function<bool(unsigned)>& is_free = nullptr);

}  // namespace simgpu
