# SPDX-License-Identifier: Apache-2.0
"""Writes the API's contract as JSON in a C++ source: embed_contract.py openapi.yaml OUT.cpp"""
import json
import sys

import yaml

PIECE = 12000  # longest literal that every compiler must accept

with open(sys.argv[1], encoding="utf-8") as source:
    text = json.dumps(yaml.safe_load(source), separators=(",", ":"), ensure_ascii=True)
assert ")json\"" not in text
pieces = "\n".join(f'R"json({text[at:at + PIECE]})json"' for at in range(0, len(text), PIECE))
with open(sys.argv[2], "w", encoding="utf-8") as out:
    out.write(f"""// Made by cmake/embed_contract.py from api/openapi.yaml.
#include "http/contract.h"

namespace sublet::http {{
std::string_view contract() {{
  static constexpr std::string_view text =
{pieces};
  return text;
}}
}}  // namespace sublet::http
""")
