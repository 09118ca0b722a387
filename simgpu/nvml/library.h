// SPDX-License-Identifier: Apache-2.0
// The state of the simulated NVML in one process, and the steps of every query: is the library initialised, which card,
// which faults. The library only reads the table. Any thread may call it, also after main() has returned.
#pragma once

#include "abi.h"
#include "simgpu/table/table.h"

#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Declares an exported name of the interface; the rest of the library stays hidden.
#define SIMGPU_NVML extern "C" __attribute__((visibility("default"))) int

namespace simgpu::nvml {

// A card at one moment.
struct Snapshot {
  DeviceUse use;
  std::vector<ProcessUse> processes;  // processes that hold anything of this card
};

// Returns how busy a card and its processes were since the last query; at the first query, since each process began.
struct Activity {
  struct OfProcess {
    std::uint32_t pid;
    unsigned percent;
  };
  unsigned percent = 0;
  std::vector<OfProcess> processes;
};

class Library {
 public:
  static Library& instance();

  Return init();
  Return shutdown();
  // Returns the cards while the library is initialised, else null. A query keeps them if another thread shuts down.
  std::shared_ptr<Table> table();

  Handle handle_of(unsigned index) { return &places_[index]; }
  // Returns the card of a handle; -1 for an unknown handle.
  int index_of(Handle handle, const Table& table) const;

  Snapshot snapshot(Table& table, unsigned device);
  Activity activity(Table& table, unsigned device);
  // Returns the traffic of the link since the last query, in bytes/s. Direction 0 is to the card.
  std::uint64_t link_rate(Table& table, unsigned device, unsigned direction);

 private:
  using Clock = std::chrono::steady_clock;
  struct Seen {
    Clock::time_point at{};
    std::uint64_t count = 0;
    std::uint64_t rate = 0;  // the last answer, for queries that follow at once
  };
  static std::uint64_t rate_since(Seen& seen, std::uint64_t count, std::uint64_t first_rate);
  struct Place {
    char unused;
  };

  std::mutex mutex_;
  std::shared_ptr<Table> table_;
  unsigned references_ = 0;
  Place places_[max_places]{};
  std::map<unsigned, Snapshot> last_;                                // by card, for the fault nvml-late
  std::map<std::pair<unsigned, std::uint64_t>, Seen> process_busy_;  // by card, pid and start time
  std::map<std::pair<unsigned, unsigned>, Seen> link_;               // by card and direction
};

// ------------------------------------------------------------------------------------------- the way of a
// query

struct Card {
  Table& table;
  unsigned index;
  layout::DeviceRecord& device() const { return table.device(index); }
  bool is_slice() const { return index >= max_devices; }
  bool is_linked(LinkWay link, unsigned other) const;  // with the other card, in this way
  std::vector<unsigned> nvlink_peers() const;       // indices of the cards at the other ends of its links
};

// The number of its NVLink links that are up. 0: none, or the card does not support them.
Count nvlinks_up(const Card& card);

// Counts the call and meets the faults that stop any query; `device` is -1 for a query about no card.
Return enter(Table& table, std::string_view name, int device);

// Whether the function answers about a MIG slice too. The others answer NOT_SUPPORTED there.
bool takes_slices(std::string_view name);

// Answers a query about no particular card.
template <typename Answer>
Return ask(std::string_view name, Answer answer) {
  const auto table = Library::instance().table();
  if (!table) return uninitialized;
  if (const Return refused = enter(*table, name, -1); refused != success) return refused;
  return answer(*table);
}

// Answers a query about one card or MIG slice. A wrong handle and a lost card are refused before `answer` is called.
// The handle of a slice that was destroyed is a wrong handle.
template <typename Answer>
Return ask(std::string_view name, Handle handle, Answer answer) {
  const auto table = Library::instance().table();
  if (!table) return uninitialized;
  const int index = Library::instance().index_of(handle, *table);
  if (index < 0) return invalid_argument;
  if (const Return refused = enter(*table, name, index); refused != success) return refused;
  if (static_cast<unsigned>(index) >= max_devices && !takes_slices(name)) return not_supported;
  return answer(Card{*table, static_cast<unsigned>(index)});
}

template <typename Out, typename Value>
Return give(Out* out, Value value) {
  if (out == nullptr) return invalid_argument;
  *out = static_cast<Out>(value);
  return success;
}

// Answers a query about a figure that may be set, or not supported by the card.
template <typename Out>
Return give_figure(Out* out, const Card& card, Figure figure, std::uint64_t otherwise) {
  const auto value = figure_of(card.device(), figure, otherwise);
  return value ? give(out, *value) : not_supported;
}

// Answers a query whose answer is the same for every card.
template <typename Out, typename Value>
Return constant(std::string_view name, Handle handle, Out* out, Value value) {
  return ask(name, handle, [&](Card) { return give(out, value); });
}

// Writes text with its terminating zero into `length` characters.
Return give_text(char* out, unsigned length, std::string_view text);

// Writes a list into an array of *count entries. If they are too few, *count gets the needed number.
template <typename Entry>
Return give_list(Count* count, Entry* entries, const std::vector<Entry>& list) {
  if (count == nullptr || (*count != 0 && entries == nullptr)) return invalid_argument;
  const Count room = *count;
  *count = static_cast<Count>(list.size());
  if (room < list.size()) return insufficient_size;
  if (!list.empty()) std::memcpy(entries, list.data(), list.size() * sizeof(Entry));
  return success;
}

template <typename Struct>
bool has_version(const Struct* argument, Count counter) {
  return argument->version == version_of<Struct>(counter);
}

}  // namespace simgpu::nvml
