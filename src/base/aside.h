// SPDX-License-Identifier: Apache-2.0
// Questions that may hang, or fail, such as those to an account database behind the network: asked on a thread of their
// own, so that whoever asks is kept for a moment at most. What was answered once serves until it is answered anew.
#pragma once

#include "base/clock.h"
#include "base/error.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
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
  // Until all of it is done, or what is under way has taken `patience`: at once if it has already, so that whoever asks
  // a lot is kept once by a question that hangs, and not by each that stands behind it.
  void wait(std::int64_t patience_ns);

 private:
  struct Shared;
  static bool start(const std::shared_ptr<Shared>& shared);
  static void work_loop(const std::shared_ptr<Shared>& shared);
  std::shared_ptr<Shared> shared_;
};

struct AsideOptions {
  std::int64_t patience_ns = 0;                                       // how long who asks is kept
  std::int64_t serves_ns = std::numeric_limits<std::int64_t>::max();  // how old an answer gets while there is no newer
  std::size_t most_known = 4096;
};

// What the questions about each key were answered. Values of any type that can be copied; one caller at a time.
template <typename Key, typename Value>
class AskedAside {
 public:
  AskedAside(AsideThread& thread, AsideOptions options) : thread_(thread), options_(options) {}

  // The answer, which is asked for again where `fresh(answer, age in ns)` says no. The last one while there is no
  // newer, be it that the question hangs or that it failed; nothing where there never was one, or it is too old. `ask`
  // runs on the other thread and may outlive this object.
  template <typename Fresh>
  std::optional<Value> get(const Key& key, const Fresh& fresh, std::function<Result<Value>()> ask) {
    Known* const known = place_of(key);
    if (known == nullptr) return std::nullopt;
    const std::int64_t now_ns = monotonic_ns();
    known->used_ns = now_ns;
    take(*known);
    if (known->value && fresh(*known->value, now_ns - known->at_ns)) return known->value;
    if (known->asked == nullptr && now_ns >= known->not_before_ns) {
      known->asked = std::make_shared<Question>();
      thread_.run([question = known->asked, ask = std::move(ask)] {
        try {
          question->answer = ask();
        } catch (const std::bad_alloc&) {  // it failed
        }
        question->done = true;
      });
    }
    if (known->asked != nullptr) thread_.wait(options_.patience_ns);
    take(*known);
    if (known->value && monotonic_ns() - known->at_ns > options_.serves_ns) return std::nullopt;
    return known->value;
  }

 private:
  // What fails may do so at once, and be wanted a thousand times a second.
  static constexpr std::int64_t pause_after_failure_ns = 1'000'000'000;

  struct Question {
    Result<Value> answer = Error{};
    std::atomic<bool> done = false;
  };
  struct Known {
    std::optional<Value> value;
    std::int64_t at_ns = 0;
    std::int64_t used_ns = 0;         // when it was wanted last
    std::int64_t not_before_ns = 0;   // asked again, after a failure
    std::shared_ptr<Question> asked;  // under way
  };

  // What nobody wanted for longest makes room. Nothing where all that is known hangs: it is not asked twice.
  Known* place_of(const Key& key) {
    if (const auto found = known_.find(key); found != known_.end()) return &found->second;
    if (known_.size() >= options_.most_known) {
      auto oldest = known_.end();
      for (auto at = known_.begin(); at != known_.end(); ++at) {
        if (at->second.asked != nullptr && !at->second.asked->done) continue;
        if (oldest == known_.end() || at->second.used_ns < oldest->second.used_ns) oldest = at;
      }
      if (oldest == known_.end()) return nullptr;
      known_.erase(oldest);
    }
    return &known_[key];
  }

  static void take(Known& known) {
    if (known.asked == nullptr || !known.asked->done) return;
    const std::shared_ptr<Question> asked = std::move(known.asked);
    if (asked->answer) {
      known.value = std::move(*asked->answer);
      known.at_ns = monotonic_ns();
    } else {
      known.not_before_ns = monotonic_ns() + pause_after_failure_ns;
    }
  }

  AsideThread& thread_;
  AsideOptions options_;
  std::map<Key, Known> known_;
};

}  // namespace sublet
