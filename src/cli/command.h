// SPDX-License-Identifier: Apache-2.0
// How a verb declares its flags and arguments. Handles to the parser's tree (CLI11), copied freely, valid as long as
// the program's tree is. The parser itself is known to few files only: its headers cost seconds in each that includes
// them.
#pragma once

#include "base/error.h"
#include "base/units.h"

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace sublet::cli {

// What completion offers for a value.
struct Offer {
  enum class Of { nothing, words, files, directories, columns, verbs, leases, all_leases, devices, consumers, tokens };
  Of of = Of::nothing;
  std::vector<std::string> words = {};  // besides what is looked up
  bool list = false;                    // several of them, separated by commas
};

// A flag or an argument. Each call returns the same option, so that calls can be chained.
class Option {
 public:
  Option(CLI::Option* option, CLI::App* app) : option_(option), app_(app) {}

  Option required() const;
  Option excludes(Option other) const;                              // both given is a usage error
  Option type(const char* name) const;                              // what --help calls its value: "SIZE"
  Option not_empty(const char* asks = "the value is empty") const;  // "$UNSET" is a usage error
  Option between(int least, int most) const;                        // of a number
  // One of these words, or a list of them: another is a usage error, and completion offers them.
  Option one_of(std::vector<std::string> words, bool list = false) const;
  Option offers(Offer offer) const;
  Option offers(Offer::Of of) const { return offers(Offer{of}); }
  Option show_default() const;                  // in --help, the reference and the manual
  Option maybe_value(const char* shown) const;  // may stand without its value: what --help says it then means
  Option common() const;                        // listed among those that many verbs have
  Option hidden() const;                        // never listed

 private:
  CLI::Option* option_;
  CLI::App* app_;
};

// A verb, or a verb's verb. `names` are "-m,--vram", or "LEASE" for an argument. `into` keeps what it has when the
// option is not given, and must outlive the parse. Wrong values are usage errors that name the option and the value.
class Command {
 public:
  explicit Command(CLI::App& app) : app_(&app) {}

  Option flag(const char* names, bool& into, const char* text) const;
  Option option(const char* names, std::string& into, const char* text) const;
  Option option(const char* names, int& into, const char* text) const;
  Option option(const char* names, std::optional<int>& into, const char* text) const;
  Option size(const char* names, std::optional<Bytes>& into, const char* text) const;         // type SIZE
  Option duration(const char* names, std::optional<Duration>& into, const char* text) const;  // type DURATION
  Option ttl(const char* names, std::optional<Duration>& into, const char* text) const;       // a second at least
  // `take` gets the value, and returns what is wrong with it; the message is "NAME: DETAIL".
  Option taken(const char* names, std::function<Status(const std::string&)> take, const char* text) const;
  // Of a feature that this version has not: refused with that feature's name.
  void not_yet(std::initializer_list<const char*> flags, const char* feature) const;

  Command verb(const char* name, const char* text) const;
  bool parsed() const;  // whether it was given
  void footer(const char* text) const;

 private:
  CLI::App* app_;
};

}  // namespace sublet::cli
