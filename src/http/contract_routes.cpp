// SPDX-License-Identifier: Apache-2.0
#include "http/contract.h"
#include "http/routes.h"

namespace sublet::http {
namespace {

Reply get_contract(Call&) { return Response{200, nullptr, {}, false, std::string(contract()), "application/json"}; }

constexpr Route table[] = {
    Route{Method::get, "/v1/openapi.json", Role::user, Scope::read, get_contract}.without_store(),
};

}  // namespace

const std::span<const Route> contract_routes = table;

}  // namespace sublet::http
