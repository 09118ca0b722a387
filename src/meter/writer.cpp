// SPDX-License-Identifier: Apache-2.0
#include "meter/writer.h"

#include "base/clock.h"
#include "base/text.h"
#include "store/files.h"

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include <cerrno>
#include <cstdio>
#include <optional>
#include <utility>

namespace sublet::meter {

namespace asio = boost::asio;
using nlohmann::json;

// The part that belongs to the thread.
class Writer::Work {
 public:
  explicit Work(std::string path) : path_(std::move(path)) {}

  Result<Opened> open() {
    Opened opened;
    auto ready = ensure();
    if (!ready && damaged_) {
      const auto aside = set_aside();
      if (!aside) return aside.error();
      opened.set_aside = *aside;
      ready = ensure();
    }
    if (!ready) return ready.error();
    auto mark = file_->mark();
    if (!mark) return mark.error();
    opened.mark = std::move(*mark);
    return opened;
  }

  Put put(const Deltas& deltas, const Mark& mark, bool last) {
    if (last && !unwritten_.empty()) return {unavailable(unwritten_, {}), damaged_};
    auto done = ensure();
    if (done) done = file_->put(deltas, mark);
    unwritten_ = done ? "" : done.error().detail;
    if (done) {
      written_until_ = mark.at;
      return {};
    }
    if (file_) damaged_ = file_->database().corrupt();
    file_.reset();  // it is opened anew, and checked, before its next use
    return {done.error(), damaged_};
  }

  Result<json> report(Query query) {
    if (auto ready = ensure(); !ready) return ready.error();
    if (!unwritten_.empty())
      query.missing.push_back({written_until_, query.now, "leased", "not written: " + unwritten_});
    auto report = read_report(*file_, query);
    if (!report) file_.reset();  // it is checked before its next use
    return report;
  }

  Result<bool> prune(Ms now, Ms minutes_before, Ms hours_before, int slice) {
    if (auto ready = ensure(); !ready) return ready.error();
    return file_->prune(now, minutes_before, hours_before, slice);
  }

 private:
  Status ensure() {
    if (file_) return {};
    damaged_ = false;
    auto opened = File::open(path_, damaged_);
    if (!opened) return opened.error();
    file_ = std::move(*opened);
    return {};
  }

  Result<std::string> set_aside() {
    const std::string name = fmt::format("{}.damaged-{}", path_, compact_time(wall_time()));
    if (std::rename(path_.c_str(), name.c_str()) != 0)
      return from_errno(fmt::format("the damaged {} cannot be set aside", path_), errno);
    (void)std::rename((path_ + "-wal").c_str(), (name + "-wal").c_str());
    return name;
  }

  // "20261126T100000Z"
  static std::string compact_time(Time now) {
    std::string text = format_rfc3339(now).substr(0, 19) + "Z";
    std::erase_if(text, [](char c) { return c == '-' || c == ':'; });
    return text;
  }

  const std::string path_;
  std::unique_ptr<File> file_{};
  bool damaged_ = false;     // the file, when it was last opened or written
  std::string unwritten_{};  // why the last amounts are not written; "": they are
  Ms written_until_ = 0;
};

Writer::Writer(asio::any_io_executor loop, std::string path, bool has_thread)
    : loop_(std::move(loop)),
      work_(std::make_unique<Work>(std::move(path))),
      thread_(has_thread ? std::make_unique<asio::thread_pool>(1) : nullptr) {}

Writer::~Writer() { finish(); }

void Writer::finish() {
  if (thread_) thread_->join();
}

template <typename Answer, typename Task>
void Writer::post(Task task, std::function<void(Answer)> done) {
  auto work = [loop = loop_, task = std::move(task), done = std::move(done)]() mutable {
    asio::post(loop, [answer = task(), done = std::move(done)]() mutable { done(std::move(answer)); });
  };
  if (thread_) asio::post(*thread_, std::move(work));
  else work();
}

void Writer::open(std::function<void(Result<Opened>)> done) {
  post<Result<Opened>>([work = work_.get()] { return work->open(); }, std::move(done));
}

void Writer::put(std::shared_ptr<const Deltas> deltas, Mark mark, bool last, std::function<void(Put)> done) {
  post<Put>([work = work_.get(), deltas = std::move(deltas), mark = std::move(mark),
             last] { return work->put(*deltas, mark, last); },
            std::move(done));
}

void Writer::report(Query query, std::function<void(Result<json>)> done) {
  post<Result<json>>([work = work_.get(), query = std::move(query)] { return work->report(query); }, std::move(done));
}

void Writer::prune(Ms now, Ms minutes_before, Ms hours_before, int slice, std::function<void(Result<bool>)> done) {
  post<Result<bool>>([work = work_.get(), now, minutes_before, hours_before,
                      slice] { return work->prune(now, minutes_before, hours_before, slice); },
                     std::move(done));
}

}  // namespace sublet::meter
