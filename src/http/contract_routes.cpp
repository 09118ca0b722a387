// SPDX-License-Identifier: Apache-2.0
#include "http/contract.h"
#include "http/resources.h"

namespace sublet::http {

Reply get_contract(Call&) { return Response{200, nullptr, {}, false, std::string(contract()), "application/json"}; }

}  // namespace sublet::http
