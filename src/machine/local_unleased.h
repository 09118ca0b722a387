// SPDX-License-Identifier: Apache-2.0
// Unleased processes of this machine, each held by a pidfd. The actor proves, judges and signals them.
#pragma once

#include "machine/unleased.h"

#include <boost/asio/io_context.hpp>

#include <memory>

namespace sublet::machine {

class Actor;
class Programs;

// Keeps references to all arguments. `programs` must be open before the first call of a method.
std::unique_ptr<Unleased> local_unleased(boost::asio::io_context& io, Actor& actor, Programs& programs);

}  // namespace sublet::machine
