// SPDX-License-Identifier: Apache-2.0
// `verdicts`: the records about processes that hold GPU memory without a lease.
#include "cli/fetch.h"
#include "cli/render.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <cstring>
#include <memory>

namespace sublet::cli {
namespace {

using nlohmann::json;

struct VerdictFlags {
  std::string id;
  bool all = false;
  bool csv = false;
  std::string bundle;
};

constexpr const char* csv_fields[] = {"id",      "pid",        "user",      "uid",       "name",         "command",
                                      "exe",     "cgroup",     "unit",      "container", "policy",       "stage",
                                      "outcome", "used_bytes", "sightings", "opened_at", "last_seen_at", "closed_at"};

// A spreadsheet takes text that begins with these characters for a formula.
std::string csv_text(const std::string& text) {
  std::string quoted = "\"";
  if (!text.empty() && std::strchr("=+-@\t\r", text[0]) != nullptr) quoted += '\'';
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string csv_of(const json& body) {
  std::string text = fmt::format("{}\n", fmt::join(csv_fields, ","));
  for (const json& row : list_at(body, "verdicts")) {
    std::string line;
    for (const char* field : csv_fields) {
      const json& value = member(row, field);
      if (!line.empty() || field != csv_fields[0]) line += ',';
      if (value.is_string()) line += csv_text(value.get<std::string>());
      else if (!value.is_null()) line += value.dump();
    }
    text += line + '\n';
  }
  return text;
}

// The record as a file for its owner. It never contains the environment of the process.
int write_bundle(const Common& common, const VerdictFlags& flags) {
  auto client = connect(common);
  if (!client) return fail(common, client.error());
  const auto reply = client->get("/v1/verdicts/" + client::encode(flags.id));
  if (!reply) return fail(common, reply.error());
  const auto verdict = client::parse(*reply);
  if (!verdict) return fail(common, verdict.error());
  const json bundle{{"verdict", *verdict}, {"rules", ask_also(*client, "/v1/enforcer")}};
  const std::string text = bundle.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
  const int file = ::open(flags.bundle.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0 || ::write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    const Error error = bad_request(fmt::format("cannot write {}: {}", visible(flags.bundle), std::strerror(errno)),
                                    "name a new file in a directory that you may write to");
    if (file >= 0) ::close(file);
    return fail(common, error);
  }
  ::close(file);
  say(common, fmt::format("verdict {} is written to {}", visible(flags.id), visible(flags.bundle)));
  return kOk;
}

int list(const Common& common, const VerdictFlags& flags) {
  const std::string target = flags.all ? "/v1/verdicts?all=true" : "/v1/verdicts";
  return show(common, target, [&](const json& body, client::Client&) -> Result<std::string> {
    if (flags.csv) return csv_of(body);
    return with_remark(
        common, render_verdicts(body, common, look_for(common)),
        list_at(body, "verdicts").empty() ? "no process holds GPU memory without a lease or an approval" : "");
  });
}

}  // namespace

Action add_verdicts(Command command, Common& common) {
  auto flags = std::make_shared<VerdictFlags>();
  command.option("ID", flags->id, "Number of one verdict: show all of it").type("ID");
  command.flag("-a,--all", flags->all, "Show closed verdicts too");
  command.flag("--csv", flags->csv, "Print comma-separated values");
  command.option("--bundle", flags->bundle, "Write the verdict ID with all its steps to this new file")
      .type("FILE")
      .offers(Offer::Of::files);
  add_table_flags(command, common);
  command.footer(
      "A verdict is the record about a process that holds GPU memory without a lease:\n"
      "who it is, what it held, and each step that was taken. A user sees the verdicts\n"
      "about own processes, an admin all.");
  return [&common, flags] {
    if (!flags->bundle.empty() && flags->id.empty())
      return usage_error("--bundle needs the number of a verdict",
                         "for example: sublet verdicts 7 --bundle verdict.json");
    if (!flags->bundle.empty()) return write_bundle(common, *flags);
    if (flags->id.empty()) return list(common, *flags);
    return show(common, "/v1/verdicts/" + client::encode(flags->id),
                [&](const json& body, client::Client&) -> Result<std::string> {
                  return render_verdict(body, look_for(common));
                });
  };
}

}  // namespace sublet::cli
