// SPDX-License-Identifier: Apache-2.0
// Asking the daemon and showing what it says: what the verbs that look have in common. Blocks, one thread.
#pragma once

#include "cli/output.h"
#include "client/client.h"

#include <functional>

namespace sublet::cli {

// The daemon that --host or the environment names; nothing is sent yet.
Result<client::Client> connect(const Common& common);

// GET /v1/status: the first question of a verb that then outlives restarts of the daemon. One that goes away over it,
// or that left a socket on which nobody listens, may be restarting, and is waited for; where there is nothing, nobody
// is. From then on the client's get() and post() insist.
client::Answer<client::Reply> meet(const Common& common, client::Client& client);

// The exit code that belongs to a failed call: 69 when no daemon answered, else by the daemon's error code.
int exit_code(const client::Failure& failure);

// What the daemon refused, in the words of the command line: it names the fields of a request, people typed flags.
Error in_flags(Error error, std::string_view verb);

// Prints why the call failed (with --json the daemon's own problem document, unchanged, on stdout too); the exit code.
int fail(const Common& common, const client::Failure& failure);

// Turns a body into text for people. May ask the daemon for more by `client`.
using Render = std::function<Result<std::string>(const nlohmann::json& body, client::Client& client)>;

// GET `target`; prints the reply as it is with --json, else what `render` makes of it; with --watch again and again.
// Returns the exit code.
int show(const Common& common, const std::string& target, const Render& render);

// As show(), of a table that comes in pages: asks for all of them. With --json the pages are put together.
int show_pages(const Common& common, const std::string& target, const std::string& list, const Render& render);

// A reply, or all pages of one put together.
struct Asked {
  nlohmann::json body;
  std::string text;  // the body as it came, or as it was put together; ends with a newline
};
client::Answer<Asked> ask_pages(client::Client& client, const std::string& target, const std::string& list);

// What is to be said beside a table, "nobody waits": on stderr, or, with --watch, below the table. "" says nothing.
Result<std::string> with_remark(const Common& common, Result<std::string> text, std::string_view remark);

// The body of a second question that only adds names; null when it has no good answer.
nlohmann::json ask_also(client::Client& client, const std::string& target);

// "gpu0, gpu1": names for people of devices in a lease. Asks the daemon; without an answer the uuids' beginnings.
std::string names_of(const Common& common, const std::vector<std::string>& uuids);

// Fills look.device_names from a reply of /v1/devices.
void learn_devices(const nlohmann::json& body, Look& look);

}  // namespace sublet::cli
