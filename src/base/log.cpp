// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include "base/journal.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace sublet::log {
namespace {

std::unique_ptr<Journal> journal;  // null: stderr is not the journal's

spdlog::level::level_enum level_of(Level level) {
  switch (level) {
    case Level::debug: return spdlog::level::debug;
    case Level::info: return spdlog::level::info;
    case Level::warn: return spdlog::level::warn;
    case Level::error: return spdlog::level::err;
  }
  return spdlog::level::info;
}

// The priorities of syslog(3).
int priority_of(Level level) {
  static constexpr int priorities[] = {7, 6, 4, 3};
  return priorities[static_cast<int>(level)];
}

std::vector<Journal::Field> fields_of(std::string_view message, const About& about, int priority) {
  std::vector<Journal::Field> fields{{"PRIORITY", std::to_string(priority)}};
  if (about.lease) fields.push_back({"SUBLET_LEASE", to_string(about.lease)});
  if (!about.program.empty()) fields.push_back({"SUBLET_PROGRAM", about.program});
  fields.push_back({"MESSAGE", std::string(message)});
  return fields;
}

}  // namespace

void init(std::string_view name, bool verbose) {
  journal = is_journal(2) ? std::make_unique<Journal>(name) : nullptr;
  auto logger = std::make_shared<spdlog::logger>(std::string(name), std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_level(verbose ? spdlog::level::debug : spdlog::level::info);
  logger->set_pattern(journal ? "%v" : "%Y-%m-%dT%H:%M:%S.%e %n %l: %v");
  logger->flush_on(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
}

void silence() { spdlog::set_level(spdlog::level::off); }

void write(Level level, std::string_view message, const About& about) {
  if (!spdlog::should_log(level_of(level))) return;
  std::string text;
  if (about.lease) text = to_string(about.lease) + ": ";
  if (!about.program.empty()) text += fmt::format("program {}: ", about.program);
  text += message;
  const int priority = priority_of(level);
  if (journal && journal->send(fields_of(text, about, priority))) return;
  // journald reads "<N>" at the start of a line as its priority (sd-daemon(3)).
  spdlog::log(level_of(level), "{}{}", journal ? fmt::format("<{}>", priority) : "", text);
}

}  // namespace sublet::log
