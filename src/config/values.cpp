// SPDX-License-Identifier: Apache-2.0
#include "config/values.h"

#include "base/text.h"
#include "config/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace sublet::config {

std::string spelled(std::int64_t number) { return fmt::format("{}", number); }

std::string spelled(double number) {
  std::string text = fmt::format("{}", number);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string spelled(bool truth) { return truth ? "true" : "false"; }

std::string spelled(const std::string& path) { return path; }

std::string spelled(const LoopbackAddress& address) { return address_text(address); }

std::string spelled(const Choice& choice) { return choice.word; }

std::string spelled(const Name& name) { return name.text; }

std::string spelled(const Text& text) { return text.text; }

std::string spelled(const Url& url) {
  const std::string& text = url.text;
  const auto scheme = text.find("://");
  if (scheme == std::string::npos) return text.empty() ? "" : "***";
  // A password may have a '/' in it: everything before the last '@' is hidden.
  const auto at = text.rfind('@');
  const bool has_user = at != std::string::npos && at > scheme;
  const auto host = has_user ? at + 1 : scheme + 3;
  const auto end = std::min(text.find_first_of("/?#", host), text.size());
  return text.substr(0, scheme + 3) + (has_user ? "***@" : "") + text.substr(host, end - host) +
         (end + 1 < text.size() ? "/***" : "");
}

std::string spelled(const Secret& secret) { return secret.text.empty() ? "" : "***"; }

static std::string spelled_list(const std::vector<std::string>& list) {
  std::string out = "[";
  for (const std::string& each : list) out += (out.size() > 1 ? ", " : "") + in_quotes(each);
  return out + "]";
}

std::string spelled(const Accounts& accounts) { return spelled_list(accounts.names); }
std::string spelled(const Words& words) { return spelled_list(words.words); }

Status parse(std::string_view text, Duration& into) {
  const auto value = parse_duration(text);
  if (!value) return bad_request(value.error().detail, "write a duration such as \"90s\", \"5m\", \"1h30m\" or \"2d\"");
  into = *value;
  return {};
}

Status parse(std::string_view text, Bytes& into) {
  const auto value = parse_size(text, true);
  if (!value) return bad_request(value.error().detail, "write a size such as \"8GiB\", \"512MiB\" or \"8GB\"");
  into = *value;
  return {};
}

namespace {

template <typename Number>
Status parse_number(std::string_view text, Number& into, const char* what) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, into);
  if (error == std::errc() && rest == end) return {};
  return bad_request(fmt::format("'{}' is not {}", printable(text), what), "write digits");
}

}  // namespace

Status parse(std::string_view text, std::int64_t& into) { return parse_number(text, into, "a whole number"); }
Status parse(std::string_view text, double& into) { return parse_number(text, into, "a number"); }

Status parse(std::string_view text, bool& into) {
  if (text != "true" && text != "false")
    return bad_request(fmt::format("'{}' is neither true nor false", printable(text)), "write true or false");
  into = text == "true";
  return {};
}

Status parse(std::string_view text, std::string& into) {
  if (text.find('\0') != std::string_view::npos || (!text.empty() && text[0] != '/')) {
    return bad_request(fmt::format("'{}' is not an absolute path", printable(text)), "begin it with '/'");
  }
  into = text;
  return {};
}

Status parse(std::string_view text, LoopbackAddress& into) {
  into = {};
  if (text.empty()) return {};
  const auto colon = text.rfind(':');
  std::string_view host = text.substr(0, colon);
  std::int64_t port = 0;
  const bool number = colon != std::string_view::npos && parse_number(text.substr(colon + 1), port, "a port");
  if (!number || port < 1 || port > 65535) {
    return bad_request(fmt::format("'{}' is not an address with a port", printable(text)), "write \"127.0.0.1:4711\"");
  }
  if (host == "localhost") host = "127.0.0.1";
  if (host == "[::1]") host = "::1";
  if (host != "127.0.0.1" && host != "::1") {
    return bad_request(fmt::format("other machines can reach '{}'", printable(text)),
                       "use 127.0.0.1 or [::1]; reach other machines by an encrypted tunnel (ssh -L)");
  }
  into = {std::string(host), static_cast<std::uint16_t>(port)};
  return {};
}

