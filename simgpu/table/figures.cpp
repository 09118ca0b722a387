// SPDX-License-Identifier: Apache-2.0
#include "figures.h"

#include <charconv>

#include "layout.h"

namespace simgpu {
namespace {

constexpr unsigned xid_bits = 32;  // of the word: the number of the last event; above: the count

layout::Word& word_of(layout::DeviceRecord& device, Figure figure) {
  return device.figures[static_cast<unsigned>(figure)];
}

}  // namespace

static_assert(static_cast<unsigned>(Figure::count_) <= max_figures);

const std::vector<FigureInfo>& figures() {
  static const auto* all = new std::vector<FigureInfo>{
      {Figure::temperature, "temperature", "degrees Celsius"},
      {Figure::power, "power", "milliwatts"},
      {Figure::sm_clock, "sm_clock", "MHz"},
      {Figure::memory_clock, "memory_clock", "MHz"},
      {Figure::pcie_generation, "pcie_generation", "of the link, in use"},
      {Figure::pcie_lanes, "pcie_lanes", "of the link, in use"},
      {Figure::nvlinks, "nvlinks", "NVLink links that are up"},
      {Figure::cc, "cc", "compute capability, 8.0"},
      {Figure::ecc_corrected, "ecc_corrected", "corrected errors of the memory"},
      {Figure::ecc_uncorrected, "ecc_uncorrected", "double-bit errors of the memory, which no program meets"},
      {Figure::retirement_pending, "retirement_pending", "1: pages are to be retired"},
      {Figure::remapping_pending, "remapping_pending", "1: rows are to be remapped"},
      {Figure::remapping_failed, "remapping_failed", "1: a row could not be remapped"},
      {Figure::xid, "xid", "a critical event of this number happens now"},
  };
  return *all;
}

std::optional<Figure> figure_from_key(std::string_view key) {
  for (const auto& info : figures())
    if (info.key == key) return info.figure;
  return std::nullopt;
}

std::optional<std::uint64_t> parse_figure(Figure figure, std::string_view text) {
  const auto number = [](std::string_view digits) -> std::optional<std::uint64_t> {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
    return value;
  };
  if (text == "unsupported" && figure != Figure::xid) return unsupported;
  const auto point = text.find('.');
  if (figure != Figure::cc) return point == text.npos ? number(text) : std::nullopt;
  const auto major = number(text.substr(0, point)), minor = number(point == text.npos ? "" : text.substr(point + 1));
  if (!major || !minor || *major == 0 || *major > 99 || *minor > 9) return std::nullopt;
  return *major * 10 + *minor;
}

void set_figure(layout::DeviceRecord& device, Figure figure, std::uint64_t value) {
  layout::Word& word = word_of(device, figure);
  if (figure == Figure::ecc_uncorrected && value != unsupported) {
    device.ecc_errors.store(value);
    word.store(0);
  } else if (figure == Figure::xid) {
    std::uint64_t before = word.load();
    while (!word.compare_exchange_weak(before, ((before >> xid_bits) + 1) << xid_bits | value)) {
    }
  } else {
    word.store(value == unsupported ? unsupported : value + 1);
  }
}

std::optional<std::uint64_t> figure_of(const layout::DeviceRecord& device, Figure figure, std::uint64_t otherwise) {
  const std::uint64_t word = device.figures[static_cast<unsigned>(figure)].load();
  if (word == unsupported) return std::nullopt;
  return word == 0 ? otherwise : word - 1;
}

Xids xids_of(const layout::DeviceRecord& device) {
  const std::uint64_t word = device.figures[static_cast<unsigned>(Figure::xid)].load();
  return {word >> xid_bits, word & 0xffffffff};
}

}  // namespace simgpu
