// SPDX-License-Identifier: Apache-2.0
#include "cli/watch.h"

#include "base/clock.h"
#include "cli/screen.h"
#include "keep/events.h"
#include "keep/signals.h"

#include <fmt/format.h>

#include <unistd.h>

namespace sublet::cli {
namespace {

class Watch {
 public:
  Watch(const Common& common, client::Client client, const LookOnce& look)
      : common_(common), client_(std::move(client)), look_(look) {}

  int go() {
    client_.set_interrupt(events_.interrupt());
    events_.watch(signals_.fd(), [this] { take_signals(); });
    const int code = loop();
    events_.forget(signals_.fd());
    if (screen_) {
      screen_->leave();
      if (code == kOk) fmt::print("{}", last_);  // what was seen last stays
    }
    std::fflush(stdout);
    if (ended_by_ != 0) signals_.die_of(ended_by_);
    return code;
  }

 private:
  const Common& common_;
  client::Client client_;
  const LookOnce& look_;
  keep::Signals signals_;
  keep::Events events_;
  std::optional<Screen> screen_;
  std::string last_;     // what was seen last
  std::string problem_;  // why there is nothing newer; "" if all is well
  int ended_by_ = 0;

  int loop() {
    const bool live = !common_.json && Screen::possible(STDOUT_FILENO);
    bool met = false;  // whether the daemon has ever answered
    for (;;) {
      const auto text = look_(client_);
      if (events_.cancelled()) return kOk;
      if (!text && !(met && text.error().passing())) {
        if (screen_) screen_->leave();
        return fail(common_, text.error());
      }
      problem_ = text ? std::string() : text.error().error.detail;
      if (text) last_ = *text;
      met = true;
      if (live && !screen_) screen_.emplace(STDOUT_FILENO);
      if (screen_) redraw();
      else if (!print_block(text.has_value())) return kOk;
      if (!client_.pause(*common_.watch)) return kOk;
    }
  }

  std::string clock() const { return format_rfc3339(SystemClock().now()).substr(0, 19) + "Z"; }

  void redraw() {
    const Look look = look_for(common_);
    std::string text =
        paint(fmt::format("sublet {}, every {}, {}", common_.verb, format_duration(*common_.watch), clock()),
              Paint::dim, look);
    if (!problem_.empty()) text += "  " + paint("! " + problem_ + "; retrying", Paint::red, look);
    screen_->draw(text + "\n\n" + last_);
  }

  // False if the reader is gone.
  bool print_block(bool fresh) {
    if (common_.json) {
      if (fresh) fmt::print("{}", last_);
    } else if (fresh) {
      fmt::print("== {}\n{}\n", clock(), last_);
    } else {
      fmt::print(
          "== {}\n"
          "! {}; retrying\n"
          "\n",
          clock(), problem_);
    }
    if (std::fflush(stdout) == 0) return true;
    if (errno == EPIPE) ended_by_ = SIGPIPE;
    return false;
  }

  void take_signals() {
    const auto leave = [this](const keep::Signal& signal) {
      ended_by_ = signal.number;
      events_.cancel();
    };
    const auto hide = [this] {
      if (screen_) screen_->leave();
    };
    const auto draw = [this] {
      if (screen_) redraw();
    };
    signals_.take({leave, hide, draw});
  }
};

}  // namespace

int watch(const Common& common, client::Client client, const LookOnce& look) {
  return Watch(common, std::move(client), look).go();
}

}  // namespace sublet::cli