Status parse(std::string_view text, Choice& into) {
  into.word = text;
  return {};
}

namespace {

Status check_printable(std::string_view text, std::size_t longest) {
  if (text.size() <= longest && is_printable(text)) return {};
  return bad_request(fmt::format("the text is longer than {} bytes, or has characters that cannot be printed", longest),
                     "write it shorter, on one line");
}

}  // namespace

Status parse(std::string_view text, Text& into) {
  if (const Status fits = check_printable(text, 256); !fits) return fits;
  into.text = text;
  return {};
}

Status parse(std::string_view text, Url& into) {
  if (const Status fits = check_printable(text, 2000); !fits) return fits;
  if (text.find(' ') != std::string_view::npos) return bad_request("a URL has no blanks", "write blanks as %20");
  into.text = text;
  return {};
}

Status parse(std::string_view text, Secret& into) {
  if (const Status fits = check_printable(text, 2000); !fits) return fits;
  into.text = text;
  return {};
}

Status parse(std::string_view text, Accounts& into) {
  into.names.clear();
  while (!text.empty() && text != "[]") {
    const auto end = std::min(text.find('\n'), text.size());
    const std::string_view name = text.substr(0, end);
    const auto is_bad = [](char c) { return c == ' ' || c == ',' || c == ':' || c == '@'; };
    const std::string_view bare = name.starts_with('@') ? name.substr(1) : name;
    if (const Status fits = check_printable(name, 256); !fits) return fits;
    if (bare.empty() || std::any_of(bare.begin(), bare.end(), is_bad))
      return bad_request(fmt::format("'{}' is not the name of an account", printable(name)),
                         "write users as \"slurm\" or \"990\", and groups as \"@agents\"");
    into.names.emplace_back(name);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return {};
}

Status parse(std::string_view text, Words& into) {
  constexpr std::string_view between = "\n[]\", ";
  into.words.clear();
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(between), text.size()));
    if (text.empty()) return {};
    const auto end = std::min(text.find_first_of(between), text.size());
    into.words.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

Status check_scheme(std::string_view url, std::string_view schemes) {
  if (url.empty()) return {};
  if (schemes.empty()) schemes = "http:// https://";
  std::string_view rest = schemes;
  while (!rest.empty()) {
    const std::string_view scheme = rest.substr(0, rest.find(' '));
    if (url.starts_with(scheme)) return {};
    rest.remove_prefix(std::min(scheme.size() + 1, rest.size()));
  }
  return bad_request(fmt::format("the URL does not begin with {}", list_words(schemes)), "");
}

std::string list_words(std::string_view words) {
  std::string out(words);
  for (std::size_t at = 0; (at = out.find(' ', at)) != std::string::npos; at += 2) out.replace(at, 1, ", ");
  return out;
}

bool has_word(std::string_view words, std::string_view word) {
  return !word.empty() && word.find(' ') == std::string_view::npos &&
         fmt::format(" {} ", words).find(fmt::format(" {} ", word)) != std::string::npos;
}

Status parse(std::string_view text, Name& into) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  };
  if (text.empty() || text.size() > 64 || !std::all_of(text.begin(), text.end(), fits)) {
    return bad_request(fmt::format("'{}' is not a name", printable(text)),
                       "a name has 1 to 64 of the letters a-z and A-Z, digits, '.', '_' and '-'");
  }
  into.text = text;
  return {};
}

std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    std::size_t length = 1;
    while (length < text.size() && (static_cast<unsigned char>(text[length]) & 0xc0) == 0x80) ++length;
    const std::string_view character = text.substr(0, length);
    if (character == "\"" || character == "\\") out += fmt::format("\\{}", character);
    else if (is_printable(character)) out += character;
    else out += fmt::format("\\u{:04x}", static_cast<unsigned>(decode_utf8(character)));
    text.remove_prefix(length);
  }
  return out + '"';
}

}  // namespace sublet::config
