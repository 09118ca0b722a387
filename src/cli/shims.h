// SPDX-License-Identifier: Apache-2.0
// The shims on this machine, and what keeps them from working. Reads the file system and the environment, and asks the
// daemon. One thread.
#pragma once

#include "cli/checks.h"
#include "client/client.h"
#include "shim/place.h"
#include "shim/settings.h"

#include <string>
#include <vector>

namespace sublet::cli {

struct KnownShim {
  std::string path;                  // "/DIR/ffmpeg"
  Result<shim::Settings> settings;   // as the shim reads them
  std::string real = {};             // path of the real program; "": none was found
  std::vector<Check> problems = {};  // empty: the shim works

  std::string name() const { return shim::name_of(path); }
  std::string directory() const { return shim::directory_of(path); }
};

// The shims of the user, then those of the system, by name.
std::vector<KnownShim> known_shims();

// Whether `directory` is an entry of `path`, a value of PATH.
bool is_in_path(const std::string& directory, std::string_view path);

// The hint that names a line for a shell's profile, which puts the directory first.
std::string path_hint(const std::string& directory);

// Asks the daemon whether a device can ever hold the size. Returns its `TooLarge`; no other answer is an error, since a
// shim works without a daemon too. Blocks for 3 s at most.
Status check_size_of_shim(client::Client& client, const std::string& name, const shim::Settings& settings);

// The findings of `shim doctor`. `client`: null, or the daemon that is asked for the sizes.
Checks check_shims(client::Client* client);

std::string render_shims(const std::vector<KnownShim>& shims, const Common& common, const Look& look);
nlohmann::json shims_json(const std::vector<KnownShim>& shims);

}  // namespace sublet::cli
