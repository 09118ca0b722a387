// SPDX-License-Identifier: Apache-2.0
#include "actor/protocol.h"

namespace sublet::actor {

std::string_view to_string(Verb verb) {
  switch (verb) {
    case Verb::hello: return "hello";
    case Verb::follow: return "follow";
    case Verb::look: return "look";
    case Verb::signal: return "signal";
    case Verb::wake_keeper: return "wake_keeper";
    case Verb::forget: return "forget";
    case Verb::tell: return "tell";
    case Verb::checkpoint: return "checkpoint";
    case Verb::swap: return "swap";
    case Verb::all_named: return "all_named";
    case Verb::keep: return "keep";
    case Verb::slow: return "slow";
    case Verb::inspect: return "inspect";
    case Verb::end: return "end";
    case Verb::close: return "close";
    case Verb::source: return "source";
    case Verb::parents: return "parents";
  }
  return "unknown";
}

std::string_view to_string(Code code) {
  switch (code) {
    case Code::ok: return "done";
    case Code::unknown_verb: return "the order does not exist";
    case Code::malformed: return "the order is malformed";
    case Code::descriptors: return "the descriptors do not match the order";
    case Code::denied: return "the requesting user has no right to do this";
    case Code::not_followed: return "the actor does not know the lease's program";
    case Code::gone: return "the process has ended";
    case Code::not_its_keeper: return "the keeper is not the parent of the program";
    case Code::wrong_user: return "the process does not belong to the lease's user";
    case Code::untouchable: return "the process is protected and never signalled";
    case Code::no_proof: return "nothing proves that the process is the attached process";
    case Code::failed: return "the kernel refused the order";
    case Code::lost: return "the actor does not run";
    case Code::unhandled: return "the process has no handler for the signal, so the signal would end it";
    case Code::other_rights: return "the process has other rights than its user, or runs in a container";
    case Code::untraceable: return "the process forbids tracing";
    case Code::busy: return "a helper for the process is still at work";
    case Code::too_many: return "the maximum number of helpers is reached";
    case Code::leased: return "the process belongs to a lease";
    case Code::no_evidence: return "the process has no file of a GPU open or mapped";
  }
  return "an unknown answer";
}

}  // namespace sublet::actor
