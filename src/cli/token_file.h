// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/error.h"
#include "base/fd.h"

#include <string>

namespace sublet::cli {

// A new file for a token, readable by its owner alone. It is created before the token, so that no token is lost, and
// removed unless keep() is called.
class TokenFile {
 public:
  // `flag`: the command line's flag, "--token-file".
  explicit TokenFile(std::string flag) : flag_(std::move(flag)) {}
  TokenFile(const TokenFile&) = delete;
  TokenFile& operator=(const TokenFile&) = delete;
  ~TokenFile();

  Status create(const std::string& path);
  bool exists() const { return static_cast<bool>(file_); }
  // Writes one line and syncs it to disk. Fails if the line is incomplete; the caller adds the hint.
  Status write(const std::string& token) const;
  void keep() { kept_ = true; }

 private:
  std::string flag_, path_;
  Fd file_;
  bool kept_ = false;
};

}  // namespace sublet::cli
