// SPDX-License-Identifier: Apache-2.0
#include "actor/become.h"

#include "base/accounts.h"
#include "proc/detached.h"
#include "proc/spawn.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>

namespace sublet::actor {
namespace {

constexpr long call_close_range = 436;
constexpr int trouble_descriptor = proc::helper_socket + 1;

enum Step { descriptors, groups, group, user, check, capabilities, no_new_rights, start };
static_assert(std::size(becoming_steps) == start + 1);

[[noreturn]] void give_up(int step) {
  const Trouble trouble{step, errno};
  (void)!::write(trouble_descriptor, &trouble, sizeof trouble);
  ::_exit(127);
}

// Makes 0, 1 and 2 /dev/null.
bool arrange_standard_descriptors() {
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nothing < 0) return false;
  for (const int fd : {0, 1, 2}) {
    if (nothing == fd ? ::fcntl(fd, F_SETFD, 0) < 0 : ::dup2(nothing, fd) < 0) return false;
  }
  return true;
}

bool arrange_descriptors(const Becoming& wanted) {
  if (!arrange_standard_descriptors()) return false;
  if (::dup2(wanted.socket, proc::helper_socket) < 0) return false;
  if (::dup3(wanted.trouble, trouble_descriptor, O_CLOEXEC) < 0) return false;
  ::close(wanted.trouble);  // the only other copy closes at exec, or when the child ends
  // exec closes all our descriptors. This call is for descriptors that were left open before us, if the kernel knows
  // the call.
  (void)::syscall(call_close_range, trouble_descriptor + 1, UINT_MAX, 0);
  return true;
}

// Resets signals, as at the start of any program.
void reset_process(mode_t mask) {
  for (int number = 1; number < NSIG; ++number) std::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  ::setsid();
  ::umask(mask);
  (void)!::chdir("/");
  // The actor is protected from the out-of-memory killer; a process for one user is not.
  const int file = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  (void)!::write(file, "0", 1);
  ::close(file);
}

std::uint64_t permitted_now() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> data{};
  if (::syscall(SYS_capget, &header, data.data()) != 0) return 0;
  return data[0].permitted | static_cast<std::uint64_t>(data[1].permitted) << 32;
}

bool keep_only(std::uint64_t capabilities) {
  ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);  // an old kernel has no ambient capabilities
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> data{};
  for (unsigned i = 0; i < data.size(); ++i) {
    data[i].permitted = data[i].effective = static_cast<std::uint32_t>(capabilities >> (32 * i));
  }
  return ::syscall(SYS_capset, &header, data.data()) == 0;
}

// Takes all ids except the user, which comes last: the user may stop a process of its own, and the actor waits for this
// one.
void take_groups(const proc::Rights& rights) {
  const gid_t gid = rights.gids[0];
  errno = EINVAL;
  // These system calls read -1 as "no change".
  if (!rights.plain() || rights.uids[0] == static_cast<uid_t>(-1) || gid == static_cast<gid_t>(-1)) give_up(check);
  if (::geteuid() == 0) {
    if (::setgroups(rights.groups.size(), rights.groups.data()) != 0) give_up(groups);
    if (::setresgid(gid, gid, gid) != 0) give_up(group);
  }
  std::array<gid_t, 3> gids{};
  const bool known = ::getresgid(&gids[0], &gids[1], &gids[2]) == 0;
  errno = EPERM;
  if (!known || gids != std::array{gid, gid, gid}) give_up(check);
}

// Sets only the effective user. The real and saved user stay root, so that the user cannot signal the process yet. The
// process can still become the user entirely, whatever capabilities are left.
void take_user(uid_t uid) {
  if (::geteuid() == uid) return;
  errno = EPERM;
  if (::geteuid() != 0 || ::setresuid(0, uid, 0) != 0) give_up(user);
}

// A helper for a process of root keeps CAP_SYS_PTRACE, if we have it. Without it, the helper could not look into the
// process. The capability to change the user is dropped.
void shed_capabilities(bool of_root) {
  const std::uint64_t tracing = std::uint64_t{1} << CAP_SYS_PTRACE;
  const std::uint64_t changing = std::uint64_t{1} << CAP_SETUID;
  if (!keep_only(permitted_now() & (of_root ? tracing : changing))) give_up(capabilities);
}

// --- keepers

constexpr unsigned accounts_timeout_s = 60;

[[noreturn]] void refuse_keeper(int report, std::string_view why) {
  const std::string line = fmt::format("{}{}\n", proc::failure_mark, why);
  (void)!::write(report, line.data(), line.size());
  ::_exit(127);
}

void check_keeper(bool works, std::string_view what) {
  if (works) return;
  refuse_keeper(proc::report_descriptor, fmt::format("cannot start its keeper: {}: {}", what, std::strerror(errno)));
}

