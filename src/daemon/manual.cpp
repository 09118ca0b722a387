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
      "Keeps the table of who may use how many bytes on which GPU, and the queue of those who wait. What is free is "
      "measured: `sublet-gpu`(8) reads the cards, and what no lease explains is not promised to anybody. Every "
      "decision is in the store before anybody hears of it.");
  page.paragraph(
      "The daemon is the parent of no program. Stopping, killing or upgrading it ends none: programs run on, their "
      "keepers reconnect, and their leases are where they were.");
  page.heading("OPTIONS");
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    std::string tag;
    for (const auto& name : option->get_snames()) tag += fmt::format("{}`-{}`", tag.empty() ? "" : ", ", name);
    for (const auto& name : option->get_lnames()) tag += fmt::format("{}`--{}`", tag.empty() ? "" : ", ", name);
    if (option->get_type_size() != 0) tag += " " + option->get_type_name();
    page.item(tag, option->get_description() + ".");
  }
  page.heading("WHERE THINGS ARE");
  page.item("the system's daemon, run as root or as a service",
            "socket `/run/sublet/sublet.sock`, store in `/var/lib/sublet`, configuration `/etc/sublet/sublet.toml`. "
            "Members of the group `sublet` may lease, those of `sublet-admin` steer everybody's leases.");
  page.item("a user's own daemon, run by anybody else",
            "socket `$XDG_RUNTIME_DIR/sublet/sublet.sock`, store in `$XDG_STATE_HOME/sublet` "
            "(`~/.local/state/sublet`), configuration `$XDG_CONFIG_HOME/sublet/sublet.toml`. Without XDG_RUNTIME_DIR "
            "the socket is beside the "
            "store; the command line looks there too.");
  page.item("a private daemon, with --dir DIR",
            "everything in DIR; `DIR/env` is to be sourced by the shells that should use it.");
  page.heading("SIGNALS");
  page.item("SIGTERM, SIGINT, SIGHUP",
            "End the daemon; programs run on. The configuration is read at a start only: after a change, restart the "
            "daemon. (A SIGHUP that was ignored when it started, as by `nohup`(1), stays so.)");
  page.heading("SAFE MODE");
  page.paragraph(
      "After three crashes within a minute (SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL; not SIGKILL) the daemon starts "
      "in safe mode: programs run on, leases are renewed, released and stopped, what is parked stays parked; nothing "
      "is granted, paused or resumed. `sublet status` says until when: ten minutes after the last crash. A restart "
      "(`systemctl restart subletd`) ends it at once. Please report the bug, with the daemon's log.");
  page.heading("EXIT STATUS");
  page.item("`0`", "It was told to end.");
  page.item("`1`", "It could not start, and said why.");
  page.item("`2`", "Wrong usage.");
  page.item("`78`", "Wrong configuration.");
  page.heading("SEE ALSO");
  page.paragraph("`sublet`(1), `sublet.toml`(5), `sublet-gpu`(8), `sublet-actor`(8)");
  return page.text();
}

}  // namespace sublet::daemon
