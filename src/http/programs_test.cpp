// SPDX-License-Identifier: Apache-2.0
#include "guard/guard_test.h"
#include "http/routes.h"

namespace sublet::http {
namespace {

using namespace std::chrono_literals;

using ProgramStop = guard::GuardTest;

TEST_F(ProgramStop, NeedsNoDiskThatKeepsUp) {
  guard::Program program;
  program.uid = 1000;
  program.user = "ana";
  program.tag = "serve";
  program.manifest.arguments = {"serve"};
  program.manifest.request = {{"vram_bytes", GiB.count}};
  ASSERT_TRUE(guard_->add(program));
  ASSERT_TRUE(engine_->store_rows("program_added", {}, [] { return engine::Answered(); }));
  const LeaseId id = run(10, GiB);
  guard_->submitted(1000, "serve", lease(id));
  settle();
  for (int i = 0; i < 100'000 && engine_->may_decide(); ++i)
    (void)engine_->decide(core::Amend{.lease = id, .priority = i % 2});
  ASSERT_FALSE(engine_->may_decide());
  Request request;
  request.method = Method::post;
  request.path = "/v1/programs/serve/stop";
  request.peer = {.uid = 1000, .user = "ana", .role = engine::Role::user};
  const Reply reply = dispatch(request, *engine_, {.guard = &*guard_});
  const auto* response = std::get_if<Response>(&reply);
  ASSERT_NE(response, nullptr);
  EXPECT_EQ(response->status, 200) << response->text << response->body;
  read_after(250ms);
  EXPECT_EQ(programs_->signals, std::vector{SIGTERM});
}

}  // namespace
}  // namespace sublet::http
