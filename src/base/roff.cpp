// SPDX-License-Identifier: Apache-2.0
#include "base/roff.h"

#include <fmt/format.h>

namespace sublet {
namespace {

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return out;
}

// Returns a line of text in which `backticks` are bold.
std::string inline_text(std::string_view text) {
  std::string flat(text);
  for (char& c : flat) {
    if (c == '\n') c = ' ';
  }
  std::string out;
  bool bold = false;
  std::string_view rest = flat;
  while (!rest.empty()) {
    const auto tick = rest.find('`');
    out += roff_escaped(rest.substr(0, tick));
    if (tick == std::string_view::npos) break;
    bold = !bold;
    out += bold ? "\\fB" : "\\fR";
    rest.remove_prefix(tick + 1);
  }
  // A line that begins with one of these characters is a macro.
  if (!out.empty() && (out[0] == '.' || out[0] == '\'')) out = "\\&" + out;
  return out;
}

}  // namespace

std::string roff_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') out += "\\e";
    else if (c == '-') out += "\\-";  // otherwise a hyphen is printed, which no shell accepts as a minus
    else if (c == '`') out += "\\(ga";
    else if (c == '~') out += "\\(ti";
    else if (c == '^') out += "\\(ha";
    else out += c;
  }
  return out;
}

ManPage::ManPage(std::string_view name, int section, std::string_view summary) {
  text_ =
      fmt::format(".TH \"{}\" {} \"\" \"Sublet {}\" \"Sublet\"\n", roff_escaped(upper(name)), section, SUBLET_VERSION);
  heading("NAME");
  text_ += fmt::format("{} \\- {}\n", roff_escaped(name), inline_text(summary));
}

void ManPage::part(std::string_view macro) {
  if (!std::exchange(fresh_, false)) text_ += fmt::format("{}\n", macro);
}

void ManPage::heading(std::string_view title) {
  text_ += fmt::format(".SH {}\n", roff_escaped(title));
  fresh_ = true;
}

void ManPage::paragraph(std::string_view text) {
  part(".PP");
  text_ += inline_text(text) + "\n";
}

void ManPage::line(std::string_view text) {
  part(".br");
  text_ += inline_text(text) + "\n";
}

void ManPage::item(std::string_view tag, std::string_view text) {
  fresh_ = false;
  text_ += ".TP\n" + inline_text(tag) + "\n" + inline_text(text) + "\n";
}

void ManPage::verbatim(std::string_view text) {
  part(".PP");
  text_ += ".nf\n";
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    std::string line = roff_escaped(text.substr(0, end));
    if (!line.empty() && (line[0] == '.' || line[0] == '\'')) line = "\\&" + line;
    text_ += line + "\n";
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  text_ += ".fi\n";
}

}  // namespace sublet
