// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

namespace sublet {
namespace {

constexpr std::size_t shown_characters = 200;  // of printable(), in bytes

// Returns the length of the valid UTF-8 sequence at the start of `text`, or 0 if there is none. An overlong form is not
// valid.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  std::size_t length = 0;
  if (first < 0x80) length = 1;
  else if (first >= 0xc2 && first < 0xe0) length = 2;
  else if (first >= 0xe0 && first < 0xf0) length = 3;
  else if (first >= 0xf0 && first < 0xf5) length = 4;
  if (length == 0 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  if (first == 0xe0 && byte(1) < 0xa0) return 0;
  if (first == 0xed && byte(1) >= 0xa0) return 0;  // surrogates
  if (first == 0xf0 && byte(1) < 0x90) return 0;
  if (first == 0xf4 && byte(1) >= 0x90) return 0;
  return length;
}

// Whether a valid character controls a terminal (control characters of ASCII and Latin-1), or reorders or breaks the
// line.
bool steers(char32_t c) {
  const auto between = [c](char32_t first, char32_t last) { return c >= first && c <= last; };
  return c < 0x20 || between(0x7f, 0x9f) || between(0x200e, 0x200f) || between(0x2028, 0x202e) ||
         between(0x2066, 0x2069) || c == 0xfeff;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

}  // namespace

char32_t decode_utf8(std::string_view sequence) {
  const auto first = static_cast<unsigned char>(sequence[0]);
  if (sequence.size() == 1) return first;
  char32_t c = first & (0xffU >> (sequence.size() + 1));
  for (const char next : sequence.substr(1)) c = (c << 6) | (static_cast<unsigned char>(next) & 0x3fU);
  return c;
}

std::string visible(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
      text.remove_prefix(1);
      continue;
    }
    const char32_t c = decode_utf8(text.substr(0, length));
    if (!steers(c)) out += text.substr(0, length);
    else
      out += c < 0x80 ? fmt::format("\\x{:02x}", static_cast<unsigned>(c))
                      : fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    text.remove_prefix(length);
  }
  return out;
}

std::string printable(std::string_view text) {
  // visible() shortens nothing, so four times the limit is always enough of a huge text.
  std::string out = visible(text.substr(0, 4 * shown_characters));
  if (out.size() <= shown_characters) return out;
  std::size_t cut = shown_characters;
  while (cut > 0 && (static_cast<unsigned char>(out[cut]) & 0xc0) == 0x80) --cut;
  out.resize(cut);
  return out + "…";
}

bool is_printable(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0 || steers(decode_utf8(text.substr(0, length)))) return false;
    text.remove_prefix(length);
  }
  return true;
}

bool is_label(std::string_view text) {
  constexpr std::ptrdiff_t most = 64;
  const auto characters =
      std::count_if(text.begin(), text.end(), [](unsigned char c) { return (c & 0xc0) != 0x80; });
  return !text.empty() && characters <= most && is_printable(text) && text.find('/') == std::string_view::npos;
}

std::string nearest(std::string_view word, std::span<const std::string_view> known) {
  if (word.size() > 64) return {};         // too long for a typing error
  std::size_t best = word.size() / 3 + 2;  // a greater distance means another word
  std::string found;
  for (const std::string_view candidate : known) {
    const bool extends = word.size() >= 3 && candidate.substr(0, word.size()) == word;
    const std::size_t distance = extends ? 1 : edit_distance(word, candidate);
    if (distance < best) {
      best = distance;
      found = candidate;
    }
  }
  return found;
}

std::string signal_name(int number) {
  const char* name = ::sigabbrev_np(number);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", number);
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> known) {
  const std::string found = nearest(word, known);
  return found.empty() ? std::string() : fmt::format(" – did you mean '{}'?", found);
}

}  // namespace sublet
