// SPDX-License-Identifier: Apache-2.0
// A test event for a tool that is told of events.
#include "base/text.h"
#include "events/outlets.h"
#include "http/body.h"
#include "http/routes.h"

#include <fmt/format.h>

namespace sublet::http {
namespace {

Reply post_event_test(Call& call) {
  if (const Status may = call.engine.may_decide(); !may) return problem(may.error());
  if (const Status read = Body(call.request.body).finish(); !read) return problem(read.error());
  const std::string name = call.args.at(0);
  events::Outlets& outlets = *call.capabilities.events;
  if (const Status known = outlets.has(name); !known) return problem(known.error());
  return Later{[&engine = call.engine, &outlets, name, remember = call.remember](std::function<void(Reply)> answer) {
    outlets.test(name, [&engine, name, remember, answer](const std::string& failed) {
      const json shown{{"target", name},
                       {"sent", failed.empty()},
                       {"problem", failed.empty() ? json(nullptr) : json(visible(failed))}};
      engine::Answered answered{200, shown.dump(), {}};
      engine.remember(remember, answered);
      answer(as_json(std::move(answered)));
    });
  }};
}

constexpr Route table[] = {
    Route{Method::post, "/v1/events/targets/{name}/test", Role::admin, Scope::admin, post_event_test},
};

}  // namespace

const std::span<const Route> event_target_routes = table;

}  // namespace sublet::http
