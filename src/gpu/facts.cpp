// SPDX-License-Identifier: Apache-2.0
#include "gpu/facts.h"

namespace sublet::gpu {
namespace {

constexpr std::int64_t reading_ns = 1'000'000'000;
constexpr unsigned long long critical_xid = 8;
constexpr std::int64_t fallen_off_the_bus = 79;
constexpr int most_events = 64;  // taken at once

NvmlCode code_of(int code) { return static_cast<NvmlCode>(code); }

// The answer will stay the same as long as the driver is loaded.
bool is_final(NvmlCode code) {
  return code == NvmlCode::not_supported || code == NvmlCode::function_not_found || code == NvmlCode::no_permission ||
         code == NvmlCode::argument_version_mismatch;
}

using Number = int (*)(NvmlDevice, unsigned*);
using NumberOf = int (*)(NvmlDevice, unsigned, unsigned*);
using Wide = int (*)(NvmlDevice, unsigned long long*);
using Count = int (*)(NvmlDevice, unsigned, unsigned, unsigned long long*);
using Rows = int (*)(NvmlDevice, unsigned*, unsigned*, unsigned*, unsigned*);
using Pair = int (*)(NvmlDevice, int*, int*);

enum class Form { number, number_of, wide, count, rows, capability, links };

// One call: the function, its arguments in front of the result, and the figure.
struct Call {
  std::string_view function;
  Form form;
  unsigned type;  // of `number_of`: kind of sensor or clock; of `count`: kind of error
  std::optional<std::int64_t> Facts::*figure;
};
constexpr std::array<Call, FactReader::calls> table{{
    {"nvmlDeviceGetTemperature", Form::number_of, 0, &Facts::celsius},
    {"nvmlDeviceGetPowerUsage", Form::number, 0, &Facts::milliwatts},
    {"nvmlDeviceGetEnforcedPowerLimit", Form::number, 0, &Facts::limit_milliwatts},
    {"nvmlDeviceGetTotalEnergyConsumption", Form::wide, 0, &Facts::millijoules},
    {"nvmlDeviceGetClockInfo", Form::number_of, 1, &Facts::sm_mhz},
    {"nvmlDeviceGetClockInfo", Form::number_of, 2, &Facts::memory_mhz},
    {"nvmlDeviceGetCurrPcieLinkGeneration", Form::number, 0, &Facts::link_generation},
    {"nvmlDeviceGetCurrPcieLinkWidth", Form::number, 0, &Facts::link_lanes},
    {"nvmlDeviceGetMaxPcieLinkGeneration", Form::number, 0, &Facts::max_link_generation},
    {"nvmlDeviceGetMaxPcieLinkWidth", Form::number, 0, &Facts::max_link_lanes},
    {"nvmlDeviceGetPcieReplayCounter", Form::number, 0, &Facts::link_replays},
    {"nvmlDeviceGetNvLinkState", Form::links, 0, &Facts::nvlinks},
    {"nvmlDeviceGetCudaComputeCapability", Form::capability, 0, &Facts::capability},
    {"nvmlDeviceGetTotalEccErrors", Form::count, 0, &Facts::corrected_errors},
    {"nvmlDeviceGetTotalEccErrors", Form::count, 1, &Facts::uncorrected_errors},
    {"nvmlDeviceGetRetiredPagesPendingStatus", Form::number, 0, &Facts::retirement_pending},
    {"nvmlDeviceGetRemappedRows", Form::rows, 0, &Facts::remapping_pending},
}};

// Nothing if no device can have the number.
std::optional<std::int64_t> within(std::optional<std::int64_t> Facts::*figure, unsigned long long number) {
  for (const FactField& field : fact_fields) {
    if (field.figure != figure || number > static_cast<unsigned long long>(field.most)) continue;
    const auto told = static_cast<std::int64_t>(number);
    return told < field.least ? std::nullopt : std::optional(told);
  }
  return std::nullopt;
}

// The number of links that are up. The driver refuses the number of a link that the device lacks.
int count_links(void* function, NvmlDevice handle, unsigned long long& up) {
  constexpr unsigned most_links = 18;  // NVML_NVLINK_MAX_LINKS
  for (unsigned link = 0; link < most_links; ++link) {
    unsigned is_up = 0;
    const int code = reinterpret_cast<NumberOf>(function)(handle, link, &is_up);
    if (link > 0 && (code_of(code) == NvmlCode::invalid_argument || code_of(code) == NvmlCode::not_supported)) break;
    if (code != 0) return code;
    if (is_up > 1) return static_cast<int>(NvmlCode::unknown);
    up += is_up;
  }
  return 0;
}

int read_capability(void* function, NvmlDevice handle, unsigned long long& capability) {
  int major = 0, minor = 0;
  const int code = reinterpret_cast<Pair>(function)(handle, &major, &minor);
  const bool possible = major > 0 && major < 100 && minor >= 0 && minor < 10;
  capability = possible ? static_cast<unsigned long long>(major) * 10 + static_cast<unsigned long long>(minor) : 0;
  return code;
}

}  // namespace

const std::array<std::string_view, FactReader::calls>& FactReader::functions() {
  static const auto names = [] {
    std::array<std::string_view, calls> all{};
    for (std::size_t i = 0; i < calls; ++i) all[i] = table[i].function;
    return all;
  }();
  return names;
}

FactReader::FactReader(const NvmlApi& api)
    : create_set_(reinterpret_cast<decltype(create_set_)>(api.find("nvmlEventSetCreate"))),
      free_set_(reinterpret_cast<decltype(free_set_)>(api.find("nvmlEventSetFree"))),
      register_(reinterpret_cast<decltype(register_)>(api.find("nvmlDeviceRegisterEvents"))),
      wait_(reinterpret_cast<decltype(wait_)>(api.find("nvmlEventSetWait_v2"))) {
  for (std::size_t i = 0; i < calls; ++i) found_[i] = api.find(std::string(table[i].function).c_str());
  const bool complete = create_set_ != nullptr && free_set_ != nullptr && register_ != nullptr && wait_ != nullptr;
  if (!complete || code_of(create_set_(&events_)) != NvmlCode::success) events_ = nullptr;
}

FactReader::~FactReader() {
  if (events_ != nullptr) free_set_(events_);
}

void FactReader::ask(Known& known, std::size_t index) const {
  const Call& call = table[index];
  Facts& facts = known.facts;
  facts.*call.figure = std::nullopt;
  if (call.form == Form::rows) facts.remapping_failed.reset();
  void* function = found_[index];
  if (function == nullptr || known.unsupported[index]) return;
  unsigned number = 0, corrected = 0, uncorrected = 0, failed = 0;
  unsigned long long count = 0;
  int code = 0;
  switch (call.form) {
    case Form::number: code = reinterpret_cast<Number>(function)(known.handle, &number); break;
    case Form::number_of: code = reinterpret_cast<NumberOf>(function)(known.handle, call.type, &number); break;
    case Form::wide: code = reinterpret_cast<Wide>(function)(known.handle, &count); break;
    case Form::count: code = reinterpret_cast<Count>(function)(known.handle, call.type, 0, &count); break;
    case Form::rows:
      code = reinterpret_cast<Rows>(function)(known.handle, &corrected, &uncorrected, &number, &failed);
      break;
    case Form::capability: code = read_capability(function, known.handle, count); break;
    case Form::links: code = count_links(function, known.handle, count); break;
  }
  known.unsupported[index] = is_final(code_of(code));
  if (code_of(code) != NvmlCode::success) return;
  facts.*call.figure = within(call.figure, count + number);
  if (call.form == Form::rows) facts.remapping_failed = within(&Facts::remapping_failed, failed);
}

// An event is told once, and then counts for as long as the reader lives.
void FactReader::take_events() {
  for (int taken = 0; events_ != nullptr && taken < most_events; ++taken) {
    Event event{};
    if (code_of(wait_(events_, &event, 0)) != NvmlCode::success) return;
    if ((event.type & critical_xid) == 0) continue;
    for (auto& [index, known] : known_) {
      if (known.handle != event.device) continue;
      known.facts.last_xid = static_cast<std::int64_t>(event.data & INT64_MAX);
      if (*known.facts.last_xid == fallen_off_the_bus) known.facts.falls = known.facts.falls.value_or(0) + 1;
    }
  }
}

const Facts& FactReader::last(int index) {
  take_events();
  return known_[index].facts;
}

const Facts& FactReader::read(NvmlDevice handle, int index, std::int64_t now_ns) {
  Known& known = known_[index];
  if (known.handle != handle) {
    known = {};
    known.handle = handle;
    if (events_ != nullptr) (void)register_(handle, critical_xid, events_);  // not supported: there are no events
  }
  if (known.read_ns != 0 && now_ns - known.read_ns < reading_ns) return known.facts;
  for (std::size_t call = 0; call < calls; ++call) ask(known, call);
  take_events();
  known.read_ns = now_ns;
  return known.facts;
}

}  // namespace sublet::gpu
