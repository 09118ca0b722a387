// SPDX-License-Identifier: Apache-2.0
// The fields of a lease by name: one table for each struct. The store writes and reads its documents by them
// (store/lease_document.h), and tests describe a lease by them. A field without a line here does not compile. A name is
// part of the stored form: a field that is renamed here needs a migration, a new one does not.
#pragma once

#include "lease/lease.h"

#include <tuple>
#include <utility>

namespace sublet::core {

template <typename Struct, typename Value>
struct Field {
  std::string_view name;
  Value Struct::*member;
};

template <typename Struct, typename Value>
constexpr Field<Struct, Value> field(std::string_view name, Value Struct::*member) {
  return {name, member};
}

// `all`: a tuple of fields, in the order of the struct.
template <typename Struct>
struct Fields;

template <typename Struct>
concept HasFields = requires {
  Fields<Struct>::all;
};

template <>
struct Fields<ProcessRef> {
  static constexpr std::tuple all{field("pid", &ProcessRef::pid), field("start_ticks", &ProcessRef::start_ticks)};
};

template <>
struct Fields<Booked> {
  static constexpr std::tuple all{field("process", &Booked::process), field("cgroup", &Booked::cgroup)};
};

template <>
struct Fields<Owner> {
  static constexpr std::tuple all{field("kind", &Owner::kind),     field("process", &Owner::process),
                                  field("keeper", &Owner::keeper), field("exit_record", &Owner::exit_record),
                                  field("inode", &Owner::inode),   field("cgroup", &Owner::cgroup)};
};

template <>
struct Fields<Upgrade> {
  static constexpr std::tuple all{field("vram_bytes", &Upgrade::vram), field("queued_at", &Upgrade::queued_at)};
};

template <>
struct Fields<Sized> {
  static constexpr std::tuple all{field("mean_bytes", &Sized::mean), field("until", &Sized::until),
                                  field("parked_ns", &Sized::parked)};
};

template <>
struct Fields<Cooperation> {
  static constexpr std::tuple all{field("way", &Cooperation::way),
                                  field("residue_bytes", &Cooperation::residue),
                                  field("process", &Cooperation::process),
                                  field("address", &Cooperation::address),
                                  field("pause_signal", &Cooperation::pause_signal),
                                  field("resume_signal", &Cooperation::resume_signal)};
};

template <>
struct Fields<Obstacle> {
  static constexpr std::tuple all{field("kind", &Obstacle::code), field("why", &Obstacle::detail),
                                  field("hint", &Obstacle::hint), field("until", &Obstacle::until)};
};

template <>
struct Fields<PreemptionRequest> {
  static constexpr std::tuple all{field("uid", &PreemptionRequest::uid),
                                  field("any_user", &PreemptionRequest::any_user),
                                  field("given_at", &PreemptionRequest::given_at)};
};

template <>
struct Fields<HeldWhenPaused> {
  static constexpr std::tuple all{field("all_bytes", &HeldWhenPaused::all), field("of", &HeldWhenPaused::of),
                                  field("kept_bytes", &HeldWhenPaused::kept),
                                  field("beside_bytes", &HeldWhenPaused::beside)};
};

template <>
struct Fields<Parking> {
  static constexpr std::tuple all{field("method", &Parking::method),
                                  field("since", &Parking::since),
                                  field("cause", &Parking::cause),
                                  field("host_bytes", &Parking::host_bytes),
                                  field("measured", &Parking::measured),
                                  field("residue_bytes", &Parking::residue),
                                  field("resume_requested", &Parking::resume_requested),
                                  field("then_stop", &Parking::then_stop),
                                  field("told", &Parking::told),
                                  field("locked_processes", &Parking::locked_processes),
                                  field("held_when_paused", &Parking::held_when_paused),
                                  field("orphaned_since", &Parking::orphaned_since)};
};

template <>
struct Fields<Lease> {
  static constexpr std::tuple all{field("id", &Lease::id),
                                  field("generation", &Lease::generation),
                                  field("state", &Lease::state),
                                  field("end_reason", &Lease::end_reason),
                                  field("uid", &Lease::uid),
                                  field("user", &Lease::user),
                                  field("tenant", &Lease::tenant),
                                  field("consumer", &Lease::consumer),
                                  field("nameless", &Lease::nameless),
                                  field("tag", &Lease::tag),
                                  field("command", &Lease::command),
                                  field("tier", &Lease::tier),
                                  field("priority", &Lease::priority),
                                  field("pausable", &Lease::pausable),
                                  field("vram_bytes", &Lease::vram),
                                  field("min_vram_bytes", &Lease::min_vram),
                                  field("ceiling_bytes", &Lease::ceiling),
                                  field("soft_limit_bytes", &Lease::soft_limit),
                                  field("share_percent", &Lease::share),
                                  field("device_count", &Lease::device_count),
                                  field("wanted_devices", &Lease::wanted_devices),
                                  field("ttl_ns", &Lease::ttl),
                                  field("owner", &Lease::owner),
                                  field("token", &Lease::token),
                                  field("asked_vram_bytes", &Lease::asked_vram),
                                  field("devices", &Lease::devices),
                                  field("resize", &Lease::resize),
                                  field("sized", &Lease::sized),
                                  field("parking", &Lease::parking),
                                  field("cooperation", &Lease::cooperation),
                                  field("unfit", &Lease::unfit),
                                  field("preemption_request", &Lease::preemption_request),
                                  field("had_process", &Lease::had_process),
                                  field("lapsed_offers", &Lease::lapsed_offers),
                                  field("exit_status", &Lease::exit_status),
                                  field("stop_requested", &Lease::stop_requested),
                                  field("created_at", &Lease::created_at),
                                  field("queued_at", &Lease::queued_at),
                                  field("held_back_at", &Lease::held_back_at),
                                  field("granted_at", &Lease::granted_at),
                                  field("resumed_at", &Lease::resumed_at),
                                  field("parked_for_ns", &Lease::parked_for),
                                  field("parked_at", &Lease::parked_at),
                                  field("offer_ends_at", &Lease::offer_ends_at),
                                  field("expires_at", &Lease::expires_at),
                                  field("unheld_since", &Lease::unheld_since),
                                  field("stop_at", &Lease::stop_at),
                                  field("ended_at", &Lease::ended_at),
                                  field("kept_until", &Lease::kept_until),
                                  field("peak_used_bytes", &Lease::peak_used),
                                  field("booked", &Lease::booked)};
};

namespace detail {

struct AnyValue {
  template <typename Value>
  operator Value&() const noexcept;
};

template <typename Struct, std::size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
  return requires { Struct{((void)I, AnyValue{})...}; };
}

// The number of members of an aggregate: the most values that it can be initialized with.
template <typename Struct, std::size_t count = 0>
constexpr std::size_t members() {
  if constexpr (takes<Struct>(std::make_index_sequence<count + 1>{})) return members<Struct, count + 1>();
  return count;
}

template <typename... Structs>
constexpr bool all_named() {
  return ((members<Structs>() == std::tuple_size_v<decltype(Fields<Structs>::all)>)&&...);
}

static_assert(all_named<ProcessRef, Booked, Owner, Upgrade, Sized, Cooperation, Obstacle, PreemptionRequest,
                        HeldWhenPaused, Parking, Lease>(),
              "a field of a lease is missing in its table above");

}  // namespace detail

}  // namespace sublet::core
