// SPDX-License-Identifier: Apache-2.0
// Questions that may hang, such as those to an account database behind the network: asked on a thread of their own, so
// that whoever asks is kept for a moment at most. What was answered once serves until it is answered anew.
#pragma once

#include "base/clock.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <utility>

namespace sublet {

// One thread that does what it is given in order, started when it is first needed. One caller at a time. Given up, it
// may still hang in something: then it is left alone, and ends with the process.
class AsideThread {
 public:
  AsideThread();
  ~AsideThread();
  AsideThread(const AsideThread&) = delete;
  AsideThread& operator=(const AsideThread&) = delete;

  // Where no thread can be had it is done at once.
  void run(std::function<void()> work);
  // Until all of it is done, or what is under way has taken `patience`: at once if it has already.
  void wait(std::int64_t patience_ns);

 private:
  struct Shared;
  static bool start(const std::shared_ptr<Shared>& shared);
  static void work_loop(const std::shared_ptr<Shared>& shared);
  std::shared_ptr<Shared> shared_;
};

// What the questions about each key were answered. Values of any type that can be copied; one caller at a time.
template <typename Key, typename Value>
class AskedAside {
 public:
  AskedAside(AsideThread& thread, std::int64_t patience_ns) : thread_(thread), patience_ns_(patience_ns) {}

  // The answer, which is asked for again where `fresh(answer, age in ns)` says no. The last one while there is no
  // newer; nothing where there never was one. `ask` runs on the other thread and may outlive this object.
  template <typename Fresh>
  std::optional<Value> get(const Key& key, const Fresh& fresh, std::function<Value()> ask) {
    if (known_.size() >= most_known && !known_.contains(key))
      std::erase_if(known_, [](const auto& entry) { return entry.second.asked == nullptr; });
    if (known_.size() >= most_known && !known_.contains(key)) return std::nullopt;  // all of them hang
    Known& known = known_[key];
    take(known);
    if (known.value && fresh(*known.value, monotonic_ns() - known.at_ns)) return known.value;
    if (known.asked == nullptr) {
      known.asked = std::make_shared<Question>();
      thread_.run([question = known.asked, ask = std::move(ask)] {
        try {
          question->answer = ask();
        } catch (const std::bad_alloc&) {  // no answer; it is asked again when this one is old
        }
        question->done = true;
      });
    }
    thread_.wait(patience_ns_);
    take(known);
    return known.value;
  }

 private:
  static constexpr std::size_t most_known = 4096;

  struct Question {
    Value answer{};
    std::atomic<bool> done = false;
  };
  struct Known {
    std::optional<Value> value;
    std::int64_t at_ns = 0;
    std::shared_ptr<Question> asked;  // under way
  };

  static void take(Known& known) {
    if (known.asked == nullptr || !known.asked->done) return;
    known.value = std::move(known.asked->answer);
    known.at_ns = monotonic_ns();
    known.asked.reset();
  }

  AsideThread& thread_;
  std::int64_t patience_ns_;
  std::map<Key, Known> known_;
};

}  // namespace sublet
