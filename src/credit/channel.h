// SPDX-License-Identifier: Apache-2.0
// The daemon's side of wire/credit.h: a socket, a question with the kernel's word on its sender, and the answer.
// Nothing here waits. Any thread.
#pragma once

#include "base/error.h"
#include "base/fd.h"
#include "credit/pages.h"
#include "proc/pidfd.h"
#include "wire/credit.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace sublet::credit {

struct Question {
  sublet_credit_kind kind = SUBLET_CREDIT_BEGIN;
  std::size_t device = 0;
  std::uint64_t needed = 0;  // bytes
  proc::Peer sender;         // made the connection, and sent the question itself
};

// Listens on this path, which every user may use: a question decides nothing by itself. A socket that an earlier daemon
// left there is replaced.
Result<Fd> listen(const std::string& path);

// Accepts a connection; an empty descriptor if nobody waits.
Result<Fd> accept(int listener);

// Receives the question of a connection. Unavailable: it has not come yet. Denied: another process than the one that
// made the connection sent it, or nobody knows which one. BadRequest: no question of this version. Descriptors that
// come with it are closed.
Result<Question> receive(const proc::ProcRoot& root, int connection);

// Sends the answer; `pages` and the share page, if there is one, belong to the answer to SUBLET_CREDIT_BEGIN.
Status answer(int connection, sublet_credit_result result, const Pages* pages = nullptr, int share_page = -1);

}  // namespace sublet::credit
