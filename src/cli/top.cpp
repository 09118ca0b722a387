// SPDX-License-Identifier: Apache-2.0
// `top`: the terminal's side. top_view.cpp makes the lines.
#include "cli/top_view.h"

#include "base/clock.h"
#include "cli/fetch.h"
#include "keep/events.h"
#include "keep/signals.h"

#define NCURSES_NOMACROS  // its functions as functions: the macros have names such as clear and move
#include <fmt/format.h>
#include <ncurses.h>

#include <poll.h>
#include <unistd.h>

#include <clocale>
#include <cstdlib>
#include <memory>

namespace sublet::cli {
namespace {

using namespace std::chrono_literals;

// The terminal in the hands of ncurses, and given back however this ends.
class Curses {
 public:
  // False if the terminal is of a kind that ncurses does not know.
  bool open(bool color) {
    screen_ = ::newterm(nullptr, stdout, stdin);
    if (screen_ == nullptr) return false;
    ::cbreak();
    ::noecho();
    ::keypad(stdscr, true);
    ::nodelay(stdscr, true);
    ::curs_set(0);
    color_ = color && ::has_colors() && ::start_color() == OK;
    if (!color_) return true;
    ::use_default_colors();
    for (const auto& [paint, number] : {std::pair{Paint::red, COLOR_RED},
                                        {Paint::green, COLOR_GREEN},
                                        {Paint::yellow, COLOR_YELLOW},
                                        {Paint::cyan, COLOR_CYAN}}) {
      ::init_pair(static_cast<short>(paint), static_cast<short>(number), -1);
    }
    return true;
  }
  ~Curses() {
    if (screen_ == nullptr) return;
    ::endwin();
    ::delscreen(screen_);
  }

  attr_t attribute(const TopLine& line) const {
    const attr_t reverse = line.selected ? A_REVERSE : A_NORMAL;
    switch (line.paint) {
      case Paint::none: return reverse;
      case Paint::bold: return reverse | A_BOLD;
      case Paint::dim: return reverse | A_DIM;
      default: return reverse | (color_ ? COLOR_PAIR(static_cast<int>(line.paint)) : A_NORMAL);
    }
  }

  void draw(const std::vector<TopLine>& lines) {
    ::erase();
    for (std::size_t i = 0; i < lines.size(); ++i) {
      ::attrset(static_cast<int>(attribute(lines[i])));
      ::mvaddstr(static_cast<int>(i), 0, lines[i].text.c_str());
    }
    ::attrset(A_NORMAL);
    ::refresh();
  }

 private:
  SCREEN* screen_ = nullptr;
  bool color_ = false;
};

class Top {
 public:
  Top(const Common& common, Duration every, client::Client client)
      : common_(common), every_(every), client_(std::move(client)) {}

  int go() {
    client_.set_interrupt(events_.interrupt());
    events_.watch(signals_.fd(), [this] { take_signals(); });
    const int code = loop();
    events_.forget(signals_.fd());
    curses_.reset();
    if (failure_) return fail(common_, *failure_);
    if (ended_by_ != 0) signals_.die_of(ended_by_);
    return code;
  }

 private:
  const Common& common_;
  Duration every_;
  client::Client client_;
  keep::Signals signals_;
  keep::Events events_;
  std::unique_ptr<Curses> curses_;
  TopData data_;
  Time past_due_{};  // when the past is asked for again
  TopState state_;
  std::optional<client::Failure> failure_;
  int ended_by_ = 0;
  bool end_ = false;

  int loop() {
    while (!end_) {
      look();
      if (failure_) return kFailed;
      if (end_) break;
      if (!curses_ && !open()) return kUsage;
      draw();
      // A key that asks for a new look ends the pause as one that ends the program does: `end_` tells them apart.
      client_.pause(every_);
      events_.resume();
    }
    if (curses_) events_.forget(STDIN_FILENO);
    return kOk;
  }

  bool open() {
    curses_ = std::make_unique<Curses>();
    if (!curses_->open(common_.color != Color::never &&
                       (common_.color == Color::always || wants_color(common_, stdout)))) {
      curses_.reset();
      const char* term = std::getenv("TERM");
      usage_error(fmt::format("top does not know the terminal type '{}'", visible(term == nullptr ? "" : term)),
                  "set TERM to the terminal's type, or use: sublet status --watch");
      return false;
    }
    events_.watch(STDIN_FILENO, [this] { take_keys(); });
    return true;
  }

