// SPDX-License-Identifier: Apache-2.0
#include "settings/rules_of.h"

namespace sublet::settings {

core::Rules rules_of(const Config& config, std::optional<Bytes> host_memory) {
  return {.claim_window = config.queue.claim_window,
          .aging_per_minute = config.queue.aging_per_minute,
          .reserve_after = config.queue.reserve_after,
          .linger = config.lease.linger,
          .reconnect = config.lease.reconnect,
          .grace = config.lease.grace,
          .headroom = config.device.headroom,
          .max_age = config.gpu.max_age,
          .ledger_limit = config.ledger.limit,
          .ledger_reserve = config.ledger.reserve,
          .host_memory = host_memory,
          .ledger_user_share = config.ledger.user_share,
          .ledger_max_pressure = config.ledger.max_pressure,
          .allow_swap = config.ledger.allow_swap,
          .verify_timeout = config.pause.verify_timeout,
          .automatic = config.pause.automatic,
          .slice_overhead = config.pause.slice_overhead,
          .min_residency =
              config.pause.min_residency > Duration{} ? std::optional(config.pause.min_residency) : std::nullopt,
          .cooldown = config.pause.cooldown,
          .spot_unused_after = config.pause.spot_unused_after,
          .yield_timeout = config.pause.yield_timeout,
          .orphan_after = config.pause.orphan_after,
          .forget_after = config.gpu.forget_after,
          .tenant_window = config.tenants.window,
          .tenant_slot = config.tenants.slot,
          .tenant_half_life =
              config.tenants.half_life > Duration{} ? std::optional(config.tenants.half_life) : std::nullopt,
          .tenant_byte_weight = config.tenants.byte_weight,
          .tenant_device_weight = config.tenants.device_weight,
          .placement = placement::parse_policy(config.placement.policy.word).value_or(placement::Policy::fragmentation),
          .safe_mode = {}};
}

}  // namespace sublet::settings
