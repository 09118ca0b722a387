// SPDX-License-Identifier: Apache-2.0
#include "daemon/start_files.h"

#include "base/fd.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <system_error>

namespace sublet::daemon {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code failure;
  return fs::symlink_status(path, failure).type() != fs::file_type::not_found;  // unknown counts as existing
}

bool is_held(const fs::path& lock) {
  const Fd file(::open(lock.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  return file && ::flock(file.get(), LOCK_EX | LOCK_NB) != 0;
}

// Another daemon that started meanwhile holds the lock of its store, wherever below.
bool any_is_held(const fs::path& below) {
  std::error_code failure;
  for (fs::recursive_directory_iterator at(below, failure), end; !failure && at != end; at.increment(failure))
    if (at->path().extension() == ".lock" && is_held(at->path())) return true;
  return false;
}

}  // namespace

void StartFiles::note_directory(const fs::path& path) {
  if (path.empty() || is_there(path)) return;
  note_directory(path.parent_path());
  noted_.push_back({path, false});
}

void StartFiles::note_own(const fs::path& path) {
  if (path.empty() || is_there(path)) return;
  note_directory(path.parent_path());
  noted_.push_back({path, true});
}

void StartFiles::note_lock(const fs::path& path) {
  lock_ = path;
  note_own(path);
}

StartFiles::~StartFiles() {
  if (kept_) return;
  // The place of the lock is known only after the configuration was read.
  const bool others = lock_.empty() ? std::ranges::any_of(noted_, any_is_held, &Noted::path) : is_held(lock_);
  for (auto noted = noted_.rbegin(); noted != noted_.rend(); ++noted) {
    std::error_code ignored;
    if (noted->own && !others) fs::remove_all(noted->path, ignored);
    else if (fs::is_directory(fs::symlink_status(noted->path, ignored))) fs::remove(noted->path, ignored);
  }
}

}  // namespace sublet::daemon
