// SPDX-License-Identifier: Apache-2.0
// What is said between subletd and sublet-actor: fixed structs over one SOCK_SEQPACKET socket, an order and its reply
// each one message. Both ends are programs of one installation on one machine, so the layout is that of the compiler.
// Plain values, any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

namespace sublet::actor {

inline constexpr std::uint32_t protocol_version = 6;

// On whose behalf: a uid, or the daemon by its own rules (time is up, grace is over). No account has this uid.
inline constexpr std::uint32_t the_daemon = 0xffffffff;

// Closed list; 0 is none. Descriptors come with `follow`, `checkpoint` and `swap`, and one goes back with the
// reply to `checkpoint`.
enum class Verb : std::uint32_t {
  hello = 1,        // who are you, and what can you do
  follow = 2,       // the program of a lease: its main process, and its keeper
  look = 3,         // see who descends from what you follow
  signal = 4,       // SIGTERM (then SIGCONT), SIGKILL or SIGCONT to the program
  wake_keeper = 5,  // SIGCONT to a keeper that is stopped
  forget = 6,       // the lease is over
  tell = 7,         // a signal that a process of the program handles: it is asked to yield, or to go on
  checkpoint = 8,   // start what parks one process of the lease and brings it back, with that process's own rights
  swap = 9,         // keep the control group of a process of the lease from swap; or all kept so for it no longer
  all_named = 10,   // all that are parked were named by swap: what an earlier actor kept for others is let be
};
inline constexpr std::uint32_t last_verb = 10;

enum class Code : std::uint32_t {
  ok = 0,
  unknown_verb = 1,
  malformed = 2,     // wrong size, or a field set that the verb does not take
  descriptors = 3,   // missing, surplus, or not of a process
  denied = 4,        // not on this one's behalf
  not_followed = 5,  // no such lease here
  gone = 6,          // the process has ended, or is not the one named
  not_its_keeper = 7,
  wrong_user = 8,     // the process is not the lease's user's
  untouchable = 9,    // pid 1, a kernel thread, this process, the daemon, or an ancestor of either
  no_proof = 10,      // nothing proves that it is the process that was attached
  failed = 11,        // the kernel refused: `error`
  lost = 12,          // never sent: what the client tells of an order that found no actor, or lost it; with an
                      // `error` it was sent, and may have been obeyed
  unhandled = 13,     // the process has no handler for the signal, which would end it
  other_rights = 14,  // the process has rights of its program's file, several users' or groups', or a container's
  untraceable = 15,   // the process does not let itself be looked into
  busy = 16,          // a helper for the process is there
  too_many = 17,      // as many helpers as may be, of that user or of all; not where it is to be brought back
};
inline constexpr std::uint32_t last_code = 17;
std::string_view to_string(Verb verb);  // "hello", …; "unknown"
std::string_view to_string(Code code);  // in words, for people

// `follow`: the daemon read the lease from its store; only the pidfd's inode proves whose process it is.
inline constexpr std::uint32_t adopted = 1;
// `checkpoint`: that the process is of the lease's user is proof enough. For one that is to be brought back, whose
// descent may not be seen any more, and for what Sublet did not start and its user named.
inline constexpr std::uint32_t by_user = 2;
// `checkpoint`: it is to be brought back, which no limit of their number prevents.
inline constexpr std::uint32_t bring_back = 4;
// `swap`: no longer, for this lease. What is kept from it for another lease as well stays so.
inline constexpr std::uint32_t let_swap = 8;

struct Order {
  Verb verb = Verb::hello;
  std::uint32_t asked_by = the_daemon;
  std::uint64_t id = 0;     // comes back in the reply
  std::uint64_t lease = 0;  // all verbs but hello, look and all_named

  // checkpoint, swap: main_pid and main_start are those of the process to be parked, a pidfd of it is attached, uid is
  // that of the lease's user; flags may have by_user, and bring_back with checkpoint. With let_swap all of them are 0.
  // tell: main_pid and main_start are those of the process that gets the signal; the rest is 0. Follow: all of them,
  // and 0 for the others. Attached: a pidfd of the main process if there is one, then one of the keeper if there is
  // one. Without a main process (adopted only) the group that was made for the lease is the proof.
  std::uint32_t uid = 0;
  std::uint32_t flags = 0;
  std::int32_t main_pid = 0;
  std::int32_t keeper_pid = 0;
  std::uint64_t main_start = 0;
  std::uint64_t keeper_start = 0;
  std::uint64_t main_inode = 0;  // of the pidfd that was attached; 0: this kernel has none

  std::int32_t signal = 0;  // signal, tell
  std::uint32_t reserved = 0;
};

// hello: any user's programs may be signalled.
inline constexpr std::uint32_t signals_others = 1;
// hello: any user's programs may be parked, but for root's; and root's too.
inline constexpr std::uint32_t parks_others = 4;
inline constexpr std::uint32_t parks_roots = 8;
// follow: the program is in a group of its own, at `path`.
inline constexpr std::uint32_t own_group = 2;

struct Reply {
  std::uint64_t id = 0;
  Verb verb = Verb::hello;
  Code code = Code::ok;
  std::int32_t error = 0;     // errno
  std::uint32_t version = 0;  // hello
  std::uint32_t uid = 0;      // hello
  std::uint32_t flags = 0;    // hello, follow
  std::uint32_t sent = 0;     // signal, tell: how many processes got it, …
  std::uint32_t refused = 0;  // … how many of the program did not: another user's, or the kernel refused
  std::uint32_t left = 0;     // … how many were left alone, linked to the lease by what only spares
  std::int32_t pid = 0;       // checkpoint: of the helper; the other end of its socket is attached
  char path[200] = {};        // hello: the hierarchy for groups; follow: the group; or a sentence why there is none
                              // checkpoint, swap, all_named: a sentence, if it failed
};

static_assert(std::is_trivially_copyable_v<Order> && sizeof(Order) == 72);
static_assert(std::is_trivially_copyable_v<Reply> && sizeof(Reply) == 248);

}  // namespace sublet::actor
