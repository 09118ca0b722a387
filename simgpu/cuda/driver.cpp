// SPDX-License-Identifier: Apache-2.0
#include "driver.h"

#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "checkpoint.h"
#include "context.h"
#include "work.h"

namespace simgpu {
namespace {

std::atomic<Driver*> instance{nullptr};
std::atomic<Table*> early_table{nullptr};

// A page that the kernel empties in a forked child, by any kind of fork: the driver is dead there.
std::atomic<std::uint32_t*> lifeline{nullptr};

bool tie_lifeline() {
  void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED || ::madvise(page, 4096, MADV_WIPEONFORK) != 0) return false;
  *static_cast<std::uint32_t*>(page) = 1;
  lifeline = static_cast<std::uint32_t*>(page);
  return true;
}

void say_once(const char* text) {
  static std::atomic<bool> said{false};
  if (!said.exchange(true)) std::fprintf(stderr, "simgpu: %s\n", text);
}

// The place that a program sees for a card or slice: a card in MIG mode shows its first slice, -1 if it has none.
int shown_place(const Table& table, unsigned place) {
  if (place >= max_devices || !table.in_mig_mode(place)) return static_cast<int>(place);
  const std::vector<unsigned> slices = table.slices_of(place);
  return slices.empty() ? -1 : static_cast<int>(slices.front());
}

// An entry of CUDA_VISIBLE_DEVICES; -1 ends the list.
int visible_card(const Table& table, std::string_view entry) {
  while (!entry.empty() && entry.front() == ' ') entry.remove_prefix(1);
  while (!entry.empty() && entry.back() == ' ') entry.remove_suffix(1);
  if (entry.starts_with("GPU-") || entry.starts_with("MIG-")) {
    int found = -1;
    for (const unsigned i : table.places()) {
      const std::string uuid = table.uuid_text(i);
      if (uuid.size() < entry.size() || ::strncasecmp(uuid.c_str(), entry.data(), entry.size()) != 0) continue;
      if (found >= 0) return -1;  // a prefix that matches two cards names none
      found = static_cast<int>(i);
    }
    return found < 0 ? -1 : shown_place(table, static_cast<unsigned>(found));
  }
  int index = -1;
  const auto read = std::from_chars(entry.data(), entry.data() + entry.size(), index);
  if (read.ec != std::errc{} || read.ptr != entry.data() + entry.size()) return -1;
  if (index < 0 || index >= static_cast<int>(table.device_count())) return -1;
  return shown_place(table, static_cast<unsigned>(index));
}

// A process sees one slice, and then no card.
std::vector<unsigned> one_slice_or(std::vector<unsigned> cards) {
  const auto slice = std::find_if(cards.begin(), cards.end(), [](unsigned place) { return place >= max_devices; });
  return slice == cards.end() ? cards : std::vector{*slice};
}

std::vector<unsigned> visible_cards(const Table& table) {
  std::vector<unsigned> cards;
  const char* variable = std::getenv("CUDA_VISIBLE_DEVICES");
  if (!variable) {
    for (unsigned i = 0; i < table.device_count(); ++i)
      if (const int place = shown_place(table, i); place >= 0) cards.push_back(static_cast<unsigned>(place));
    return one_slice_or(std::move(cards));
  }
  std::string_view rest = variable;
  while (!rest.empty()) {
    const auto comma = rest.find(',');
    const int card = visible_card(table, rest.substr(0, comma));
    if (card < 0) break;
    // A card that is named twice makes the whole list void.
    if (std::find(cards.begin(), cards.end(), static_cast<unsigned>(card)) != cards.end()) return {};
    cards.push_back(static_cast<unsigned>(card));
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  return one_slice_or(std::move(cards));
}

}  // namespace

thread_local bool in_host_function = false;

std::mutex& driver_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

Driver* driver_or_null() { return instance.load(std::memory_order_acquire); }

bool forked() {
  const std::uint32_t* page = lifeline.load(std::memory_order_acquire);
  return page && *static_cast<const volatile std::uint32_t*>(page) == 0;
}

Table* table_or_null() {
  if (Table* table = early_table.load(std::memory_order_acquire)) return table;
  static auto* mutex = new std::mutex;
  const std::lock_guard lock(*mutex);
  if (Table* table = early_table.load()) return table;
  std::string error;
  auto table = Table::open_from_environment(&error);
  if (!table) {
    say_once(("no simulated cards: " + error).c_str());
    return nullptr;
  }
  early_table.store(table.get(), std::memory_order_release);
  return table.release();
}

CUresult initialise(unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const Lock lock(driver_mutex());
  if (driver_or_null()) return CUDA_SUCCESS;
  Table* table = table_or_null();
  if (!table) return CUDA_ERROR_NO_DEVICE;
  auto made = std::make_unique<Driver>();
  made->cards = visible_cards(*table);
  if (made->cards.empty()) return CUDA_ERROR_NO_DEVICE;
  std::string error;
  made->process = table->join(&error);
  if (!made->process) {
    say_once(error.c_str());
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (!tie_lifeline()) return CUDA_ERROR_OPERATING_SYSTEM;
  made->table.reset(table);
  Driver* kept = made.release();
  kept->primary.resize(kept->cards.size());
  instance.store(kept, std::memory_order_release);
  for (std::size_t i = 0; i < kept->cards.size(); ++i) prepare_card(static_cast<int>(i));
  serve_checkpoints();
  return CUDA_SUCCESS;
}

void CallSite::count() {
  layout::Word* word = counter_.load(std::memory_order_acquire);
  Table* table = nullptr;
  if (!word && (table = table_or_null())) {
    word = &table->counter(name_);
    counter_.store(word, std::memory_order_release);
  }
  if (!word) return;
  word->fetch_add(1, std::memory_order_relaxed);
  if (const std::uint64_t cost = table_or_null()->get(Setting::call_ns)) sleep_until_ns(now_ns() + cost);
}

CUresult CallSite::enter_early() {
  if (forked()) return CUDA_ERROR_NOT_INITIALIZED;
  count();
  return CUDA_SUCCESS;
}

CUresult CallSite::enter() {
  if (forked()) return CUDA_ERROR_NOT_INITIALIZED;
  count();
  if (!driver_or_null()) return CUDA_ERROR_NOT_INITIALIZED;
  return in_host_function ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

CUresult CallSite::enter_inside() {
  const CUresult refused = enter();
  if (refused == CUDA_SUCCESS) enter_door();
  return refused;
}

}  // namespace simgpu
