// SPDX-License-Identifier: Apache-2.0
#include "gpu/checkpoint_line.h"

#include "gpu/json_line.h"
#include "gpu/snapshot.h"

#include <array>
#include <optional>
#include <set>

namespace sublet::gpu {
namespace {

using std::chrono::milliseconds;

template <typename Value>
struct Name {
  Value value;
  std::string_view text;
};

constexpr std::array<Name<CheckpointCall>, 7> calls = {{{CheckpointCall::preflight, "preflight"},
                                                        {CheckpointCall::state, "state"},
                                                        {CheckpointCall::lock, "lock"},
                                                        {CheckpointCall::checkpoint, "checkpoint"},
                                                        {CheckpointCall::hold, "hold"},
                                                        {CheckpointCall::restore, "restore"},
                                                        {CheckpointCall::unlock, "unlock"}}};

constexpr std::array<Name<CheckpointRefusal>, 15> refusals = {
    {{CheckpointRefusal::none, ""},
     {CheckpointRefusal::gone, "gone"},
     {CheckpointRefusal::no_right, "no_right"},
     {CheckpointRefusal::not_dumpable, "not_dumpable"},
     {CheckpointRefusal::traced, "traced"},
     {CheckpointRefusal::stopped, "stopped"},
     {CheckpointRefusal::unsupported_driver, "unsupported_driver"},
     {CheckpointRefusal::no_driver, "no_driver"},
     {CheckpointRefusal::no_cuda, "no_cuda"},
     {CheckpointRefusal::wrong_state, "wrong_state"},
     {CheckpointRefusal::timeout, "timeout"},
     {CheckpointRefusal::not_parkable, "not_parkable"},
     {CheckpointRefusal::unvouched, "owner_must_vouch"},
     {CheckpointRefusal::no_room, "no_room"},
     {CheckpointRefusal::driver, "driver"}}};

constexpr std::array<Name<ParkState>, 5> states = {{{ParkState::running, "running"},
                                                    {ParkState::locked, "locked"},
                                                    {ParkState::checkpointed, "checkpointed"},
                                                    {ParkState::failed, "failed"},
                                                    {ParkState::unknown, "unknown"}}};

template <typename Names>
std::string_view text_of(const Names& names, decltype(names[0].value) value) {
  for (const auto& name : names) {
    if (name.value == value) return name.text;
  }
  return "unknown";
}

template <typename Names, typename Value>
void read_word(Reader& reader, const char* member, const Names& names, Value& value) {
  const std::string word = reader.text(member, 32);
  for (const auto& name : names) {
    if (name.text == word) {
      value = name.value;
      return;
    }
  }
  reader.fail(fmt::format("has an unknown {}", member));
}

constexpr std::int64_t max_timeout_ms = 3'600'000;
constexpr std::size_t max_uuid = 80;

Error malformed(std::string_view why) { return bad_request(fmt::format("not a checkpoint's line: {}", why)); }

std::string read_ballast(const Json& list, std::vector<BallastWish>& ballast) {
  std::set<std::string> cards;
  for (const Json& entry : list) {
    Reader reader(entry, "a ballast");
    BallastWish wish;
    wish.uuid = reader.text("device", max_uuid);
    wish.bytes = reader.bytes("bytes");
    if (entry.is_object() && entry.contains("margin")) wish.margin = reader.bytes("margin");
    if (reader.ok() && (wish.uuid.empty() || !cards.insert(wish.uuid).second)) reader.fail("names no card");
    if (!reader.ok()) return reader.problem();
    ballast.push_back(std::move(wish));
  }
  return {};
}

}  // namespace

std::string_view to_string(CheckpointCall call) { return text_of(calls, call); }
std::string_view to_string(CheckpointRefusal refusal) { return text_of(refusals, refusal); }
std::string_view to_string(ParkState state) { return text_of(states, state); }

std::string encode(const CheckpointCommand& command) {
  Json json{{"id", command.id}, {"do", to_string(command.call)}};
  if (command.call == CheckpointCall::lock) json["timeout_ms"] = command.timeout.count();
  if (command.call == CheckpointCall::preflight) {
    json["vouched"] = command.vouched;
    json["devices"] = command.devices;
  }
  for (const BallastWish& wish : command.ballast) {
    json["ballast"].push_back({{"device", fit(wish.uuid)}, {"bytes", wish.bytes.count}, {"margin", wish.margin.count}});
  }
  return to_line(json);
}

Result<CheckpointCommand> decode_checkpoint_command(std::string_view line) {
  const Json json = parse_line(line);
  if (json.is_discarded()) return malformed("no JSON, or nested too deep");
  Reader reader(json, "it");
  CheckpointCommand command;
  command.id = reader.natural("id");
  read_word(reader, "do", calls, command.call);
  if (reader.ok() && command.call == CheckpointCall::lock) {
    command.timeout = milliseconds(reader.integer("timeout_ms", 1, max_timeout_ms));
  }
  if (reader.ok() && command.call == CheckpointCall::preflight) {
    command.vouched = json.contains("vouched") && reader.boolean("vouched");
    if (json.contains("devices")) command.devices = static_cast<int>(reader.integer("devices", 1, max_devices));
  }
  const bool takes_ballast = command.call == CheckpointCall::hold || command.call == CheckpointCall::restore;
  if (reader.ok() && json.contains("ballast")) {
    if (!takes_ballast) reader.fail("takes no ballast");
    if (const Json* list = reader.array("ballast", max_devices)) {
      if (const std::string problem = read_ballast(*list, command.ballast); !problem.empty()) return malformed(problem);
    }
  }
  if (!reader.ok()) return malformed(reader.problem());
  return command;
}

std::string encode(const CheckpointReply& reply) {
  return to_line({{"id", reply.id},
                  {"do", to_string(reply.call)},
                  {"ok", reply.ok()},
                  {"reason", to_string(reply.refusal)},
                  {"detail", fit(reply.detail)},
                  {"code", reply.code},
                  {"name", fit(reply.name)},
                  {"final", reply.final},
                  {"state", to_string(reply.state)},
                  {"took_ns", reply.took.count()},
                  {"prepared_ns", reply.prepared.count()},
                  {"held_bytes", reply.held.count},
                  {"resident_bytes", reply.resident.count}});
}

Result<CheckpointReply> decode_checkpoint_reply(std::string_view line) {
  const Json json = parse_line(line);
  if (json.is_discarded()) return malformed("no JSON, or nested too deep");
  Reader reader(json, "it");
  CheckpointReply reply;
  reply.id = reader.natural("id");
  read_word(reader, "do", calls, reply.call);
  read_word(reader, "reason", refusals, reply.refusal);
  reply.detail = reader.text("detail");
  reply.code = static_cast<int>(reader.integer("code", 0, INT32_MAX));
  reply.name = reader.text("name", 100);
  reply.final = reader.boolean("final");
  read_word(reader, "state", states, reply.state);
  reply.took = Duration(reader.integer("took_ns", 0, INT64_MAX));
  reply.prepared = Duration(reader.integer("prepared_ns", 0, INT64_MAX));
  reply.held = reader.bytes("held_bytes");
  reply.resident = reader.bytes("resident_bytes");
  if (reader.ok() && reader.boolean("ok") != reply.ok()) reader.fail("is ok and has a reason, or neither");
  if (!reader.ok()) return malformed(reader.problem());
  return reply;
}

}  // namespace sublet::gpu
