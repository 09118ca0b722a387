// SPDX-License-Identifier: Apache-2.0
// The resources, one file each: leases.cpp, actions.cpp (actions on a lease), tables.cpp, preempt.cpp (preempt and
// free), cooperate.cpp (cooperative programs), consumers.cpp, grants.cpp, events.cpp, metrics.cpp, report.cpp,
// tokens.cpp, programs.cpp and program_log.cpp (supervised programs), enforcer.cpp (processes without a lease),
// stacks.cpp and stack_acquire.cpp (Docker Compose projects), sessions.cpp and session_open.cpp, event_targets.cpp,
// page.cpp (the page for browsers).
#pragma once

#include "http/message.h"

namespace sublet::http {

Reply get_page(Call& call);
Reply get_page_file(Call& call);
Reply get_health(Call& call);
Reply get_metrics(Call& call);
Reply get_contract(Call& call);
Reply get_status(Call& call);
Reply get_devices(Call& call);
Reply get_processes(Call& call);
Reply get_queue(Call& call);
Reply get_consumers(Call& call);
Reply post_grant(Call& call);
Reply delete_grant(Call& call);
Reply get_ledger(Call& call);
Reply get_events(Call& call);
Reply post_event_test(Call& call);
Reply get_report(Call& call);
Reply get_tokens(Call& call);
Reply post_token(Call& call);
Reply delete_token(Call& call);
Reply get_leases(Call& call);
Reply post_lease(Call& call);
Reply replay_lease(Call& call, const store::Remembered& answer);
Reply get_lease(Call& call);
Reply get_why(Call& call);
Reply post_claim(Call& call);
Reply post_attach(Call& call);
Reply post_renew(Call& call);
Reply post_touch(Call& call);
Reply post_resize(Call& call);
Reply post_release(Call& call);
Reply post_pause(Call& call);
Reply post_resume(Call& call);
Reply post_preempt(Call& call);
Reply post_free(Call& call);
Reply get_cooperate(Call& call);
Reply post_cooperate(Call& call);
Reply delete_cooperate(Call& call);
Reply post_cooperate_answer(Call& call);

Reply get_programs(Call& call);
Reply post_program(Call& call);
Reply get_program(Call& call);
Reply get_program_log(Call& call);
Reply post_program_update(Call& call);
Reply post_program_restart(Call& call);
Reply post_program_start(Call& call);
Reply post_program_stop(Call& call);
Reply post_program_remove(Call& call);
Reply post_program_report(Call& call);

Reply get_stacks(Call& call);
Reply post_stack(Call& call);
Reply get_stack(Call& call);
Reply post_stack_pull(Call& call);
Reply delete_stack(Call& call);
Reply post_stack_set(Call& call);
Reply post_stack_acquire(Call& call);
Reply replay_stack(Call& call, const store::Remembered& answer);
Reply post_stack_renew(Call& call);
Reply post_stack_release(Call& call);
Reply post_stack_restart(Call& call);
Reply get_stack_logs(Call& call);

Reply get_sessions(Call& call);
Reply post_session(Call& call);
Reply get_session(Call& call);
Reply get_session_log(Call& call);
Reply post_session_touch(Call& call);
Reply post_session_checkpoint(Call& call);
Reply post_session_close(Call& call);
Reply post_session_resume(Call& call);
Reply post_session_report(Call& call);

Reply get_verdicts(Call& call);
Reply get_verdict(Call& call);
Reply get_enforcer(Call& call);
Reply get_enforcer_preview(Call& call);
Reply post_approval(Call& call);
Reply delete_approval(Call& call);
Reply post_policy(Call& call);
Reply delete_policy(Call& call);

}  // namespace sublet::http
