// SPDX-License-Identifier: Apache-2.0
// The lists of tables that a file may have.
#include "config/schema.h"

namespace sublet::config {
namespace {

std::vector<Config::Webhook>& webhooks(Config& c) { return c.events.webhooks; }
constexpr Field webhook_fields[] = {
    {"format", "json ntfy slack discord", "", "Form of the message.", field<&Config::Webhook::format>()},
    {"name", "", "", "Name of the target, for `sublet events --test-target`.", field<&Config::Webhook::name>(), true},
    {"secret", "", "", "Key of the signature in the header Sublet-Signature. Empty: none.",
     field<&Config::Webhook::secret>()},
    {"tier", "any critical interactive standard batch spot", "",
     "Send only events about leases of this tier; `any`: all events.", field<&Config::Webhook::tier>()},
    {"types", "", "",
     "Types of events to send, separated by commas: lease, device, warning, verdict, stack, session, daemon; "
     "`lease.granted` names a code or state, and `-` before a word leaves such events out. Empty: all.",
     field<&Config::Webhook::types>()},
    {"url", "", "", "Address that gets a POST for each event.", field<&Config::Webhook::url>(), true},
    {"user", "", "", "Send only events about leases of this user. Empty: all events.", field<&Config::Webhook::user>()},
};

std::vector<Config::IdleRule>& idle_rules(Config& c) { return c.idle.rules; }

constexpr Field idle_fields[] = {
    {"consumer", "", "", "The rule is for leases of this consumer. Empty: it names a tenant or a tier.",
     field<&Config::IdleRule::consumer>()},
    {"end", "", "", "As idle.end. Empty: another rule decides.", field<&Config::IdleRule::end>()},
    {"name", "", "", "Name of the rule, for messages.", field<&Config::IdleRule::name>(), true},
    {"pause", "", "", "As idle.pause. Empty: another rule decides.", field<&Config::IdleRule::pause>()},
    {"tenant", "", "", "The rule is for leases of this tenant. Empty: it names a consumer or a tier.",
     field<&Config::IdleRule::tenant>()},
    {"tier", "any critical interactive standard batch spot", "",
     "The rule is for leases of this tier. any: it names a consumer or a tenant.", field<&Config::IdleRule::tier>()},
    {"warn", "", "", "As idle.warn. Empty: another rule decides.", field<&Config::IdleRule::warn>()},
};

std::vector<Config::Tenant>& tenants_of_users(Config& c) { return c.tenants.users; }
std::vector<Config::Tenant>& tenants_of_groups(Config& c) { return c.tenants.groups; }

constexpr Field user_fields[] = {
    {"name", "1", "", "Name of the user.", field<&Config::Tenant::name>(), true},
    {"tenant", "", "", "Tenant of the user's leases.", field<&Config::Tenant::tenant>(), true},
};
constexpr Field group_fields[] = {
    {"name", "1", "", "Name of the group.", field<&Config::Tenant::name>(), true},
    {"tenant", "", "", "Tenant of its members' leases.", field<&Config::Tenant::tenant>(), true},
};

constexpr List list_table[] = {
    {"events.webhook", "A server that is told of events by HTTP.", "name", webhook_fields, rows<webhooks>()},
    {"idle.rule", "An idle rule for the leases of one tier, tenant or consumer.", "name", idle_fields,
     rows<idle_rules>()},
    {"tenants.group",
     "The tenant that leases of a Unix group's members are charged to. The first group that has the user decides.",
     "name", group_fields, rows<tenants_of_groups>()},
    {"tenants.user",
     "The tenant that a Unix user's leases are charged to. It goes before the tenants of the user's groups.", "name",
     user_fields, rows<tenants_of_users>()},
};

}  // namespace

std::span<const List> daemon_lists() { return list_table; }

}  // namespace sublet::config
