// SPDX-License-Identifier: Apache-2.0
// How much a placement fragments memory. Pure functions of plain values; no state, no clock.
//
// Fragmented is the free memory that the expected requests cannot use (Weng et al., "Beware of Fragmentation:
// Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX ATC 2023). For a request that the
// machine can still hold, these are the remainders of devices that are too small for it. For a request that it cannot
// hold, it is all that is free. The placement that fragments least goes down the gradient of the expected sum.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace sublet::placement {

// An amount of one device, in a unit of the caller: bytes, or thousandths of a device.
using Amount = std::int64_t;

struct Request {
  int devices = 1;             // all at once; 0: it needs none
  Amount each = 0;             // on each of them
  Amount cpu = 0, memory = 0;  // of the machine; 0: any machine has it
  bool operator==(const Request&) const = default;
};

// Devices that a request for several may use together, and what else requests need there.
struct Machine {
  std::vector<Amount> free;       // of each device
  Amount whole = 0;               // of the largest device; more than 0
  Amount cpu = 0, memory = 0;     // left; only compared with what requests need
  Amount most = 0, most_cpu = 0;  // of the largest machine: what is left is compared with that; 0: with this one

  Amount all_free() const;
  bool idle(std::size_t device) const { return free[device] >= whole; }
};

// A request that is expected to come, and how often: the weights of a mix add up to 1.
struct Expected {
  Request request;
  double weight = 0;
};
using Mix = std::vector<Expected>;

// The mix of these requests. Rare large requests keep a floor, so that small ones cannot squeeze them out: each that
// takes whole devices or several of them counts at least `floor`. Empty without requests.
Mix mix_of(std::span<const Request> seen, Amount whole, double floor = 0);

bool fits(const Machine& machine, const Request& request);

// The memory of the machine that the mix cannot use, in the unit of amounts.
double fragmented(const Machine& machine, const Mix& mix);

// Memory of one device alone that the mix cannot use any more once a request takes `taken` of its free memory, without
// the request's own, and a little for what is left over. The less the better.
double loss(Amount free, Amount taken, const Mix& mix);

// Memory of one device alone that the mix could use before a request took `taken` of it, and cannot use afterwards.
double cost(Amount free, Amount taken, const Mix& mix);

// Policies, best described by what they prefer.
enum class Policy {
  fragmentation,  // least memory that the expected requests cannot use; then as `best_fit`
  best_fit,       // least left over
  pack,           // devices and machines that are in use already
  spread,         // most left over
  random,
};
std::string_view to_string(Policy policy);
std::optional<Policy> parse_policy(std::string_view text);

// The devices of one machine that the policy gives to the request, and how good that is.
struct Choice {
  std::vector<std::size_t> devices;  // ascending; empty for a request without devices
  double score = 0;                  // larger is better; comparable between machines
};
// Nothing if it does not fit. Equal choices go to the first device. For `random` the score is 0.
std::optional<Choice> choose(Policy policy, const Machine& machine, const Request& request, const Mix& mix);

void take(Machine& machine, const Request& request, std::span<const std::size_t> devices);
void give_back(Machine& machine, const Request& request, std::span<const std::size_t> devices);

}  // namespace sublet::placement
