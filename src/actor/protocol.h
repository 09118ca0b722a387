// SPDX-License-Identifier: Apache-2.0
// The protocol of subletd and sublet-actor: fixed structs over a SOCK_SEQPACKET socket; an order and its reply are one
// message each. Both programs come from the same installation, so the compiler's layout is used. Plain values, any
// thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

namespace sublet::actor {

inline constexpr std::uint32_t protocol_version = 10;

// Order::asked_by is a uid, or this value if the daemon acts by its own rules (a lease expired, the grace is over). No
// account has this uid.
inline constexpr std::uint32_t the_daemon = 0xffffffff;

// A closed list; 0 is none. `follow`, `checkpoint`, `swap`, `keep` and `source` carry descriptors. The replies to
// `checkpoint`, `keep` and `parents` carry one.
enum class Verb : std::uint32_t {
  hello = 1,        // asks for the version and the abilities of the actor
  follow = 2,       // names the program of a lease: its main process and its keeper
  look = 3,         // lets the actor read the process table now
  signal = 4,       // sends SIGTERM (then SIGCONT), SIGKILL or SIGCONT to the program
  wake_keeper = 5,  // sends SIGCONT to a stopped keeper
  forget = 6,       // the lease has ended
  tell = 7,         // sends a signal that a process of the program handles, to ask it to yield or to resume
  checkpoint = 8,   // starts a helper that parks and unparks a process of the lease, with that process's rights
  swap = 9,         // keeps the control group of a process from swap, or ends this for a lease
  all_named = 10,   // `swap` has named all parked processes: groups that an earlier actor kept for others are released
  keep = 11,        // starts a keeper (sublet-keep) as a user, with the attached document
  slow = 12,        // limits the processor time of the program, or lifts the limit
  inspect = 13,     // looks for evidence that a process under no lease uses a GPU
  end = 14,         // sends SIGTERM or SIGKILL to a process under no lease and its descendants, after the same look
  close = 15,       // the record about such a process is closed
  source = 16,      // opens a source of links between processes, or tells why it does not work
  parents = 17,     // tells the parents of a process, also those that have ended
};
inline constexpr std::uint32_t last_verb = 17;

enum class Code : std::uint32_t {
  ok = 0,
  unknown_verb = 1,
  malformed = 2,     // wrong size, or a field that the verb does not take
  descriptors = 3,   // missing, surplus, or not of a process
  denied = 4,        // the asking user may not give this order
  not_followed = 5,  // the actor does not follow this lease
  gone = 6,          // the process has ended, or is not the named process
  not_its_keeper = 7,
  wrong_user = 8,     // the process belongs to another user than the lease
  untouchable = 9,    // pid 1, a kernel thread, the actor, the daemon, or an ancestor of either
  no_proof = 10,      // nothing proves that the process is the attached one
  failed = 11,        // the kernel refused, with errno in `error`
  lost = 12,          // set by the client, never sent: there was no actor, or the connection broke; with an `error` the
                      // order was sent and may have been obeyed
  unhandled = 13,     // the process has no handler for the signal and would end
  other_rights = 14,  // the process has rights of its program's file, of several users or groups, or of a container
  untraceable = 15,   // the process may not be traced
  busy = 16,          // the process has a helper already
  too_many = 17,      // the limit of helpers, of that user or in all, is reached; not with `bring_back`
  leased = 18,        // the process belongs to a lease, or a link joins it to one
  no_evidence = 19,   // the process has neither a device file of the GPU open nor memory of the GPU mapped
};
inline constexpr std::uint32_t last_code = 19;
std::string_view to_string(Verb verb);  // "hello", …; "unknown"
std::string_view to_string(Code code);  // a text for people

// `follow`: the daemon read the lease from its store. Only the pidfd's inode proves that the process belongs to it.
inline constexpr std::uint32_t adopted = 1;
// `checkpoint`: the process needs no proof except that it belongs to the lease's user. For unparking a process whose
// descent is no longer visible, and for a process that Sublet did not start and its user attached.
inline constexpr std::uint32_t by_user = 2;
// `checkpoint`: the process is to be unparked, so the limits of helpers do not count.
inline constexpr std::uint32_t bring_back = 4;
// `end`: nothing is sent. The process belongs to a lease that the actor cannot prove: the next order about this record
// spares it and everything below it.
inline constexpr std::uint32_t to_spare = 16;
// `swap`: ends it for this lease. A group that is kept for another lease too stays kept.
inline constexpr std::uint32_t let_swap = 8;

// `source`: the process connector of the kernel; a file of process accounting.
inline constexpr std::uint32_t the_connector = 32;
inline constexpr std::uint32_t the_accounting = 64;

struct Order {
  Verb verb = Verb::hello;
  std::uint32_t asked_by = the_daemon;
  std::uint64_t id = 0;     // repeated in the reply
  // All verbs except hello, look, all_named, keep, inspect, source and parents; end, close: number of a record.
  std::uint64_t lease = 0;

