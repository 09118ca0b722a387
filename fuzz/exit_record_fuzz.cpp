// SPDX-License-Identifier: Apache-2.0
// The exit record that a keeper of any user leaves for the daemon, and the text of /proc/PID/stat.
#include "fuzz.h"
#include "proc/exit_record.h"
#include "proc/process_table.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sublet;
  const std::string_view text = text_of(data, size);
  if (const auto record = proc::decode_exit_record(text)) {
    const auto again = proc::decode_exit_record(proc::encode_exit_record(*record));
    FUZZ_CHECK(again && *again == *record);
    FUZZ_CHECK(!record->exit_status || (*record->exit_status >= 0 && *record->exit_status <= 255));
    FUZZ_CHECK(!record->signal || (*record->signal >= 1 && *record->signal <= 64));
  }
  (void)proc::parse_stat(text);
  return 0;
}
