// SPDX-License-Identifier: Apache-2.0
// Records about processes that have ended: messages of the process connector, and records of process accounting, whose
// names are chosen by any user.
#include "base/text.h"
#include "fuzz.h"
#include "proc/accounting.h"
#include "proc/process_event.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sublet;
  const auto bytes = std::as_bytes(std::span(data, size));
  if (const auto event = proc::parse_process_event(bytes)) {
    const bool about_process = event->kind != proc::ProcessEvent::Kind::acknowledged;
    FUZZ_CHECK(!about_process || (event->pid > 0 && event->parent >= 0));
  }
  if (const auto record = proc::parse_accounting_record(bytes)) {
    FUZZ_CHECK(record->pid > 0 && record->parent >= 0);
    FUZZ_CHECK(record->ended >= record->started);
    FUZZ_CHECK(is_printable(record->name));
  }
  return 0;
}
