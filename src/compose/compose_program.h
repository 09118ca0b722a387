// SPDX-License-Identifier: Apache-2.0
// The Compose program: `docker compose`, `docker-compose` or `podman compose`. Only `config`, `up`,
// `pull`, `down` and `version` are run. Belongs to the loop thread.
#pragma once

#include "base/fd.h"
#include "compose/program.h"
#include "compose/variables.h"
#include "compose/worker.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include <string>
#include <vector>

namespace sublet::compose {

struct ComposeOptions {
  std::string program;  // stacks.compose: a path or a name; "": the first that works is taken
  std::string engine;   // URL of the engine
  std::string runtime;  // directory for the files that Compose is given; ours alone
};

class ComposeProgram {
 public:
  ComposeProgram(boost::asio::io_context& io, ComposeOptions options);

  // Looks for the program, unless it was found before. An error: there is none.
  boost::asio::awaitable<Status> find();
  const std::string& title() const { return title_; }  // "docker compose 2.29.1"; "": not found yet

  // Returns the resolved configuration of a stack.
  boost::asio::awaitable<Result<std::string>> config(const Description& stack, std::string env_file);
  // `overlay`: checked already; `env_file`: "" for none. An error Stale: Compose failed. Unavailable: Compose was
  // ended, or could not be started.
  boost::asio::awaitable<Status> up(Start start, std::string overlay, std::string env_file);
  boost::asio::awaitable<Status> pull(Start start, std::string env_file);
  boost::asio::awaitable<Status> down(Stop stop);

  // The variables that the program gets; those that it, or a script around it, sets by itself have no known value.
  Variables environment() const;
  // Whether the last `up` of the project was given this text.
  bool was_given(const std::string& project, const std::string& resolved) const;
  void end_all() { programs_.end_all(); }

 private:
  boost::asio::awaitable<Status> search();
  boost::asio::awaitable<Status> take(std::string path);
  boost::asio::awaitable<Result<Fd>> lock(std::string project, Duration timeout);
  boost::asio::awaitable<Result<Outcome>> run(std::vector<std::string> words, std::string directory, Duration timeout,
                                              std::size_t most_output, int inherited);
  std::string place(const std::string& project) const { return options_.runtime + "/" + project; }
  std::string major() const;  // first number of the version

  boost::asio::io_context& io_;
  ComposeOptions options_;
  Programs programs_;
  std::vector<std::string> environment_;
  std::string path_;        // of the program
  bool with_verb_ = false;  // the program's first word is "compose"
  std::string title_, version_;
  bool searching_ = false;
  boost::asio::steady_timer searched_;  // cancelled at the end of a search
};

}  // namespace sublet::compose
