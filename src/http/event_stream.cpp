// SPDX-License-Identifier: Apache-2.0
#include "http/event_stream.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include "base/json_text.h"
#include "engine/event_reader.h"

#include <algorithm>
#include <cerrno>

namespace sublet::http {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;
using Events = std::vector<engine::EventLog::Event>;

constexpr std::size_t page = 256;  // events read, and sent, at a time

// Least time between two events about readings, and the same if a decision was told meanwhile.
constexpr auto reading_interval = std::chrono::seconds(1);
constexpr auto soon_interval = std::chrono::milliseconds(250);

// Send buffer in the kernel, which doubles it. It is small, so that a last message to a slow reader still fits.
constexpr int send_buffer = 64 * 1024;

constexpr std::string_view head =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n"
    "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n";

class EventStream {
 public:
  EventStream(Stream& stream, engine::Engine& engine, Readings& readings, const Admission& admission,
              FollowEvents wanted, Duration write_time)
      : stream_(stream),
        engine_(engine),
        readings_(readings),
        admission_(admission),
        wanted_(std::move(wanted)),
        write_time_(write_time),
        life_(engine.commits().log().life()),
        after_(wanted_.after),
        known_(wanted_.after) {
    // It begins with the present figures: the reader asks for the tables after this.
    if (wanted_.readings) (void)look();
  }

  asio::awaitable<void> run() {
    boost::system::error_code ignored;
    stream_.socket().set_option(asio::socket_base::send_buffer_size(send_buffer), ignored);
    stream_.expires_never();
    out_ = head;
    end_frame(after_);
    if (!wanted_.gap.empty()) add_gap(wanted_.gap, wanted_.after_text);
    bool good = co_await flush();
    while (good) {
      if (const auto refusal = admission_.refusal()) {
        add_gap(refusal->body.at("detail").get<std::string>(), name_of(after_));
        co_await flush();
        co_return;
      }
      if (engine_.commits().log().life() !=
          life_) {  // the store was replaced while we read: nothing leads from here to there
        add_gap("the daemon has another store now; older events are lost", {});
        co_await flush();
        co_return;
      }
      if (after_ < engine_.commits().log().last() && co_await send_page()) {
        good = !ended_;
        continue;
      }
      if (!wanted_.follow) {
        if (after_ >= engine_.commits().log().last()) co_await say_end();
        co_return;
      }
      good = co_await wait();
    }
  }

 private:
  // Whether there was anything to send; while the store cannot be read there is nothing, and it is tried again later.
  asio::awaitable<bool> send_page() {
    const auto read = co_await engine::read_events(engine_, after_, page);
    if (!read) co_return false;
    const Events& events = *read;
    if (events.empty()) co_return false;
    if (events.front()->number != after_ + 1 && !wanted_.whole) {
      add_gap(behind_ ? "the reader was too slow: the next events are no longer stored"
                      : "the next events are no longer stored",
              name_of(after_));
      ended_ = behind_;  // a slow reader is dropped; a late reader continues with the stored rest
    }
    wanted_.whole = false;
    behind_ = true;
    for (const auto& event : events) add(*event);
    after_ = events.back()->number;
    decided_ = true;
    ended_ = !co_await flush() || ended_;
    co_return true;
  }

  // Told from a stream that was cut off, which ends as well.
  asio::awaitable<void> say_end() {
    out_ += fmt::format(": end\nid: {}\n\n", name_of(after_));
    end_frame(after_);
    co_await flush();
  }

  // Until there is news, with a sign of life from time to time; false when the peer has gone.
  asio::awaitable<bool> wait() {
    using namespace asio::experimental::awaitable_operators;
    const auto sign_due = Clock::now() + std::chrono::duration_cast<Clock::duration>(wanted_.heartbeat);
    while (Clock::now() < sign_due) {
      auto look = std::min(sign_due, admission_.look_again());
      if (wanted_.readings) look = std::min(look, reading_due());
      const auto result = co_await (engine_.commits().new_events(look) || peer_gone(stream_));
      if (result.index() == 1) co_return false;
      if (after_ < engine_.commits().log().last() || admission_.refusal()) co_return true;
      if (add_reading()) {
        const bool sent = co_await flush();
        co_return sent;
      }
    }
    // The number goes with it, so that a reader whose filter lets nothing through does not fall behind.
    out_ += fmt::format(": alive\nid: {}\n\n", name_of(after_));
    end_frame(after_);
    co_return co_await flush();
  }

  Clock::time_point reading_due() const {
    return looked_at_ + (decided_ ? Clock::duration(soon_interval) : Clock::duration(reading_interval));
  }

  // Returns the version before. All readers look together, since the next look of each is due after the last of all.
  Readings::Version look() {
    readings_.look(engine_, looked_at_);
    looked_at_ = readings_.looked_at();
    return std::exchange(figures_, readings_.version());
  }

