// SPDX-License-Identifier: Apache-2.0
// The page for browsers: the files of web/, compressed, as of the build. Pure; any thread.
#pragma once

#include <span>
#include <string_view>

namespace sublet::http {

struct PageFile {
  std::string_view name;  // below web/: "views/cards.js"
  std::string_view type;  // Content-Type
  std::string_view gzip;  // the compressed content
};

std::span<const PageFile> page_files();
std::string_view page_set();  // hash of all files; the part of their address that changes with their content

}  // namespace sublet::http
