// SPDX-License-Identifier: Apache-2.0
// Requests to the daemon, shared by the verbs that show data. Blocks; one thread.
#pragma once

#include "cli/output.h"
#include "client/client.h"

#include <functional>

namespace sublet::cli {

// The daemon named by --host or the environment; sends nothing yet.
Result<client::Client> connect(const Common& common);

// The waits of meet() for a daemon that does not answer.
struct MeetingTime {
  Duration new_socket = std::chrono::milliseconds(100);  // between the old socket of a starting daemon and its new one
  Duration restart = std::chrono::seconds(60);           // after a broken connection, or with a dead socket
  Duration answer = client::Client::default_timeout;     // silence of a daemon that accepted the call; the first call
                                                         // waits 3 s at most, and then a message is printed
};

// GET /v1/status, the first request of a verb that outlives restarts of the daemon. If the daemon goes away during the
// request, or left a dead socket, it may be restarting, and the call waits. Afterwards the client's get() and post()
// retry.
client::Answer<client::Reply> meet(const Common& common, client::Client& client, const MeetingTime& time = {});

// The exit code for a failed call: 69 if no daemon answered, else by the daemon's error code.
int exit_code(const client::Failure& failure);

// Replaces request fields by the names of flags in a refusal of the daemon.
Error in_flags(Error error, std::string_view verb);

// Prints the failure and returns the exit code. With --json, the daemon's problem document goes to stdout unchanged.
int fail(const Common& common, const client::Failure& failure);
// Prints the error of a check made here, with --json also as a problem document. Returns its exit code.
int fail(const Common& common, const Error& error);

// Turns a body into text for people. May request more by `client`.
using Render = std::function<Result<std::string>(const nlohmann::json& body, client::Client& client)>;

// GET `target`; prints the reply unchanged with --json, else the text of `render`; repeats with --watch. Returns the
// exit code.
int show(const Common& common, const std::string& target, const Render& render);

// Like show(), for a table in pages: requests all pages. With --json, the pages are joined.
int show_pages(const Common& common, const std::string& target, const std::string& list, const Render& render);

// A reply, or all its pages joined.
struct Asked {
  nlohmann::json body;
  std::string text;  // the body as it came, or as it was joined; ends with a newline
};
client::Answer<Asked> ask_pages(client::Client& client, const std::string& target, const std::string& list);

// Prints a remark about a table, such as "no lease waits": on stderr, or below the table with --watch. "" prints
// nothing.
Result<std::string> with_remark(const Common& common, Result<std::string> text, std::string_view remark);

// The body of an extra request that only adds names; null if the request fails.
nlohmann::json ask_also(client::Client& client, const std::string& target);

// Follows a sentence about a lease that is not active: why, and where more is told.
std::string why_inactive(const Common& common, client::Client& client, const std::string& lease);

// "gpu0, gpu1": names of a lease's devices, asked of the daemon; without an answer, the first characters of the uuids.
std::string names_of(const Common& common, const std::vector<std::string>& uuids);

// Fills look.device_names from a reply of /v1/devices.
void learn_devices(const nlohmann::json& body, Look& look);

}  // namespace sublet::cli