  // Whether a figure has changed since the last look.
  bool add_reading() {
    if (!wanted_.readings || Clock::now() < reading_due()) return false;
    decided_ = false;
    const auto changes = readings_.changes_after(look());
    if (changes->empty()) return false;
    out_ += fmt::format("event: reading\ndata: {}\n\n", *changes);
    end_frame(known_);
    return true;
  }

  std::string name_of(std::uint64_t number) const { return fmt::format("{}-{}", life_, number); }

  void add(const store::LoggedEvent& event) {
    if (wanted_.lease && event.lease != wanted_.lease) return;
    if (!wanted_.types.empty() && !std::ranges::count(wanted_.types, event.type)) return;
    out_ += fmt::format("id: {}\nevent: {}\ndata: {}\n\n", name_of(event.number), event.type, event.data);
    end_frame(event.number);
  }

  // A reader that took `out_` up to here knows event `number`.
  void end_frame(std::uint64_t number) { frames_.push_back({out_.size(), number}); }

  // A gap has no number: a reader that reconnects with its last number gets the gap again.
  void add_gap(std::string_view why, const std::string& after) {
    JsonText data;
    data.begin_object().field("type", "gap").field("at", format_rfc3339(engine_.now()));
    data.field("text", why).key("after");
    if (after.empty()) data.value(nullptr);
    else data.value(after);
    data.end_object();
    out_ += fmt::format("event: gap\ndata: {}\n\n", data.text());
    end_frame(known_);
  }

  // True once all of it was taken; false where the peer has gone, or took nothing for so long that it is given up.
  asio::awaitable<bool> flush() {
    bool waited = false;  // in vain; a kernel calls a socket writable only when much of it was taken, so it is tried
    for (std::size_t sent = 0; sent < out_.size();) {
      const std::size_t more = send(std::string_view(out_).substr(sent));
      sent += more;
      if (more > 0) {
        waited = false;
      } else if (errno != EAGAIN) {
        co_return false;
      } else if (waited) {
        take_leave(sent);
        co_return false;
      } else {
        waited = !co_await writable();
      }
    }
    if (!frames_.empty()) known_ = frames_.back().number;
    out_.clear();
    frames_.clear();
    // Let other readers run: a fast reader would never pause.
    co_await asio::post(stream_.get_executor(), asio::use_awaitable);
    co_return true;
  }

  // As much as goes at once.
  std::size_t send(std::string_view bytes) {
    ssize_t size = -1;
    do {
      size = ::send(stream_.socket().native_handle(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    } while (size < 0 && errno == EINTR);
    return static_cast<std::size_t>(std::max<ssize_t>(size, 0));
  }

  // Waits for free buffer space or the end of the peer; false if the reader took nothing in that time.
  asio::awaitable<bool> writable() {
    using namespace asio::experimental::awaitable_operators;
    asio::steady_timer timer(stream_.get_executor());
    timer.expires_after(std::chrono::duration_cast<Clock::duration>(write_time_));
    const auto ready =
        co_await (stream_.socket().async_wait(asio::socket_base::wait_write, quiet) || timer.async_wait(quiet));
    co_return ready.index() == 0;
  }

  // It is cut off behind a whole event, and finds in the kernel's buffer, when it reads on, why there are no more.
  void take_leave(std::size_t sent) {
    std::size_t end = 0;
    for (const Frame& frame : frames_) {
      if (end >= sent) break;
      end = frame.end;
      known_ = frame.number;
    }
    std::string last = out_.substr(sent, end - sent);
    out_.clear();
    add_gap(fmt::format("the reader was too slow: it took nothing for {}; reconnect with the last id that it has",
                        format_duration(write_time_)),
            known_ == 0 ? std::string() : name_of(known_));
    last += out_;
    boost::system::error_code ignored;
    stream_.socket().set_option(asio::socket_base::send_buffer_size(2 * send_buffer), ignored);
    for (std::string_view rest = last; !rest.empty();) {
      const std::size_t more = send(rest);
      if (more == 0) return;
      rest.remove_prefix(more);
    }
  }

  Stream& stream_;
  engine::Engine& engine_;
  Readings& readings_;
  const Admission& admission_;
  FollowEvents wanted_;
  Duration write_time_;
  std::string life_;
  std::uint64_t after_;
  struct Frame {
    std::size_t end;       // in `out_`
    std::uint64_t number;  // of the last event before it
  };
  std::string out_;
  std::vector<Frame> frames_;
  std::uint64_t known_;            // the last event that was sent whole
  Readings::Version figures_ = 0;  // that the reader was told
  Clock::time_point looked_at_{};  // of the last look at the readings
  bool decided_ = false;           // events were sent since then
  bool behind_ = false;            // has been sent something: a gap from here on is its own doing
  bool ended_ = false;
};

}  // namespace

asio::awaitable<void> stream_events(Stream& stream, engine::Engine& engine, Readings& readings,
                                    const Admission& admission, FollowEvents wanted, Duration write_time) {
  EventStream events(stream, engine, readings, admission, std::move(wanted), write_time);
  co_await events.run();
}

}  // namespace sublet::http
