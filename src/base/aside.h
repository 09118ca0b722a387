// SPDX-License-Identifier: Apache-2.0
// Asks questions that may hang or fail, such as a question to an account database behind a network, on a separate
// thread. The caller waits for a limited time. An answer is used until a newer answer is there.
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

// A thread that does the given work in order. The thread starts when it is first needed. One caller at a time. If the
// work hangs when the object is destroyed, the thread runs on and ends with the process.
class AsideThread {
 public:
  AsideThread();
  ~AsideThread();
  AsideThread(const AsideThread&) = delete;
  AsideThread& operator=(const AsideThread&) = delete;

  // Queues `work`. If no thread can be started, the caller's thread does the work at once.
  void run(std::function<void()> work);
  // Waits until all work is done, or until the current piece of work has run for `patience_ns`. Returns at once if that
  // piece has already run for longer. So a caller with many questions waits only once for a hanging question.
  void wait(std::int64_t patience_ns);

 private:
  struct Shared;
  static bool start(const std::shared_ptr<Shared>& shared);
  static void work_loop(const std::shared_ptr<Shared>& shared);
  std::shared_ptr<Shared> shared_;
};

struct AsideOptions {
  std::int64_t patience_ns = 0;  // longest wait of the caller
  // Greatest age of an answer while there is no newer answer.
  std::int64_t serves_ns = std::numeric_limits<std::int64_t>::max();
  std::size_t most_known = 4096;
};

// The answers to questions, by key. Values of any type that can be copied. One caller at a time.
template <typename Key, typename Value>
class AskedAside {
 public:
  AskedAside(AsideThread& thread, AsideOptions options) : thread_(thread), options_(options) {}

  // Returns the answer for `key`, and asks again if `fresh(answer, age in ns)` is false. Returns the last answer if the
  // question hangs or failed, and nothing if there was no answer or the answer is too old. `ask` runs on the other
  // thread and may outlive this object.
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
        } catch (const std::bad_alloc&) {  // the question failed
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
  // A question may fail at once, and may be wanted a thousand times a second.
  static constexpr std::int64_t pause_after_failure_ns = 1'000'000'000;

  struct Question {
    Result<Value> answer = Error{};
    std::atomic<bool> done = false;
  };
  struct Known {
    std::optional<Value> value;
    std::int64_t at_ns = 0;
    std::int64_t used_ns = 0;         // time of the last get()
    std::int64_t not_before_ns = 0;   // after a failure: time of the next try
    std::shared_ptr<Question> asked;  // the question in progress; null: none
  };

  // Returns the place of `key`. A full table drops the entry that was not used for the longest time. Null if every
  // question in the table hangs: the new question is not asked.
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
