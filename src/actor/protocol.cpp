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
  }
  return "unknown";
}

std::string_view to_string(Code code) {
  switch (code) {
    case Code::ok: return "done";
    case Code::unknown_verb: return "there is no such order";
    case Code::malformed: return "the order is malformed";
    case Code::descriptors: return "the descriptors are not those of the order";
    case Code::denied: return "whoever asks may not";
    case Code::not_followed: return "the lease's program is not followed";
    case Code::gone: return "the process has ended";
    case Code::not_its_keeper: return "the keeper is not the parent of the program";
    case Code::wrong_user: return "the process is not the lease's user's";
    case Code::untouchable: return "the process is one that is never touched";
    case Code::no_proof: return "nothing proves that it is the process that was attached";
    case Code::failed: return "the kernel refused";
    case Code::lost: return "the actor is not there";
    case Code::unhandled: return "the process has no handler for the signal, which would end it";
    case Code::other_rights: return "the process has other rights than its user, or is in a container";
    case Code::untraceable: return "the process does not let itself be traced";
    case Code::busy: return "a helper for the process is still at work";
    case Code::too_many: return "as many processes have a helper as may at a time";
  }
  return "an unknown answer";
}

}  // namespace sublet::actor
