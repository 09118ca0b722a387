// SPDX-License-Identifier: Apache-2.0
// The types of values in a file: their text, and reading it. Private to this folder. Pure functions.
#pragma once

#include "base/error.h"
#include "base/spelled.h"
#include "config/config.h"

#include <string>
#include <string_view>

namespace sublet::config {

// The value as the file has it, without quotes.
using sublet::spelled;
std::string spelled(std::int64_t number);
std::string spelled(double number);
std::string spelled(bool truth);
std::string spelled(const std::string& path);
std::string spelled(const LoopbackAddress& address);
std::string spelled(const Choice& choice);
std::string spelled(const Name& name);
std::string spelled(const Text& text);
std::string spelled(const Url& url);            // "https://example.org/…" without what must not be shown
std::string spelled(const Secret& secret);      // "***"
std::string spelled(const Accounts& accounts);  // ["slurm", "@agents"], with its quotes
std::string spelled(const Words& words);        // the same

// Reads a value. The errors have their own hints: a flag accepts a bare number, but a file's value needs its unit.
Status parse(std::string_view text, Duration& into);
Status parse(std::string_view text, Bytes& into);
Status parse(std::string_view text, std::int64_t& into);
Status parse(std::string_view text, double& into);
Status parse(std::string_view text, bool& into);
Status parse(std::string_view text, std::string& into);
Status parse(std::string_view text, LoopbackAddress& into);
Status parse(std::string_view text, Choice& into);
Status parse(std::string_view text, Name& into);
Status parse(std::string_view text, Text& into);
Status parse(std::string_view text, Url& into);
Status parse(std::string_view text, Secret& into);
Status parse(std::string_view text, Accounts& into);  // separated by newlines
Status parse(std::string_view text, Words& into);     // separated by newlines, or as spelled

// An error unless the URL is empty or begins with one of these schemes ("redis:// rediss://"; "": http and https).
Status check_scheme(std::string_view url, std::string_view schemes);

std::string list_words(std::string_view words);  // the words of a choice: "none, lease"
bool has_word(std::string_view words, std::string_view word);

// Returns the text in quotes, on one line and without characters that control a terminal, as TOML and JSON read it. The
// file's text is UTF-8.
std::string in_quotes(std::string_view text);

}  // namespace sublet::config
