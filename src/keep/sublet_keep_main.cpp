// SPDX-License-Identifier: Apache-2.0
// sublet-keep: the keeper of a supervised program. The daemon or the actor starts it; it leaves them at once.
#include "base/descriptors.h"
#include "keep/detached_run.h"
#include "keep/hook_run.h"
#include "proc/detached.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <exception>

namespace {

using namespace sublet;

constexpr const char* usage =
    "sublet-keep runs a supervised program under a lease. subletd starts it; see sublet-run(1).\n"
    "  sublet-keep [--stay]             run the program of the document at descriptor 3; with --stay in this process\n"
    "  sublet-keep --version | --help\n";

// Everything that can be read; "" if nothing can.
std::string read_all(int fd) {
  std::string text;
  std::array<char, 65536> piece;
  for (ssize_t size = 0; (size = ::read(fd, piece.data(), piece.size())) > 0;)
    text.append(piece.data(), static_cast<std::size_t>(size));
  return text;
}

int run(bool stay) {
  const std::string text = read_all(proc::document_descriptor);
  if (text.empty()) {
    fmt::print(stderr, "sublet-keep: no document at descriptor {}\n{}", proc::document_descriptor, usage);
    return 2;
  }
  ::close(proc::document_descriptor);
  shed_descriptors(proc::report_descriptor);  // connections of the daemon must not stay open through us
  auto document = keep::parse_document(text);
  const auto endpoint = document ? client::parse_endpoint(document->host) : Result<client::Endpoint>(document.error());
  if (!endpoint) {
    fmt::print(stderr, "sublet-keep: {}\n", endpoint.error().detail);
    return 2;
  }
  if (!stay) proc::leave_parent();
  else if (!proc::report_self()) return 1;
  if (document->hook) {
    keep::run_hook(*document, *endpoint);
    return 0;
  }
  const bool drains = document->drain.has_value();
  keep::DetachedRun run(std::move(*document), *endpoint);
  if (drains) run.drain();
  else run.run();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  // The arguments --tag and --host only tell people which keeper this is.
  const bool stay = argc > 1 && std::strcmp(argv[1], "--stay") == 0;
  if (argc > 1 && !stay && std::strcmp(argv[1], "--tag") != 0) {
    const bool version = std::strcmp(argv[1], "--version") == 0;
    fmt::print("{}", version ? "sublet-keep " SUBLET_VERSION "\n" : usage);
    return version || std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0 ? 0 : 2;
  }
  try {
    return run(stay);
  } catch (const std::exception& error) {  // out of memory; all other errors are values
    std::fprintf(stderr, "sublet-keep: %s\n", error.what());
    return 1;
  }
}
