// SPDX-License-Identifier: Apache-2.0
// Writes subletd(8). The option parser gives the options; the rest is text.
#include "base/roff.h"
#include "daemon/options.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

namespace sublet::daemon {

std::string manual_page(const CLI::App& app) {
  ManPage page("subletd", 8, "lease the VRAM of this machine's GPUs");
  page.heading("SYNOPSIS");
  page.line("`subletd` [options]");
  page.line("`subletd --dir` DIR [`--sim` CARDS] [options]");
  page.heading("DESCRIPTION");
  page.paragraph(
      "The daemon keeps the table of leases, which says who may use how many bytes on which GPU, and the queue of "
      "waiting leases. Free memory is measured: `sublet-gpu`(8) reads the cards, and memory that no lease explains is "
      "not leased. Every decision is in the store before it takes effect.");
  page.paragraph(
      "The daemon is not the parent of any program. Stopping, killing or upgrading the daemon ends no program: "
      "programs keep running, their keepers reconnect, and their leases stay as they were.");
  page.heading("OPTIONS");
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    std::string tag;
    for (const auto& name : option->get_snames()) tag += fmt::format("{}`-{}`", tag.empty() ? "" : ", ", name);
    for (const auto& name : option->get_lnames()) tag += fmt::format("{}`--{}`", tag.empty() ? "" : ", ", name);
    if (option->get_type_size() != 0) tag += " " + option->get_type_name();
    page.item(tag, option->get_description() + ".");
  }
  page.heading("LOCATIONS");
  page.item("the system's daemon, run as root or as a service",
            "socket `/run/sublet/sublet.sock`, store in `/var/lib/sublet`, configuration `/etc/sublet/sublet.toml`. "
            "Members of the group `sublet` may lease; members of `sublet-admin` manage every user's leases.");
  page.item("a user's own daemon, run by any other user",
            "socket `$XDG_RUNTIME_DIR/sublet/sublet.sock`, store in `$XDG_STATE_HOME/sublet` "
            "(`~/.local/state/sublet`), configuration `$XDG_CONFIG_HOME/sublet/sublet.toml`. Without XDG_RUNTIME_DIR, "
            "the socket is in the store's directory, where the command line looks too.");
  page.item("a private daemon, with --dir DIR",
            "everything is in DIR. Source `DIR/env` in each shell that should use this daemon.");
  page.heading("SIGNALS");
  page.item("SIGTERM, SIGINT, SIGHUP",
            "End the daemon; programs keep running. The daemon reads its configuration only at its start: restart it "
            "after a change. If SIGHUP was ignored at the start, as by `nohup`(1), it stays ignored.");
  page.heading("SAFE MODE");
  page.paragraph(
      "After three crashes within a minute (SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL; not SIGKILL), the daemon starts "
      "in safe mode. Programs keep running, leases can be renewed, released and stopped, and parked programs stay "
      "parked. No lease is granted, paused or resumed. Safe mode ends ten minutes after the last crash; `sublet "
      "status` shows the time. A restart (`systemctl restart subletd`) ends it at once. Please report the bug with the "
      "daemon's log.");
  page.heading("EXIT STATUS");
  page.item("`0`", "The daemon was told to end.");
  page.item("`1`", "The daemon could not start, and printed the cause.");
  page.item("`2`", "Wrong usage.");
  page.item("`78`", "Wrong configuration.");
  page.heading("SEE ALSO");
  page.paragraph("`sublet`(1), `sublet.toml`(5), `sublet-gpu`(8), `sublet-actor`(8)");
  return page.text();
}

}  // namespace sublet::daemon
