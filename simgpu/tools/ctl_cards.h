// SPDX-License-Identifier: Apache-2.0
// The operations of simgpu-ctl on the cards: find, make, describe.
#pragma once

#include "base/error.h"
#include "simgpu/table/table.h"

#include <nlohmann/json.hpp>

#include <memory>
#include <string>
#include <string_view>

namespace simgpu::tools {

// Returns the place of the cards in a daemon's directory.
std::string cards_directory(const std::string& dir);

// Makes the cards, or leaves them as they are if they match the specification. Other cards are an error (InUse) that
// names both.
sublet::Result<std::unique_ptr<Table>> create_cards(const std::string& cards_dir, std::string_view text);
sublet::Result<std::unique_ptr<Table>> open_cards(const std::string& cards_dir);

// Returns the text form of cards, as `create` takes it: "2x24GiB,Simulated GPU 24GiB,reserve=614MiB".
std::string describe(const Spec& spec);
Spec spec_of(const Table& table);  // devices only

nlohmann::json cards_json(Table& table);
std::string cards_text(Table& table);

void clear_fault(Table& table, FaultKind kind);

}  // namespace simgpu::tools
