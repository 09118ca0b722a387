// SPDX-License-Identifier: Apache-2.0
// The secrets of `sublet web`. The printed address has a secret that works once. A browser changes it for a cookie and
// a key, and needs both: browsers send a cookie to all ports of a host, and a script of another port cannot read the
// key. Any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace sublet::cli {

class WebGate {
 public:
  explicit WebGate(std::uint16_t port);

  const std::string& secret() const { return secret_; }  // of the printed address

  struct Pass {
    std::string set_cookie;  // value of the header Set-Cookie
    std::string key;         // sent as "Authorization: Bearer KEY"
  };
  // Takes the secret of the address; nothing if it is wrong, or was taken before.
  std::optional<Pass> exchange(std::string_view secret);

  // Whether these headers have the cookie and the key.
  bool admits(std::string_view cookies, std::string_view authorization) const;

 private:
  const std::string name_;  // of the cookie; with the port, so that two pages of one host do not replace theirs
  const std::string secret_, cookie_, key_;
  std::mutex mutex_;
  bool spent_ = false;
};

}  // namespace sublet::cli
