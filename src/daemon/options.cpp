// SPDX-License-Identifier: Apache-2.0
#include "daemon/options.h"
#include "base/failpoints.h"
#include "lease/transitions.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <string_view>

namespace sublet::daemon {

std::string manual_page(const CLI::App& app);  // manual.cpp

int read_options(int argc, char** argv, Options& options) {
  CLI::App app{"subletd: leases the VRAM of this machine's GPUs", "subletd"};
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.set_version_flag("--version", "subletd " SUBLET_VERSION, "Print the version and exit");
  app.add_option("--dir", options.dir, "Private daemon: store, socket, configuration and simulated cards are in DIR")
      ->type_name("DIR");
  app.add_option("--sim", options.sim, "With --dir: simulated cards, such as 2x24GiB or 1x4GiB,NAME")
      ->type_name("CARDS");
  app.add_option("--config", options.config, "Configuration file, instead of the default one")->type_name("FILE");
  app.add_option("--ready-fd", options.ready_fd,
                 "File descriptor that gets 'ready' and is closed once the daemon serves")
      ->type_name("N");
  app.add_option("--failpoint", options.failpoint,
                 "For tests: end, or fail the store, at an exact moment; or log each moment")
      ->type_name("WHICH");
  app.add_flag_callback(
      "--list-failpoints",
      [] {
        for (const std::string& name : Failpoints::list(core::interruptible)) fmt::print("{}\n", name);
        throw CLI::Success();
      },
      "List the values of --failpoint");
  app.add_flag("--stacks-from-env", options.stacks_from_env,
               "Take the environment variables of gpu-service-manager, and serve its calls");
  app.add_flag("-v,--verbose", options.verbose, "Log more details");
  if (argc == 3 && std::string_view(argv[1]) == "__reference" && std::string_view(argv[2]) == "manual") {
    fmt::print("{}", manual_page(app));
    return -1;
  }
  try {
    app.parse(argc, argv);
    // An unset variable must not turn a private daemon into the system's daemon.
    if (app.count("--dir") > 0 && options.dir.empty())
      throw CLI::ValidationError("--dir", "the directory's name is empty");
    if (!options.sim.empty() && options.dir.empty()) throw CLI::ValidationError("--sim", "needs --dir DIR");
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success) == 0 ? -1 : 0;
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "subletd: {}\n  hint: subletd --help lists the options\n", error.what());
    return 2;
  }
  return 0;
}

}  // namespace sublet::daemon
