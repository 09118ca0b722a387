// SPDX-License-Identifier: Apache-2.0
// The two pages of a process (wire/limit.h) as files that the process maps. The process cannot write its limit page,
// not even through the file. It writes its use page, so that nothing in it is believed beyond its range. Neither file
// can change its size, so that no access to a page ends the daemon. One thread at a time.
#pragma once

#include "base/error.h"
#include "base/fd.h"
#include "base/units.h"
#include "credit/counts.h"
#include "wire/limit.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace sublet::credit {

using Uuid = std::array<std::uint8_t, 16>;

// The page that all processes of a lease with a share write. Its file cannot change its size. Nothing in it is read.
Result<Fd> make_share_page(std::uint32_t devices);

struct DeviceLimit {
  Uuid uuid{};
  Bytes limit{};            // of the lease
  Bytes context{};          // bytes that a context takes, as they were measured
  std::uint32_t share = 0;  // percent of the device's time that the lease may take; 0: no bound
  std::uint32_t gain = 0;   // thousandths by which processes multiply the time that they measured; 0: 1000
};

class Pages {
 public:
  // At most SUBLET_LIMIT_DEVICES devices. The credit is zero on each.
  static Result<Pages> make(std::span<const DeviceLimit> devices);
  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&& other) noexcept;
  ~Pages();

  int limit_file() const { return limit_file_.get(); }
  int use_file() const { return use_file_.get(); }

  void close_files() { limit_file_.reset(), use_file_.reset(); }  // the pages stay mapped

  void set_limit(std::size_t device, Bytes limit);
  void set_credit(std::size_t device, Bytes credit);
  void set_others(std::size_t device, Bytes others);
  void set_gain(std::size_t device, std::uint32_t gain);
  Bytes credit(std::size_t device) const;
  Counts counts() const;      // what the process says that it has done
  bool is_uncovered() const;  // the library says that calls may pass its hooks
  // As the process says: in 0 … `most`. Before the process has taken its pages: `most`, because its earlier pages may
  // have as much.
  Bytes charged(std::size_t device, Bytes most) const;

 private:
  Pages() = default;
  Fd limit_file_, use_file_;
  sublet_limit_page* limit_ = nullptr;
  sublet_use_page* use_ = nullptr;
};

}  // namespace sublet::credit