void arrange_keeper_descriptors(const KeeperBecoming& wanted) {
  const bool done = arrange_standard_descriptors() && ::dup2(wanted.document, proc::document_descriptor) >= 0 &&
                    ::lseek(proc::document_descriptor, 0, SEEK_SET) == 0 &&
                    ::dup2(wanted.report, proc::report_descriptor) >= 0;
  if (!done)
    refuse_keeper(wanted.report, fmt::format("cannot start its keeper: no descriptors: {}", std::strerror(errno)));
  for (const int fd : {wanted.document, wanted.report}) ::close(fd);
  (void)::syscall(call_close_range, proc::report_descriptor + 1, UINT_MAX, 0);  // exec closes our own anyway
}

// Takes the user and the groups of the account. A later exec cannot bring rights back.
void take_account(uid_t uid) {
  errno = EINVAL;
  check_keeper(uid != static_cast<uid_t>(-1), "no account has this uid");
  if (::geteuid() == 0) {
    ::alarm(accounts_timeout_s);
    const auto account = look_up<passwd>([uid](passwd* entry, char* memory, std::size_t size, passwd** found) {
      return ::getpwuid_r(uid, entry, memory, size, found);
    });
    if (!account) refuse_keeper(proc::report_descriptor, account.error().detail);
    if (!*account) refuse_keeper(proc::report_descriptor, fmt::format("uid {} has no account", uid));
    const passwd& entry = (*account)->entry;
    check_keeper(::initgroups(entry.pw_name, entry.pw_gid) == 0, "its groups are refused");
    ::alarm(0);
    check_keeper(::setresgid(entry.pw_gid, entry.pw_gid, entry.pw_gid) == 0, "its group is refused");
    check_keeper(::setresuid(uid, uid, uid) == 0, "its user is refused");
  }
  uid_t uids[3];
  errno = EPERM;
  check_keeper(::getresuid(&uids[0], &uids[1], &uids[2]) == 0 && uids[0] == uid && uids[1] == uid && uids[2] == uid,
               fmt::format("the actor may not become uid {}", uid));
  check_keeper(uid == 0 || keep_only(0), "its capabilities are refused");
}

}  // namespace

void become_keeper(const KeeperBecoming& wanted) {
  arrange_keeper_descriptors(wanted);
  reset_process(022);
  take_account(wanted.uid);
  std::string stay = "--stay";
  char* words[] = {const_cast<char*>(wanted.program.c_str()), stay.data(), nullptr};
  std::string path = "PATH=/usr/local/bin:/usr/bin:/bin";
  char* environment[] = {path.data(), nullptr};
  ::execve(wanted.program.c_str(), words, environment);
  check_keeper(false, wanted.program);
  ::_exit(127);
}

void become(const Becoming& wanted) {
  if (!arrange_descriptors(wanted)) {
    const Trouble trouble{descriptors, errno};
    (void)!::write(wanted.trouble, &trouble, sizeof trouble);
    ::_exit(127);
  }
  reset_process(077);
  const rlimit no_core{};
  ::setrlimit(RLIMIT_CORE, &no_core);  // if this is refused, the helper keeps our limit
  const uid_t uid = wanted.rights.uids[0];
  // A capability outside of the bounding set never returns by an exec. The call fails without CAP_SETPCAP; then
  // no-new-privs has the same effect.
  for (unsigned long number = 0; number < 64; ++number) {
    if (uid != 0 || number != CAP_SYS_PTRACE) ::prctl(PR_CAPBSET_DROP, number, 0, 0, 0);
  }
  take_groups(wanted.rights);
  shed_capabilities(uid == 0);
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) give_up(no_new_rights);
  std::vector<char*> words, environment;
  for (const std::string& word : wanted.words) words.push_back(const_cast<char*>(word.c_str()));
  for (const std::string& entry : wanted.environment) environment.push_back(const_cast<char*>(entry.c_str()));
  words.push_back(nullptr);
  environment.push_back(nullptr);
  take_user(uid);
  if (::faccessat(AT_FDCWD, wanted.program.c_str(), X_OK, AT_EACCESS) != 0) give_up(start);
  ::close(trouble_descriptor);
  if (::setresuid(uid, uid, uid) == 0) ::execve(wanted.program.c_str(), words.data(), environment.data());
  ::_exit(127);
}

bool give_up_capability(unsigned capability) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> data{};
  if (::syscall(SYS_capget, &header, data.data()) != 0) return false;
  const std::uint32_t others = ~(std::uint32_t{1} << (capability % 32));
  __user_cap_data_struct& part = data.at(capability / 32);
  part.effective &= others;
  part.permitted &= others;
  part.inheritable &= others;
  return ::syscall(SYS_capset, &header, data.data()) == 0;
}

}  // namespace sublet::actor
