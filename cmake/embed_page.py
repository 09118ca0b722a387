# SPDX-License-Identifier: Apache-2.0
"""Writes the page for browsers as compressed bytes in a C++ source: embed_page.py web OUT.cpp

All files have one address, /page/SET/NAME. SET is a hash of all of them, so that a browser may keep a file for ever.
"""
import gzip
import hashlib
import pathlib
import sys

TYPES = {".css": "text/css; charset=utf-8", ".html": "text/html; charset=utf-8",
         ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
LINE = 64  # bytes on a line


def literal(data):
    # Three octal digits: a shorter escape would take a digit that follows.
    return "\n".join('    "' + "".join(f"\\{byte:03o}" for byte in data[at:at + LINE]) + '"'
                     for at in range(0, len(data), LINE))


root, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
files = {path.relative_to(root).as_posix(): path.read_bytes()
         for path in sorted(root.rglob("*")) if path.suffix in TYPES}
page_set = hashlib.sha256()
for name, data in files.items():
    page_set.update(f"{name} {len(data)}\n".encode() + data)
address = page_set.hexdigest()[:16]
files["index.html"] = files["index.html"].replace(b"page/SET/", f"page/{address}/".encode())
rows = "".join(f'    PageFile{{"{name}", "{TYPES[pathlib.PurePath(name).suffix]}",\n'
               f"{literal(gzip.compress(data, 9, mtime=0))}sv}},\n" for name, data in files.items())
out.write_text(f"""// Made by cmake/embed_page.py from web/.
#include "http/page.h"

#include <array>

namespace sublet::http {{
using namespace std::string_view_literals;

std::span<const PageFile> page_files() {{
  static constexpr std::array files{{
{rows}  }};
  return files;
}}

std::string_view page_set() {{ return "{address}"; }}
}}  // namespace sublet::http
""", encoding="ascii")
