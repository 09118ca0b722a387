// SPDX-License-Identifier: Apache-2.0
#include "meter/feed.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <utility>

namespace sublet::meter {

using nlohmann::json;

namespace {

constexpr std::size_t most_readings = 1000;  // that wait for events
constexpr const char* used = "used";
constexpr const char* not_read = "the devices were not read";

}  // namespace

Result<Feed> Feed::resume(const Mark& mark, Ms patience) {
  Feed feed(mark.life, patience);
  feed.after_ = mark.event;
  const json state = json::parse(mark.state, nullptr, false);
  if (state.is_null()) return feed;  // no time was known yet
  auto meter = Integrator::read(state);
  if (!meter) return meter.error();
  feed.meter_ = std::move(*meter);
  const bool stopped = state.value("stopped", true);  // unset by an earlier program, which may have been stopped
  feed.lose_readings(feed.meter_->now(), stopped ? "the daemon did not run" : "the daemon was killed, and did not run");
  return feed;
}

void Feed::replace_store(std::string life) {
  life_ = std::move(life);
  after_ = 0;
  lose_events("the store was replaced");
}

void Feed::lose_events(std::string why) {
  if (!lost_) lost_ = Lost{meter_ ? meter_->now() : 0, std::move(why)};
}

void Feed::lose_readings(Ms from, std::string why) {
  readings_.clear();
  if (!unread_) unread_ = Unread{read_at_.value_or(from), std::move(why)};
  if (read_at_) meter_->forget_reading(*read_at_);
  read_at_.reset();
}

// The last reading does not hold for ever.
void Feed::check_age(Ms at) {
  if (!read_at_ || at - *read_at_ <= patience_) return;
  meter_->forget_reading(*read_at_);
  unread_ = Unread{*read_at_, not_read};
  read_at_.reset();
}

void Feed::follow_devices(const Reading& reading) {
  for (auto device = unread_devices_.begin(); device != unread_devices_.end();) {
    if (reading.unread.contains(device->first)) {
      ++device;
      continue;
    }
    meter_->add_gap({device->second, reading.at, used, device->first + " was not read"});
    device = unread_devices_.erase(device);
  }
  for (const std::string& name : reading.unread) unread_devices_.try_emplace(name, read_at_.value_or(reading.at));
}

void Feed::give(const Reading& reading) {
  if (!meter_) meter_.emplace(reading.at);
  check_age(reading.at);
  if (unread_) {
    meter_->add_gap({unread_->since, reading.at, used, unread_->why});
    unread_.reset();
  }
  follow_devices(reading);
  meter_->take(reading);
  read_at_ = reading.at;
}

// Everything before this time is known.
void Feed::reach(Ms at) {
  while (!readings_.empty() && readings_.front().at <= at) {
    give(readings_.front());
    readings_.pop_front();
  }
  if (!meter_) meter_.emplace(at);
  check_age(at);
  if (!lost_ || lost_->forgotten) return;
  meter_->lose_events(lost_->from, at, lost_->why);
  lost_->from = meter_->now();
  lost_->forgotten = true;
  if (read_at_) unread_ = Unread{meter_->now(), lost_->why};
  read_at_.reset();
}

void Feed::event(std::uint64_t number, std::string_view type, std::string_view data) {
  if (number > after_ + 1) lose_events("the events of this time are no longer stored");
  after_ = number;
  std::visit(
      [&](const auto& fact) {
        if constexpr (!std::is_same_v<std::decay_t<decltype(fact)>, std::monostate>) {
          reach(fact.at);
          if (!read_at_ && !unread_) unread_ = Unread{fact.at, not_read};
          meter_->take(fact);
        }
      },
      parse_event(type, data));
}

void Feed::reading(Reading reading) {
  if (readings_.size() >= most_readings) lose_readings(readings_.front().at, "the daemon could not store its events");
  readings_.push_back(std::move(reading));
}

void Feed::caught_up(Ms now, const std::vector<Living>& living) {
  reach(now);
  if (lost_) {
    for (const Living& lease : living) meter_->adopt(lease);
    meter_->add_gap({lost_->from, now, "leased", lost_->why});
    lost_.reset();
  }
  meter_->pass_to(now);
}

// A gap that is not over is marked piece by piece. The file joins them.
void Feed::mark_open_gaps(Ms at) {
  if (lost_ && lost_->forgotten) meter_->add_gap({std::exchange(lost_->from, at), at, "leased", lost_->why});
  if (unread_ && unread_->since < at) meter_->add_gap({std::exchange(unread_->since, at), at, used, unread_->why});
  for (auto& [name, since] : unread_devices_)
    if (since < at) meter_->add_gap({std::exchange(since, at), at, used, name + " was not read"});
}

Feed::Flushed Feed::flush(bool last) {
  if (!meter_) return {{}, {life_, after_, "null", 0}};
  const Ms at = meter_->now();
  mark_open_gaps(at);
  Deltas deltas = meter_->flush(at);
  json state = meter_->write();
  state["stopped"] = last;
  return {std::move(deltas), {life_, after_, state.dump(), at}};
}

}  // namespace sublet::meter
