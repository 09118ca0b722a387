// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>

namespace sublet::log {
namespace {

// journald reads "<N>" at the start of a line as its priority (sd-daemon(3)).
bool for_journal() { return std::getenv("JOURNAL_STREAM") != nullptr; }

spdlog::level::level_enum level_of(Level level) {
  switch (level) {
    case Level::debug: return spdlog::level::debug;
    case Level::info: return spdlog::level::info;
    case Level::warn: return spdlog::level::warn;
    case Level::error: return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

void init(std::string_view name, bool verbose) {
  auto logger = std::make_shared<spdlog::logger>(std::string(name), std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_level(verbose ? spdlog::level::debug : spdlog::level::info);
  logger->set_pattern(for_journal() ? "%v" : "%Y-%m-%dT%H:%M:%S.%e %n %l: %v");
  logger->flush_on(spdlog::level::debug);
  spdlog::set_default_logger(std::move(logger));
}

void silence() { spdlog::set_level(spdlog::level::off); }

void write(Level level, std::string_view message) {
  static const bool journal = for_journal();
  static constexpr const char* prefix[] = {"<7>", "<6>", "<4>", "<3>"};
  if (journal) {
    spdlog::log(level_of(level), "{}{}", prefix[static_cast<int>(level)], message);
  } else {
    spdlog::log(level_of(level), "{}", message);
  }
}

}  // namespace sublet::log