  // checkpoint, swap: main_pid and main_start name the process to be parked, a pidfd of it is attached, and uid is the
  // lease's user. Flags: by_user, and bring_back with checkpoint. With let_swap all these fields are 0.
  //
  // keep: uid is the keeper's user; the rest is 0. A sealed memfd with the document is attached (proc/detached.h).
  //
  // inspect, end: main_pid, main_start and main_inode name the process, and a pidfd of it is attached. For `end` with
  // SIGKILL the process may have ended: then its descendants that got SIGTERM are meant. With the flag to_spare the
  // signal is 0. The rest is 0.
  //
  // tell: main_pid and main_start name the process that gets the signal; the rest is 0.
  //
  // source: flags are the_connector or the_accounting. With the_accounting a sealed memfd is attached: the file's path,
  // or nothing for no file. parents: main_pid and main_start name the process. The rest is 0.
  //
  // follow: all fields; other verbs set them to 0. A pidfd of the main process, if there is one, and then a pidfd of
  // the keeper, if there is one, are attached. Without a main process (adopted only) the group of the lease is the
  // proof.
  std::uint32_t uid = 0;
  std::uint32_t flags = 0;
  std::int32_t main_pid = 0;
  std::int32_t keeper_pid = 0;
  std::uint64_t main_start = 0;
  std::uint64_t keeper_start = 0;
  std::uint64_t main_inode = 0;  // inode of the attached pidfd; 0: this kernel has none

  std::int32_t signal = 0;    // signal, tell, end
  std::uint32_t percent = 0;  // slow: of one processor, 1 to 100; 0 lifts the limit
};

// hello: the actor can signal programs of any user.
inline constexpr std::uint32_t signals_others = 1;
// hello: the actor can park programs of any user except root, and programs of root too.
inline constexpr std::uint32_t parks_others = 4;
inline constexpr std::uint32_t parks_roots = 8;
// follow: the program has a control group of its own, at `path`.
inline constexpr std::uint32_t own_group = 2;
// inspect, end: the process has a device file of the GPU open; it has memory of the GPU mapped.
inline constexpr std::uint32_t has_device_file = 16;
inline constexpr std::uint32_t has_mapping = 32;

struct Reply {
  std::uint64_t id = 0;
  Verb verb = Verb::hello;
  Code code = Code::ok;
  std::int32_t error = 0;     // errno
  std::uint32_t version = 0;  // hello
  std::uint32_t uid = 0;      // hello
  std::uint32_t flags = 0;    // hello, follow, inspect, end
  std::uint32_t sent = 0;     // signal, tell, end: number of processes that got the signal; parents: their number
  // signal, tell, end: number of processes of the program that did not get it: another user's, or refused by the kernel
  std::uint32_t refused = 0;
  // signal, tell: number of processes that were spared, because only a weak link joins them to the lease. end: number
  // of spared descendants
  std::uint32_t left = 0;
  // checkpoint: pid of the helper; its socket is attached. keep: 0; the reading end of the keeper's report is attached.
  // parents: 0; a file in memory with an array of Parent is attached.
  std::int32_t pid = 0;
  char path[200] = {};  // hello: the hierarchy; follow: the group, or a sentence why there is none; checkpoint,
                        // swap, all_named, keep, slow: a sentence about a failure; inspect, end: the path
                        // of the executable; source: since when it works, or why it does not; parents: a sentence
                        // about a record that is missing
};

// A parent in the reply to `parents`, the nearest first. All text is printable.
struct Parent {
  std::int32_t pid = 0;
  std::uint32_t uid = 0;          // effective; 0xffffffff: not known
  std::uint64_t start_ticks = 0;  // 0: not known
  std::int64_t ended_ns = 0;      // wall clock; 0: it lives, or it is not known
  std::uint32_t source = 0;       // as proc::ParentSource
  std::uint32_t flags = 0;        // is_certain, has_ended
  char name[64] = {};             // "": not known
};
inline constexpr std::uint32_t is_certain = 1;
inline constexpr std::uint32_t has_ended = 2;
inline constexpr std::uint32_t most_parents = 128;

static_assert(std::is_trivially_copyable_v<Order> && sizeof(Order) == 72);
static_assert(std::is_trivially_copyable_v<Reply> && sizeof(Reply) == 248);
static_assert(std::is_trivially_copyable_v<Parent> && sizeof(Parent) == 96);

}  // namespace sublet::actor
