// SPDX-License-Identifier: Apache-2.0
// The log of a supervised program as a stream.
#include "http/resources.h"

namespace sublet::http {

Reply get_program_log(Call&) { return TextStream{[] { return std::string(); }}; }

}  // namespace sublet::http
