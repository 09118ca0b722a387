// SPDX-License-Identifier: Apache-2.0
// Turns the API's replies into text. Pure functions of a reply and a Look, tested on literal JSON.
#pragma once

#include "cli/output.h"

#include <nlohmann/json.hpp>

#include <string>

namespace sublet::cli {

Result<std::string> render_leases(const nlohmann::json& leases, const Common& common, const Look& look);
// The whole reason of a lease, with the preemptor's request and the holders of its memory. A table cell is shorter.
std::string whole_reason(const nlohmann::json& lease, const Look& look);
Result<std::string> render_queue(const nlohmann::json& queue, const Common& common, const Look& look);
Result<std::string> render_devices(const nlohmann::json& devices, const Common& common, const Look& look);
Result<std::string> render_processes(const nlohmann::json& processes, const Common& common, const Look& look);

// A reply of /v1/programs.
Result<std::string> render_programs(const nlohmann::json& programs, const Common& common, const Look& look);

Result<std::string> render_verdicts(const nlohmann::json& body, const Common& common, const Look& look);
Result<std::string> render_approvals(const nlohmann::json& body, const Common& common, const Look& look);
Result<std::string> render_policies(const nlohmann::json& body, const Common& common, const Look& look);
Result<std::string> render_enforcement_preview(const nlohmann::json& body, const Common& common, const Look& look);
std::string render_verdict(const nlohmann::json& verdict, const Look& look);
// A reply of /v1/stacks.
Result<std::string> render_stacks(const nlohmann::json& body, const Common& common, const Look& look);
// One stack: several lines; stack_phrase() has the first of them, without its end.
std::string render_stack(const nlohmann::json& stack, const Look& look);
std::string stack_phrase(const nlohmann::json& stack, const Look& look);
// A reply of /v1/sessions.
Result<std::string> render_sessions(const nlohmann::json& body, const Common& common, const Look& look);
// One session: several lines; session_phrase() has the first of them, without its end.
std::string render_session(const nlohmann::json& session, const Look& look);
std::string session_phrase(const nlohmann::json& session, const Look& look);
// A reply of /v1/tenants, of one tenant, and of a change of the tree.
Result<std::string> render_tenants(const nlohmann::json& body, const Common& common, const Look& look);
std::string render_tenant(const nlohmann::json& tenant, const Look& look);
std::string render_tenant_changes(const nlohmann::json& reply, const Look& look);
// "in the last 2 h": the time for which use counts.
std::string window_phrase(const nlohmann::json& window);
Result<std::string> render_tokens(const nlohmann::json& tokens, const Common& common, const Look& look);

// `leases`: the reply of /v1/leases, or null if that request failed.
// `tenants`: the reply of /v1/tenants, or null.
std::string render_status(const nlohmann::json& status, const nlohmann::json& leases, const Look& look,
                          const nlohmann::json& tenants = nullptr);
// "tenants (held of quota): vision 3.0 GiB of 4.0 GiB, house 2.0 GiB of 1.0 GiB (1.0 GiB borrowed)"; "" without quotas.
std::string tenants_phrase(const nlohmann::json& tenants);

// "2 active, 1 paused", in the order of a lease's life; "" for no lease. `counts`: leases of /v1/status.
std::string counts_phrase(const nlohmann::json& counts);
// "4.0 GiB of 32.0 GiB parked in host memory"; "" if nothing is parked. `status`: the reply of /v1/status.
std::string parked_phrase(const nlohmann::json& status);
// "2.0 GiB" of a device that are leased, without the residue of paused programs.
std::string leased_size(const nlohmann::json& device);
// "draining since 2026-…Z by root, deadline 2026-…Z: new fan"; "": the device is in service.
std::string service_text(const nlohmann::json& device);
// "35 % busy · 61 °C · 180/600 W · 1980 MHz": what the driver tells of it; "" if nothing.
std::string condition_text(const nlohmann::json& device);
// "[###===xx...  ]" with `columns` characters inside; every non-zero part gets at least one. "" without a size.
std::string device_bar(const nlohmann::json& device, std::size_t columns);

std::string render_why(const nlohmann::json& why, const Look& look);

// no_device_phrase(): why no device is named; "" if one is. queue_phrase(): "place 2, 4.0 GiB short on gpu0; starts in
// about 5 min"; of a paused lease "resumes in".
std::string no_device_phrase(const nlohmann::json& queue);
std::string queue_phrase(const nlohmann::json& lease, const Look& look);
// "ResumeBlocked: pid 9 (game) holds 2.0 GiB on gpu0", "ResumeBlocked: its device is gone"; "" if nothing blocks the
// resume. The words stay the same while the cause stays.
std::string blocked_phrase(const nlohmann::json& lease, const Look& look);
// "1.2 GiB of 3.0 GiB parked, 1.9 GiB/s, about 950ms left"; "" if nothing is being moved.
std::string progress_phrase(const nlohmann::json& lease);
// "stopped for 5 min by a signal"; "" if it runs.
std::string stopped_phrase(const nlohmann::json& lease, const Look& look);
// "has done nothing for 5 min"; "" without an idle rule, or while its program works or that is unknown.
std::string idle_phrase(const nlohmann::json& lease, const Look& look);
// "pause after 10 min (lease), end after 1 h (default)"; "" if there is no idle rule.
std::string idle_rule_phrase(const nlohmann::json& lease);
// "is not running again yet: process 9 is stopped …"; "" if no obstacle is known.
std::string problem_phrase(const nlohmann::json& lease);
// "lease-3 (train, ana) 4.0 GiB, pid 9 (without a lease) 1.1 GiB": at most three holders, the others counted.
std::string holders_phrase(const nlohmann::json& queue);
// "uses 2.3 GiB on gpu1, which it has not leased"; "" if it uses its own devices alone.
std::string stray_phrase(const nlohmann::json& lease, const Look& look);

Result<std::string> render_report(const nlohmann::json& report, const Common& common, const Look& look);

// The victims of a preemption preview (a reply of /v1/preempt or a field of that shape), or why there are none.
Result<std::string> render_preview(const nlohmann::json& preview, const Common& common, const Look& look);
// The reply of /v1/leases with dry_run.
Result<std::string> render_dry_run(const nlohmann::json& reply, const Common& common, const Look& look);

// A reply of /v1/consumers.
Result<std::string> render_consumers(const nlohmann::json& reply, const Common& common, const Look& look);
// "850ms", "6.3s", "2m": rounded, for predictions.
std::string about(Duration duration);

// The columns for -o, by verb; empty for a verb that prints no table.
std::span<const Column> columns_of(std::string_view verb);
std::span<const Column> ps_columns();
std::span<const Column> queue_columns();
std::span<const Column> report_columns_of();
std::span<const Column> tenant_columns_of();
std::span<const Column> program_columns_of();
std::span<const Column> verdict_columns_of();
std::span<const Column> stack_columns_of();
std::span<const Column> session_columns_of();
Cell program_state_cell(const nlohmann::json& row, const Look& look);  // "running (paused, stopping)"

}  // namespace sublet::cli
