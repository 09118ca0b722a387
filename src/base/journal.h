// SPDX-License-Identifier: Apache-2.0
// Entries of journald with fields, by its native protocol (docs/decisions/0007). Any thread.
#pragma once

#include "base/fd.h"

#include <string>
#include <string_view>
#include <vector>

namespace sublet {

// Whether journald reads this descriptor: JOURNAL_STREAM names its file (systemd.exec(5)).
bool is_journal(int fd);

class Journal {
 public:
  struct Field {
    std::string_view name;  // capital letters, digits and '_'
    std::string value;
  };

  // `identifier`: name of this program in each entry.
  explicit Journal(std::string_view identifier, std::string socket = "/run/systemd/journal/socket");
  // Sends one entry, and never waits. False: it was not sent.
  bool send(const std::vector<Field>& fields) const;

 private:
  std::string identifier_;
  std::string path_;
  Fd socket_;
};

}  // namespace sublet
