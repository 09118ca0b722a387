// SPDX-License-Identifier: Apache-2.0
#include "keep/log_file.h"
#include <fcntl.h>
#include <unistd.h>
namespace sublet::keep {
void LogFile::write(std::string_view bytes, Time) {
  if (!fd_) fd_ = Fd(::open(limits_.path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640));
  (void)!::write(fd_.get(), bytes.data(), bytes.size());
}
}  // namespace sublet::keep
