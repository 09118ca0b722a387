// SPDX-License-Identifier: Apache-2.0
// Does the work on the meter's database on a thread of its own, in the order of the calls. All calls are on the loop
// thread, and so are the answers.
#pragma once

#include "meter/report.h"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/thread_pool.hpp>

#include <functional>
#include <memory>
#include <string>

namespace sublet::meter {

class Writer {
 public:
  // Without `has_thread`, the calls do the work themselves.
  Writer(boost::asio::any_io_executor loop, std::string path, bool has_thread = true);
  ~Writer();  // waits until the work is done; the answers are not given any more
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  struct Opened {
    Mark mark{};
    std::string set_aside{};  // the new name of a damaged file, which a new file replaces; "": the file is good
  };
  void open(std::function<void(Result<Opened>)> done);

  struct Put {
    Status status{};
    bool damaged = false;  // the file has to be opened anew, and its amounts are lost
  };
  // Adds the amounts. They must not change until `done` is called. `last`: a put that failed before it is not repeated,
  // so this one must fail too.
  void put(std::shared_ptr<const Deltas> deltas, Mark mark, bool last, std::function<void(Put)> done);
  // A report also tells that the last amounts could not be written.
  void report(Query query, std::function<void(Result<nlohmann::json>)> done);
  // See File::prune.
  void prune(Ms now, Ms minutes_before, Ms hours_before, int slice, std::function<void(Result<bool>)> done);
  // Waits until all work is done.
  void finish();

 private:
  class Work;
  template <typename Answer, typename Task>
  void post(Task task, std::function<void(Answer)> done);

  boost::asio::any_io_executor loop_;
  std::unique_ptr<Work> work_;
  std::unique_ptr<boost::asio::thread_pool> thread_;  // null: none
};

}  // namespace sublet::meter
