// SPDX-License-Identifier: Apache-2.0
// Flags and arguments of a verb. The objects are handles to the parser's tree (CLI11): copied freely, valid as long as
// the tree. Few files include the parser, because its headers compile slowly.
#pragma once

#include "base/error.h"
#include "base/moment.h"
#include "base/units.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace sublet::cli {

// The values that completion offers for an option.
struct Offer {
  enum class Of {
    nothing,
    words,
    files,
    directories,
    columns,
    verbs,
    leases,
    all_leases,
    programs,
    leases_and_programs,
    devices,
    consumers,
    tokens,
    shims,
    stacks,
    sessions,
    tenants
  };
  Of of = Of::nothing;
  std::vector<std::string> words = {};  // fixed words, besides the looked-up values
  bool list = false;                    // the option takes several values, separated by commas
};

// A flag or an argument. Each call returns the same option, so calls can be chained.
class Option {
 public:
  Option(CLI::Option* option, CLI::App* app) : option_(option), app_(app) {}

  Option required() const;
  Option excludes(Option other) const;                              // giving both is a usage error
  Option type(const char* name) const;                              // name of the value in --help: "SIZE"
  Option not_empty(const char* asks = "the value is empty") const;  // an empty value is a usage error
  Option between(int least, int most) const;                        // range of a number
  // Accepts only these words, or a list of them; completion offers the words.
  Option one_of(std::vector<std::string> words, bool list = false) const;
  Option offers(Offer offer) const;
  Option offers(Offer::Of of) const { return offers(Offer{of}); }
  Option show_default() const;                  // show the default in --help, reference and manual
  Option maybe_value(const char* shown) const;  // the value is optional; `shown`: the default in --help
  Option common() const;                        // list the option in the group "Common"
  Option hidden() const;                        // never list the option

 private:
  CLI::Option* option_;
  CLI::App* app_;
};

// A verb, or a verb below a verb. `names` are "-m,--vram", or "LEASE" for an argument. `into` keeps its value if the
// option is not given, and must outlive the parse. Wrong values are usage errors that name option and value.
class Command {
 public:
  explicit Command(CLI::App& app) : app_(&app) {}

  Option flag(const char* names, bool& into, const char* text) const;
  Option option(const char* names, std::string& into, const char* text) const;
  Option option(const char* names, std::vector<std::string>& into, const char* text) const;  // one or more values
  // One value each time that the flag is given.
  Option repeated(const char* names, std::vector<std::string>& into, const char* text) const;
  Option option(const char* names, int& into, const char* text) const;
  Option option(const char* names, std::optional<int>& into, const char* text) const;
  Option size(const char* names, std::optional<Bytes>& into, const char* text) const;  // type SIZE
  // As size(), or `word`, which sets `is_word`.
  Option size_or_word(const char* names, std::optional<Bytes>& into, const char* word, bool& is_word,
                      const char* text) const;
  Option duration(const char* names, std::optional<Duration>& into, const char* text) const;  // type DURATION
  // A time of at least one second, or "off" for zero.
  Option idle_time(const char* names, std::optional<Duration>& into, const char* text) const;
  Option ttl(const char* names, std::optional<Duration>& into, const char* text) const;  // at least one second
  // A point in time (base/moment.h), in the zone of the caller; type TIME.
  Option moment(const char* names, std::optional<Moment>& into, Tense tense, const char* text) const;
  // `take` gets the value and returns an error if the value is wrong; the message is "NAME: DETAIL".
  Option taken(const char* names, std::function<Status(const std::string&)> take, const char* text) const;

  Command verb(const char* name, const char* text) const;
  bool parsed() const;  // whether the verb was given
  void footer(const char* text) const;

 private:
  CLI::App* app_;
};

}  // namespace sublet::cli
