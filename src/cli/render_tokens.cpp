// SPDX-License-Identifier: Apache-2.0
// `token ls`: the access tokens and when they expire.
#include "cli/render.h"

namespace sublet::cli {

using nlohmann::json;

namespace {

Cell age_cell(const json& token, const Look& look) {
  const auto made = time_at(token, "created_at");
  return {made ? compact(look.now - *made) : "-"};
}

Cell left_cell(const json& token, const Look& look) {
  const auto until = time_at(token, "expires_at");
  if (!until) return {"never"};
  if (*until <= look.now) return {"expired", Paint::red};
  return {"in " + compact(*until - look.now)};
}

constexpr Column token_columns[] = {
    {"id", "ID", true, false, +[](const json& r, const Look&) { return text_cell(r, "id"); }},
    {"name", "NAME", true, false, +[](const json& r, const Look&) { return text_cell(r, "name"); }, Narrow::shorten},
    {"scope", "SCOPE", true, false, +[](const json& r, const Look&) { return text_cell(r, "scope"); }},
    {"user", "USER", true, false, +[](const json& r, const Look&) { return text_cell(r, "user"); }, Narrow::shorten},
    {"age", "AGE", true, true, age_cell},
    {"expires", "EXPIRES", true, false, left_cell},
    {"created", "CREATED", false, false, +[](const json& r, const Look&) { return text_cell(r, "created_at"); }},
    {"until", "UNTIL", false, false, +[](const json& r, const Look&) { return text_cell(r, "expires_at"); }},
};

}  // namespace

Result<std::string> render_tokens(const json& tokens, const Common& common, const Look& look) {
  return render_table("token ls", token_columns, list_at(tokens, "tokens"), common, look);
}

}  // namespace sublet::cli
