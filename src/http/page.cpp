// SPDX-License-Identifier: Apache-2.0
// Serves the page for browsers. It is open to everybody: it has no data, and makes the calls of the API by itself.
#include "http/page.h"

#include "base/text.h"
#include "http/routes.h"

#include <fmt/format.h>

#include <algorithm>

namespace sublet::http {
namespace {

constexpr std::string_view rules =
    "Content-Encoding: gzip\r\n"
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src "
    "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'\r\n"
    "Cross-Origin-Opener-Policy: same-origin\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "X-Frame-Options: DENY\r\n";

// The first file names the others by their hash, so browsers ask for it each time and keep the others.
const std::string head_of_page = fmt::format("Cache-Control: no-cache\r\n{}", rules);
const std::string head_of_file = fmt::format("Cache-Control: public, max-age=31536000, immutable\r\n{}", rules);

Response serve(std::string_view name, std::string_view head) {
  const auto files = page_files();
  const auto file = std::ranges::find(files, name, &PageFile::name);
  if (file == files.end())
    return problem(not_found(fmt::format("the page has no file {}", printable(name)), "open the page at /"));
  return Response{200, nullptr, {}, false, std::string(file->gzip), file->type, {}, {}, head};
}

Reply get_page(Call&) { return serve("index.html", head_of_page); }

Reply get_page_file(Call& call) {
  if (call.args[0] != page_set())
    return problem(not_found(fmt::format("the files of the page are at /page/{}", page_set()),
                             "reload the page: the daemon has another version of it"));
  return serve(call.args.size() == 2 ? call.args[1] : call.args[1] + "/" + call.args[2], head_of_file);
}

constexpr Route table[] = {
    Route{Method::get, "/", Role::nobody, Scope::read, get_page}.without_store(),
    Route{Method::get, "/page/{set}/{file}", Role::nobody, Scope::read, get_page_file}.without_store(),
    Route{Method::get, "/page/{set}/{folder}/{file}", Role::nobody, Scope::read, get_page_file}.without_store(),
};

}  // namespace

const std::span<const Route> page_routes = table;

}  // namespace sublet::http
