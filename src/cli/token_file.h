// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/error.h"
#include "base/fd.h"

#include <string>

namespace sublet::cli {

// A file for a secret, made before the secret is, so that none is made that cannot be written down: it did not exist
// before, and is readable by its owner alone. Removed again unless it is kept.
class TokenFile {
 public:
  // `flag` names it on the command line: "--token-file".
  explicit TokenFile(std::string flag) : flag_(std::move(flag)) {}
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;
  ~TokenFile();

  Status create(const std::string& path);
  bool exists() const { return static_cast<bool>(file_); }
  // One line, synced to disk. Fails where it does not arrive whole; the hint is the caller's.
  Status write(const std::string& token) const;
  void keep() { kept_ = true; }

 private:
  std::string flag_, path_;
  Fd file_;
  bool kept_ = false;
};

}  // namespace sublet::cli
