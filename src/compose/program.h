// SPDX-License-Identifier: Apache-2.0
// Runs a program to its end, on the loop, with bounded output and time. Belongs to the loop thread.
#pragma once

#include "base/error.h"
#include "base/units.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>

#include <sys/types.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

namespace sublet::compose {

struct Command {
  std::string program;                   // absolute path
  std::vector<std::string> arguments;    // without the program's name
  std::vector<std::string> environment;  // "NAME=VALUE", the whole of it
  std::string directory;                 // where it runs
  Duration timeout{};                    // then its process group is ended
  std::size_t most_output = 0;           // bytes of standard output; more ends the process group. 0: nothing is kept
  int inherited = -1;                    // a descriptor that the program keeps open as 3; -1: none
};

struct Outcome {
  int status = 0;          // as of waitpid(2)
  bool timed_out = false;  // ended by us
  bool flooded = false;    // ended by us: more output than allowed
  bool stopped = false;    // ended by Programs::end_all()
  std::string output;      // standard output, at most `most_output` bytes
  std::string last_lines;  // the end of the standard error, or of the standard output if that is empty
  bool succeeded() const { return status == 0 && !timed_out && !flooded && !stopped; }
  std::string text() const;  // "exit status 1", "no end within 10 s", …
};

// The programs that run now. Each has a session and a process group of its own, and /dev/null as standard input.
class Programs {
 public:
  explicit Programs(boost::asio::io_context& io);
  ~Programs();

  // An error: the program could not be started.
  boost::asio::awaitable<Result<Outcome>> run(Command command);
  // Kills all process groups. The calls of run() return.
  void end_all();
  bool empty() const;

 private:
  struct Running;
  boost::asio::io_context& io_;
  std::shared_ptr<std::set<Running*>> running_;
};

}  // namespace sublet::compose
