// SPDX-License-Identifier: Apache-2.0
// What the verbs that look make of the API's replies. Pure functions of a reply and a Look: tested on literal JSON.
#pragma once

#include "cli/output.h"

#include <nlohmann/json.hpp>

#include <string>

namespace sublet::cli {

Result<std::string> render_leases(const nlohmann::json& leases, const Common& common, const Look& look);
// All that a lease's state does not tell, in one line: of one that waits also who has what it waits for.
std::string whole_reason(const nlohmann::json& lease, const Look& look);
Result<std::string> render_queue(const nlohmann::json& queue, const Common& common, const Look& look);
Result<std::string> render_devices(const nlohmann::json& devices, const Common& common, const Look& look);
Result<std::string> render_processes(const nlohmann::json& processes, const Common& common, const Look& look);

Result<std::string> render_tokens(const nlohmann::json& tokens, const Common& common, const Look& look);

// `leases`: the reply of /v1/leases, or null when it could not be had.
std::string render_status(const nlohmann::json& status, const nlohmann::json& leases, const Look& look);

// "2 active, 1 paused", in the order of a lease's life; "" for none. `counts`: leases of /v1/status.
std::string counts_phrase(const nlohmann::json& counts);
// "4.0 GiB of 32.0 GiB parked in host memory", "" while nothing is. `status`: the reply of /v1/status.
std::string parked_phrase(const nlohmann::json& status);
// "[###===xx...  ]", so many characters inside the brackets. What is there at all gets at least one; "" without a size.
std::string device_bar(const nlohmann::json& device, std::size_t columns);

std::string render_why(const nlohmann::json& why, const Look& look);

// "place 2, 4.0 GiB short on gpu0; starts in about 5 min": the queue part of a waiting lease.
std::string no_device_phrase(const nlohmann::json& queue);
std::string queue_phrase(const nlohmann::json& lease, const Look& look);
// "ResumeBlocked: pid 9 (game) holds 2.0 GiB on gpu0", "ResumeBlocked: its device is gone"; "" while neither keeps the
// lease from its room. The same words for as long as it is so.
std::string blocked_phrase(const nlohmann::json& lease, const Look& look);
// "1.2 GiB of 3.0 GiB parked, 1.9 GiB/s, about 950ms left", "" while nothing is moved.
std::string progress_phrase(const nlohmann::json& lease);
// "does not run again yet: process 9 is stopped …", "" while nothing is known to keep it from coming back.
std::string problem_phrase(const nlohmann::json& lease);
// "lease-3 (train, ana) 4.0 GiB, pid 9 (without a lease) 1.1 GiB": at most three, the rest counted.
std::string holders_phrase(const nlohmann::json& queue);

Result<std::string> render_report(const nlohmann::json& report, const Common& common, const Look& look);

// Who yields to make room (a reply of /v1/preempt, or its like), or why nobody can.
Result<std::string> render_room(const nlohmann::json& room, const Common& common, const Look& look);
// What would come of a request: the reply of /v1/leases with dry_run.
Result<std::string> render_dry_run(const nlohmann::json& reply, const Common& common, const Look& look);

// A reply of /v1/consumers.
Result<std::string> render_consumers(const nlohmann::json& reply, const Common& common, const Look& look);
// "850ms", "6.3s", "2m": a prediction, so not to the millisecond.
std::string about(Duration duration);

// What -o may choose, by verb; empty for a verb that prints no table.
std::span<const Column> columns_of(std::string_view verb);
std::span<const Column> ps_columns();
std::span<const Column> queue_columns();
std::span<const Column> report_columns_of();

}  // namespace sublet::cli
