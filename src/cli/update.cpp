// SPDX-License-Identifier: Apache-2.0
#include "base/size_bounds.h"
#include "cli/program_verb.h"

#include <fmt/format.h>
#include <memory>

namespace sublet::cli {
namespace {

using nlohmann::json;

struct UpdateFlags {
  std::string tag;
  std::optional<Bytes> vram, memory, soft;
  bool no_memory = false, no_soft = false;
  std::string restart, tier;
  std::optional<int> priority;
};

// The fields of the update, where 0 removes a limit.
json fields_of(const UpdateFlags& flags) {
  json body = json::object();
  const auto limit = [&](const char* name, const std::optional<Bytes>& size, bool none) {
    if (size || none) body[name] = none ? 0 : size->count;
  };
  if (flags.vram) body["vram_bytes"] = flags.vram->count;
  limit("memory_bytes", flags.memory, flags.no_memory);
  limit("soft_bytes", flags.soft, flags.no_soft);
  if (!flags.restart.empty()) body["restart"] = flags.restart;
  if (!flags.tier.empty()) body["tier"] = flags.tier;
  if (flags.priority) body["priority"] = *flags.priority;
  return body;
}

std::string changed_text(const json& program, const UpdateFlags& flags) {
  std::string text;
  const auto add = [&](std::string_view name, const std::string& value) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
  };
  const auto limit = [&](const char* field) {
    return number_at(program, field) ? size_at_most(program, field) : std::string("none");
  };
  if (flags.vram) {
    const bool holds = number_at(program, "vram_bytes") == flags.vram->count;
    add("VRAM", format_size_down(*flags.vram) +
                    (holds ? "" : fmt::format(" (its lease has {} now)", size_at_most(program, "vram_bytes"))));
  }
  if (flags.memory || flags.no_memory) add("ceiling", limit("memory_bytes"));
  if (flags.soft || flags.no_soft) add("soft limit", limit("soft_bytes"));
  if (!flags.restart.empty()) add("restart", text_at(program, "restart"));
  if (!flags.tier.empty()) add("tier", text_at(program, "tier"));
  if (flags.priority) add("priority", fmt::format("{}", number_at(program, "priority").value_or(0)));
  const auto ceiling = number_at(program, "memory_bytes");
  if (ceiling && flags.memory && number_at(program, "used_bytes").value_or(0) > *ceiling)
    text += fmt::format("; it uses {} and is ended", size_at(program, "used_bytes"));
  return fmt::format("{}: {}", flags.tag, text);
}

int update(const Common& common, const UpdateFlags& flags) {
  const json body = fields_of(flags);
  if (body.empty()) return usage_error("update changes nothing", "give a flag, for example --memory 8GiB");
  return act_on_program(common, flags.tag, "/update", body,
                        [&](const json& program) { return changed_text(program, flags); });
}

}  // namespace

Action add_update(Command command, Common& common) {
  auto flags = std::make_shared<UpdateFlags>();
  add_program_tag(command, common, flags->tag);
  command.size("--vram", flags->vram, "Size of the lease on each device");
  command.size_or_word("--memory", flags->memory, "none", flags->no_memory, "Ceiling on each device, or none");
  command.size_or_word("--soft", flags->soft, "none", flags->no_soft, "Soft limit on each device, or none");
  command.option("--restart", flags->restart, "Start the program again: never, on-failure or always")
      .type("POLICY")
      .one_of({"never", "on-failure", "always"});
  command.option("--tier", flags->tier, "Tier: critical, interactive, standard, batch or spot")
      .type("NAME")
      .one_of({"interactive", "standard", "batch", "spot", "critical"});
  command.option("--priority", flags->priority, "Priority inside the tier, higher first")
      .type("N")
      .between(-1000, 1000);
  command.footer(
      "The changes hold at once and for each later start. A larger size may have to\n"
      "wait in the queue. A lease that is as large as its ceiling is resized with the\n"
      "ceiling; a waiting one queues again. A program that uses more than its new\n"
      "ceiling is ended.");
  return [&common, flags] { return update(common, *flags); };
}

}  // namespace sublet::cli
