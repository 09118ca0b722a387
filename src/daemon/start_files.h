// SPDX-License-Identifier: Apache-2.0
// The files and directories that a start makes. A start that fails removes them again.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace sublet::daemon {

// Declare it before everything that opens these files. The destructor removes what was made, unless keep() was called.
class StartFiles {
 public:
  StartFiles() = default;
  ~StartFiles();
  StartFiles(const StartFiles&) = delete;
  StartFiles& operator=(const StartFiles&) = delete;

  // Call these before the path is made. A path that exists already is never removed; its missing parents are removed
  // if they are empty.
  void note_directory(const std::filesystem::path& path);  // removed if it is empty
  void note_own(const std::filesystem::path& path);        // a file, or a directory with all that is in it
  // While another daemon holds this lock, files may be that daemon's: only empty directories are removed.
  void note_lock(const std::filesystem::path& path);

  // The start succeeded.
  void keep() { kept_ = true; }

 private:
  struct Noted {
    std::filesystem::path path;
    bool own = false;
  };
  std::vector<Noted> noted_;  // parents before their content
  std::filesystem::path lock_;
  bool kept_ = false;
};

}  // namespace sublet::daemon
