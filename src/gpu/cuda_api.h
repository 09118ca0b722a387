// SPDX-License-Identifier: Apache-2.0
// The CUDA driver, opened at run time, as far as parking another process needs it. Own declarations; the real
// driver and the simulated one are the same to it. Any call may hang for ever: only a process that can be
// abandoned may make it. One thread.
#pragma once

#include "base/error.h"
#include "base/units.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace sublet::gpu {

// The codes that are told apart here; any other number may come too.
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

// The driver's word for what state a process is in for checkpoints; `unknown` where it was not asked.
enum class ParkState : int { running = 0, locked = 1, checkpointed = 2, failed = 3, unknown = 99 };

class CudaApi {
 public:
  // Opens and initialises the driver, which takes seconds on a real one. `path`: absolute, or "" for the places
  // where the vendor installs it. An error says what is missing: Unavailable, no library, or one that
  // does not start, which may be otherwise the next time; NotFound, what is there cannot do checkpoints.
  static Result<CudaApi> load(const std::string& path);

  CudaApi(CudaApi&&) noexcept;
  CudaApi& operator=(CudaApi&&) noexcept;
  ~CudaApi();  // the library stays: its threads run on

  const std::string& path() const;
  int version() const;  // 13000 is 13.0
  // A checkpoint that the driver cannot do leaves the process as it was; before 13.0 that is its end.
  bool undoes_checkpoints() const { return version() >= 13000; }
  std::string name_of(CudaCode code) const;  // "CUDA_ERROR_NOT_READY", or "error 12345"

  CudaCode state(int pid, ParkState& state) const;
  CudaCode lock(int pid, std::chrono::milliseconds timeout) const;  // the timeout is more than 0
  CudaCode checkpoint(int pid) const;
  CudaCode restore(int pid) const;
  CudaCode unlock(int pid) const;

  // Memory of one card, taken and kept: what nobody else can have meanwhile. Dropping it gives it back.
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
  // The bytes on the card of that UUID and the margin, in pieces, beside the context that it takes to hold them. Where
  // there is not so much: the bytes, the context among them, for that goes with the last piece. Memory when they are
  // not there either (and then nothing is kept), NotFound when there is no such card.
  Result<Ballast> take(const std::string& uuid, Bytes bytes, Bytes margin = {}) const;

 private:
  struct Table;
  explicit CudaApi(std::unique_ptr<Table> table);
  std::unique_ptr<Table> table_;
};

}  // namespace sublet::gpu