  void look() {
    const auto status = client_.get("/v1/status");
    const auto leases = status ? ask_pages(client_, "/v1/leases", "leases") : client::Answer<Asked>(status.error());
    if (events_.cancelled()) {
      end_ = end_ || ended_by_ != 0;
      events_.resume();
      return;
    }
    if (!leases) {
      if (data_.status.is_null() || !leases.error().passing()) failure_ = leases.error();
      data_.problem = leases.error().error.detail;
      return;
    }
    const auto first = client::parse(*status);
    if (!first) failure_ = first.error();
    else data_ = {*first, leases->body, std::move(data_.past), {}, ask_also(client_, "/v1/tenants")};
    look_back();
  }

  // The past changes slowly, and a daemon without a meter has none.
  void look_back() {
    const Time now = look_for(common_).now;
    if (now < past_due_) return;
    past_due_ = now + 60s;
    data_.past = ask_also(client_, "/v1/report?since=1h&by=device&whole=true");
  }

  void draw() {
    Look look = look_for(common_);
    look.color = false;
    learn_devices(data_.status, look);
    curses_->draw(top_lines(data_, state_, window_of(STDOUT_FILENO), look));
  }

  void leave() {
    end_ = true;
    events_.cancel();
  }

  void take_keys() {
    int key = ::getch();
    if (key == ERR) {  // readable and nothing to read: the terminal has hung up
      pollfd input{STDIN_FILENO, POLLIN, 0};
      if (::poll(&input, 1, 0) > 0) leave();
      return;
    }
    for (; key != ERR; key = ::getch()) take_key(key);
    if (!end_) draw();
  }

  void take_key(int key) {
    if (std::exchange(state_.help, false)) return;
    const auto page = window_of(STDOUT_FILENO).rows / 2;
    switch (key) {
      case 'q': leave(); break;
      case 'h':
      case '?': state_.help = true; break;
      case 's': state_.sort = top_sorts[(static_cast<std::size_t>(state_.sort) + 1) % std::size(top_sorts)]; break;
      case ' ':
      case 'r': events_.cancel(); break;
      case 'j':
      case KEY_DOWN: ++state_.selected; break;
      case 'k':
      case KEY_UP: state_.selected -= std::min<std::size_t>(state_.selected, 1); break;
      case KEY_NPAGE: state_.selected += page; break;
      case KEY_PPAGE: state_.selected -= std::min(state_.selected, page); break;
      case KEY_HOME: state_.selected = 0; break;
      case KEY_END: state_.selected = SIZE_MAX; break;
      default: break;
    }
  }

  void take_signals() {
    const auto go = [this](const keep::Signal& signal) {
      ended_by_ = signal.number;
      leave();
    };
    const auto hide = [this] {
      if (curses_) ::endwin();
    };
    signals_.take({go, hide, [this] { resize(); }});
  }

  void resize() {
    if (!curses_) return;
    const Window window = window_of(STDOUT_FILENO);
    ::resizeterm(static_cast<int>(window.rows), static_cast<int>(window.columns));
    ::clearok(stdscr, true);
    draw();
  }
};

int top(const Common& common, Duration every) {
  if (::isatty(STDIN_FILENO) != 1 || !Screen::possible(STDOUT_FILENO)) {
    return usage_error("top needs a terminal that can move its cursor",
                       "for a pipe or a file, use: sublet status --watch");
  }
  if (every < 100ms || every > 24h)
    return usage_error("--every is not between 100ms and 24h", "for example --every 2s");
  auto client = connect(common);
  if (!client) return fail(client.error());
  std::setlocale(LC_CTYPE, "");  // NOLINT(concurrency-mt-unsafe): names that are not ASCII
  return Top(common, every, std::move(*client)).go();
}

}  // namespace

Action add_top(Command command, Common& common) {
  auto every = std::make_shared<std::optional<Duration>>();
  command.duration("--every", *every, "Time between two refreshes (2 s)");
  command.footer(
      "Keys: q quits, arrows or j and k move, s sorts by another column,\n"
      "h lists all keys.");
  return [&common, every] { return top(common, every->value_or(2s)); };
}

}  // namespace sublet::cli
