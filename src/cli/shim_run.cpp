// SPDX-License-Identifier: Apache-2.0
#include "cli/shim_run.h"

#include "base/number.h"
#include "cli/run.h"
#include "keep/child.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace sublet::cli {
namespace {

using namespace std::chrono_literals;
using client::FailureKind;

// A shim is called often and by programs, so an absent daemon must not cost it the time that a person has.
constexpr MeetingTime shim_meeting{.new_socket = 2ms, .restart = 3s, .answer = 3s};

bool is_daemon_absent(const client::Failure& failure) {
  return failure.kind == FailureKind::no_daemon || failure.kind == FailureKind::lost;
}

// "" without a lease in the environment. It cannot be verified while the daemon is away.
std::string lease_of_environment() {
  const char* lease = std::getenv("SUBLET_LEASE");
  return lease == nullptr ? std::string() : visible(lease);
}

}  // namespace

client::Answer<client::Reply> meet_for_shim(const Common& common, const ShimCall& shim, client::Client& client) {
  auto answer = meet(common, client, shim_meeting);
  if (answer || !is_daemon_absent(answer.error()) || shim.if_absent != shim::IfAbsent::wait ||
      !lease_of_environment().empty())
    return answer;
  say(common, visible(fmt::format("sublet: {}; {} waits for the daemon", answer.error().error.detail, shim.name)));
  client::Patience patience;
  patience.say = [&common](const Error& error, Duration away) {
    say(common, visible(fmt::format("sublet: {}; waiting since {}", error.detail, format_duration(away))));
  };
  return client.insist({"GET", "/v1/status", {}, {}, {}}, patience);
}

bool may_run_without_daemon(const ShimCall& shim, const client::Failure& failure) {
  return is_daemon_absent(failure) && (shim.if_absent == shim::IfAbsent::run || !lease_of_environment().empty());
}

int run_without_daemon(const ShimCall& shim, const std::vector<std::string>& command, const client::Failure& failure) {
  const std::string lease = lease_of_environment();
  const std::string how = lease.empty() ? "without a lease" : "inside " + lease;
  write_stderr(visible(fmt::format("sublet: {}; {} runs {}", failure.error.detail, shim.name, how)) + "\n");
  return exec_program(shim.real, command, real_hint(shim.name));
}

std::string real_hint(const std::string& shim) {
  return fmt::format("name another program: sublet shim add {} --vram SIZE --real PATH", shim);
}

int exec_program(const std::string& file, const std::vector<std::string>& command, std::string_view hint) {
  std::vector<char*> arguments;
  for (const std::string& argument : command) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  std::fflush(nullptr);
  ::execvp(file.c_str(), arguments.data());
  const keep::ExecFailure failure{errno};
  print_error(failure.detail(file), hint);
  return failure.status();
}

int run_shim(const std::vector<std::string>& words) {
  const auto mark = std::find(words.begin(), words.end(), "--");
  if (mark - words.begin() != 7 || mark + 1 == words.end())
    return usage_error("__shim is for the program sublet-shim only", "see: sublet shim --help");
  const auto bytes = parse_number<std::int64_t>(words[1]);
  const auto policy = shim::parse_if_absent(words[3]);
  const auto share = parse_number<int>(words[5]);
  if (!bytes || !policy || !share)
    return usage_error("sublet-shim is of another version than sublet", "see: sublet shim doctor");
  Common common;
  common.verb = "run";
  common.command.emplace(mark + 1, words.end());
  RunFlags flags;
  flags.lease.vram = Bytes{*bytes};
  flags.lease.name = words[2];
  flags.lease.interposer = words[4] == "interposer";
  if (*share > 0) flags.lease.share = *share;
  flags.shim = ShimCall{words[0], words[6], *policy};
  return run(common, flags);
}

}  // namespace sublet::cli
