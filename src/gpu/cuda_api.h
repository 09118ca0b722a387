// SPDX-License-Identifier: Apache-2.0
// Loads the CUDA driver at run time, with the functions for parking other processes. It has its own declarations and
// works with the real and the simulated driver. Any call may hang for ever, so only a helper process may make it. One
// thread.
#pragma once

#include "base/error.h"
#include "base/units.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sublet::gpu {

// The codes that the helper distinguishes. Other numbers are possible.
enum class CudaCode : int {
  success = 0,
  invalid_value = 1,
  out_of_memory = 2,
  not_initialized = 3,
  operating_system = 304,
  illegal_state = 401,
  not_ready = 600,
  not_supported = 801,
};

// The checkpoint state of a process, as the driver reports it. `unknown`: the driver was not asked.
enum class ParkState : int { running = 0, locked = 1, checkpointed = 2, failed = 3, unknown = 99 };

class CudaApi {
 public:
  // Opens and initialises the driver, which takes seconds on a real driver. `path`: absolute, or "" for the vendor's
  // places. Errors: Unavailable if there is no library or it does not start, which may change; NotFound if the driver
  // has no checkpoints.
  // `slice`: uuid of the MIG slice that this process is to see; "": all cards.
  static Result<CudaApi> load(const std::string& path, const std::string& slice = {});

  CudaApi(CudaApi&&) noexcept;
  CudaApi& operator=(CudaApi&&) noexcept;
  ~CudaApi();  // the library stays loaded, because its threads run on

  const std::string& path() const;
  int version() const;  // 13000 means 13.0
  // Whether a failed checkpoint leaves the process as it was. Before 13.0 a failed checkpoint ends the process.
  bool undoes_checkpoints() const { return version() >= 13000; }
  std::string name_of(CudaCode code) const;  // "CUDA_ERROR_NOT_READY", or "error 12345"

  CudaCode state(int pid, ParkState& state) const;
  CudaCode lock(int pid, std::chrono::milliseconds timeout) const;  // the timeout must be positive
  CudaCode checkpoint(int pid) const;
  CudaCode restore(int pid) const;
  CudaCode unlock(int pid) const;

  // Held memory of a device, which no other program can have meanwhile. The destructor frees it.
  class Ballast {
   public:
    Ballast(Ballast&&) noexcept;
    Ballast& operator=(Ballast&&) noexcept;
    ~Ballast();
    Bytes held() const;  // without the context that holding takes

   private:
    friend class CudaApi;
    struct Parts;
    explicit Ballast(std::unique_ptr<Parts> parts);
    std::unique_ptr<Parts> parts_;
  };
  // Takes `bytes` and `margin` on the device with that UUID, in pieces, plus the context that holds them. If that does
  // not fit, takes `bytes` with the context included, because the last piece frees the context too. Errors: Memory if
  // `bytes` do not fit either (nothing is held then); NotFound if there is no such device.
  Result<Ballast> take(const std::string& uuid, Bytes bytes, Bytes margin = {}) const;

 private:
  struct Table;
  explicit CudaApi(std::unique_ptr<Table> table);
  std::unique_ptr<Table> table_;
};

}  // namespace sublet::gpu
