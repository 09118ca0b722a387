// SPDX-License-Identifier: Apache-2.0
#include "cli/output.h"

#include "base/clock.h"
#include "base/size_bounds.h"
#include "base/text.h"
#include "cli/screen.h"

#include <fmt/format.h>

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <ctime>

namespace sublet::cli {

namespace {

const nlohmann::json null_value;
const nlohmann::json no_list = nlohmann::json::array();

struct Range {
  char32_t first, last;
};

// Two columns wide: East Asian wide and full-width blocks, and emoji.
constexpr Range wide[] = {{0x1100, 0x115f},   {0x2e80, 0x303e},   {0x3041, 0x33ff},  {0x3400, 0x4dbf},
                          {0x4e00, 0x9fff},   {0xa000, 0xa4cf},   {0xac00, 0xd7a3},  {0xf900, 0xfaff},
                          {0xfe30, 0xfe4f},   {0xff00, 0xff60},   {0xffe0, 0xffe6},  {0x1f300, 0x1f64f},
                          {0x1f680, 0x1f6ff}, {0x1f900, 0x1f9ff}, {0x20000, 0x3fffd}};
// No column of their own: combining marks, joiners, variation selectors.
constexpr Range zero[] = {{0x0300, 0x036f}, {0x0483, 0x0489}, {0x0591, 0x05bd}, {0x0610, 0x061a},
                          {0x064b, 0x065f}, {0x1ab0, 0x1aff}, {0x1dc0, 0x1dff}, {0x200b, 0x200d},
                          {0x20d0, 0x20ff}, {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}, {0xe0100, 0xe01ef}};
bool in(char32_t c, std::span<const Range> ranges) {
  for (const Range& range : ranges) {
    if (c >= range.first && c <= range.last) return true;
  }
  return false;
}

std::size_t sequence_length(unsigned char first) { return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4; }

}  // namespace

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  while (!text.empty()) {
    const auto length = std::min(text.size(), sequence_length(static_cast<unsigned char>(text[0])));
    const char32_t c = decode_utf8(text.substr(0, length));
    width += in(c, wide) ? 2 : in(c, zero) ? 0 : 1;
    text.remove_prefix(length);
  }
  return width;
}

bool wants_color(const Common& common, std::FILE* stream) {
  if (common.color != Color::automatic) return common.color == Color::always;
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  if (no_color != nullptr && *no_color != '\0') return false;
  if (term == nullptr || std::string_view(term) == "dumb") return false;
  return ::isatty(::fileno(stream)) == 1;
}

Look look_for(const Common& common) {
  // A table that a terminal wraps cannot be read; a pipe gets all of it.
  const std::size_t width = ::isatty(STDOUT_FILENO) == 1 ? window_of(STDOUT_FILENO).columns : 0;
  return {wants_color(common, stdout), SystemClock().now(), width, {}};
}

std::string paint(std::string_view text, Paint color, const Look& look) {
  static constexpr const char* codes[] = {"0", "1", "2", "31", "32", "33", "36"};
  if (!look.color || color == Paint::none || text.empty()) return std::string(text);
  return fmt::format("\x1b[{}m{}\x1b[0m", codes[static_cast<int>(color)], text);
}

const nlohmann::json& member(const nlohmann::json& object, std::string_view key) {
  if (!object.is_object()) return null_value;
  const auto found = object.find(std::string(key));
  return found == object.end() ? null_value : *found;
}

const nlohmann::json& list_at(const nlohmann::json& object, std::string_view key) {
  const auto& value = member(object, key);
  return value.is_array() ? value : no_list;
}

std::string text_at(const nlohmann::json& object, std::string_view key) {
  const auto& value = member(object, key);
  return value.is_string() ? visible(value.get_ref<const std::string&>()) : std::string();
}

std::optional<std::int64_t> number_at(const nlohmann::json& object, std::string_view key) {
  const auto& value = member(object, key);
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > INT64_MAX) return std::nullopt;
  return value.is_number_integer() ? std::optional(value.get<std::int64_t>()) : std::nullopt;
}

bool flag_at(const nlohmann::json& object, std::string_view key) {
  const auto& value = member(object, key);
  return value.is_boolean() && value.get<bool>();
}

std::optional<Time> time_at(const nlohmann::json& object, std::string_view key) {
  const auto& value = member(object, key);
  return value.is_string() ? parse_rfc3339(value.get_ref<const std::string&>()) : std::nullopt;
}

std::string size_at(const nlohmann::json& object, std::string_view key) {
  const auto bytes = number_at(object, key);
  return bytes ? format_size(Bytes{*bytes}) : "-";
}

std::string size_at_most(const nlohmann::json& object, std::string_view key) {
  const auto bytes = number_at(object, key);
  return bytes ? format_size_down(Bytes{*bytes}) : "-";
}

std::string device_name(const std::string& uuid, const Look& look) {
  const auto found = look.device_names.find(uuid);
  if (found != look.device_names.end()) return found->second;
  return visible(uuid).substr(0, 12);
}

// "2026-11-21T16:00:05.123Z", the only form that the API speaks.
std::optional<Time> parse_rfc3339(std::string_view text) {
  if (text.size() < 20 || text.back() != 'Z' || text[4] != '-' || text[7] != '-' || text[10] != 'T')
    return std::nullopt;
  const auto field = [&](std::size_t at, std::size_t length) {
    int value = -1;
    const char* end = text.data() + at + length;
    const auto result = std::from_chars(text.data() + at, end, value);
    return result.ec == std::errc() && result.ptr == end ? value : -1;
  };
  std::tm parts{};
  parts.tm_year = field(0, 4) - 1900;
  parts.tm_mon = field(5, 2) - 1;
  parts.tm_mday = field(8, 2);
  parts.tm_hour = field(11, 2);
  parts.tm_min = field(14, 2);
  parts.tm_sec = field(17, 2);
  if (parts.tm_year < 0 || parts.tm_mon < 0 || parts.tm_mday < 1 || parts.tm_hour < 0 || parts.tm_min < 0 ||
      parts.tm_sec < 0 || parts.tm_year > 300) {
    return std::nullopt;
  }
  std::int64_t ns = ::timegm(&parts) * 1'000'000'000LL;
  if (text[19] == '.') {
    std::int64_t unit = 100'000'000;
    for (const char c : text.substr(20, text.size() - 21)) {
      if (c < '0' || c > '9') return std::nullopt;
      ns += (c - '0') * unit;
      unit /= 10;
    }
  }
  return Time{ns};
}

std::string compact(Duration duration) {
  const std::int64_t seconds = std::max<std::int64_t>(0, duration.count() / 1'000'000'000);
  if (seconds < 60) return fmt::format("{}s", seconds);
  if (seconds < 3600) return fmt::format("{}m", seconds / 60);
  if (seconds < 86400) return fmt::format("{}h", seconds / 3600);
  return fmt::format("{}d", seconds / 86400);
}

std::string coming(Duration left) {
  return left < std::chrono::seconds(1) ? "at once" : "in about " + format_duration(left);
}

}  // namespace sublet::cli
