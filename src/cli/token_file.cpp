// SPDX-License-Identifier: Apache-2.0
#include "cli/token_file.h"

#include "base/text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

namespace sublet::cli {

TokenFile::~TokenFile() {
  if (file_ && !kept_) ::unlink(path_.c_str());
}

Status TokenFile::create(const std::string& path) {
  path_ = path;
  file_ = Fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (file_) return {};
  const int failed = errno;
  if (failed == EEXIST) {
    return bad_request(fmt::format("the token file '{}' already exists", visible(path)),
                       "remove the file, or name another one; a token is never overwritten");
  }
  Error error = from_errno(fmt::format("cannot create the token file '{}'", visible(path)), failed);
  if (failed == ENOSPC || failed == EDQUOT)
    error.hint = fmt::format("free space there, or name another file: {} FILE", flag_);
  else error.hint = fmt::format("name a file in a directory that you may write: {} FILE", flag_);
  return error;
}

Status TokenFile::write(const std::string& token) const {
  const std::string line = token + "\n";
  const ssize_t written = ::write(file_.get(), line.data(), line.size());
  if (written == static_cast<ssize_t>(line.size()) && ::fsync(file_.get()) == 0) return {};
  return from_errno(fmt::format("cannot write the token file '{}'", visible(path_)),
                    written >= 0 && written < static_cast<ssize_t>(line.size()) ? ENOSPC : errno);
}

}  // namespace sublet::cli
