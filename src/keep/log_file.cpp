// SPDX-License-Identifier: Apache-2.0
#include "keep/log_file.h"

#include "base/directory.h"
#include "base/text.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

namespace sublet::keep {
namespace {

constexpr std::size_t most_of_line = 16384;
constexpr std::size_t time_and_newline = 26;
constexpr auto retry_after = std::chrono::seconds(1);
constexpr std::int64_t measure_after = 1 << 20;  // bytes written until the directory is measured again
constexpr Bytes most_left_free = 128 * MiB;
constexpr std::int64_t part_left_free = 10;

struct RotatedFile {
  Time written;  // its last line
  std::string path;
  Bytes size;
};

// Whether it is a name like "program-7.log.1", of any program or session.
bool is_rotated_name(std::string_view name) {
  const auto dot = name.rfind('.');
  const bool is_ours = name.starts_with("program-") || name.starts_with("session-");
  if (!is_ours || dot == std::string_view::npos || dot + 1 == name.size()) return false;
  return name.substr(0, dot).ends_with(".log") &&
         name.find_first_not_of("0123456789", dot + 1) == std::string_view::npos;
}

// The files of all programs and sessions of the user, the oldest first.
std::vector<RotatedFile> rotated_files(const std::string& path) {
  std::vector<RotatedFile> files;
  const Directory directory = read_directory(Fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)));
  while (const dirent* entry = directory ? ::readdir(directory.get()) : nullptr) {
    struct stat info {};
    if (!is_rotated_name(entry->d_name)) continue;
    if (::fstatat(::dirfd(directory.get()), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    const Time written{info.st_mtim.tv_sec * 1'000'000'000LL + info.st_mtim.tv_nsec};
    if (S_ISREG(info.st_mode)) files.push_back({written, path + "/" + entry->d_name, Bytes{info.st_blocks * 512}});
  }
  std::ranges::sort(files, {}, &RotatedFile::written);
  return files;
}

}  // namespace

LogFile::LogFile(LogLimits limits) : limits_(std::move(limits)) {
  const std::int64_t fits = limits_.max_size.count - static_cast<std::int64_t>(time_and_newline);
  longest_line_ = static_cast<std::size_t>(std::clamp<std::int64_t>(fits, 1, most_of_line));
}

void LogFile::write(std::string_view bytes, Time now) {
  if (bytes.empty()) return;
  bool works = prepare(now);
  while (works && !bytes.empty()) {
    if (in_line_ && line_ >= longest_line_ && bytes[0] != '\n') end_line();
    const std::size_t space = longest_line_ - (in_line_ ? line_ : 0);
    const auto newline = bytes.substr(0, space + 1).find('\n');
    const auto piece = bytes.substr(0, newline == std::string_view::npos ? space : newline + 1);
    works = add(piece, now);
    if (works) bytes.remove_prefix(piece.size());
  }
  if (works) (void)flush();
  else lost_ += bytes.size();
}

void LogFile::mark(std::string_view text, Time now) {
  if (!prepare(now, true)) return;
  if (in_line_) end_line();
  const std::string line = printable(text.substr(0, longest_line_ - 1)) + "\n";
  if (!add(line, now, '\t')) return;
  pieces_.back().bytes = 0;  // no output of the program
  (void)flush();
}

void LogFile::finish(Time now) {
  if ((!in_line_ && lost_ == 0) || !prepare(now, true)) return;
  if (in_line_) end_line();
  (void)flush();
}

// Opens the file if it is not open, and reports lost bytes. False: nothing can be written now.
bool LogFile::prepare(Time now, bool at_once) {
  if (!problem_.empty() && !at_once && now >= tried_ && now - tried_ < retry_after) return false;
  tried_ = now;
  struct stat info {};
  if (file_ && (::fstat(file_.get(), &info) != 0 || info.st_nlink == 0)) file_.reset();  // somebody removed the file
  if (!file_ && !open()) return false;
  if (!has_room()) return false;
  if (lost_ > 0) {
    // The report is no output, so its bytes are not counted if it is lost.
    const std::string report = fmt::format("sublet: {} bytes of output were lost\n", lost_);
    if (!add(report, now)) return false;
    pieces_.back().bytes = 0;
    if (!flush()) return false;
    lost_ = 0;
  }
  problem_.clear();
  return true;
}

bool LogFile::open() {
  in_line_ = false;
  file_ = Fd(::open(limits_.path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0640));
  struct stat info {};
  if (!file_ || ::fstat(file_.get(), &info) != 0) return fail(std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return fail("it is not a regular file");
  if (info.st_uid != ::geteuid() || info.st_nlink != 1) return fail("it belongs to another user, or has another name");
  size_ = info.st_size;
  // The umask is the program's. The daemon reads the file by its group.
  if (size_ == 0) ::fchmod(file_.get(), 0640);
  char last = '\n';
  if (size_ > 0 && ::pread(file_.get(), &last, 1, size_ - 1) == 1 && last != '\n') {
    in_line_ = true;
    end_line();
  }
  return true;
}

bool LogFile::has_room() {
  struct statvfs disk {};
  if (::fstatvfs(file_.get(), &disk) == 0) {
    const auto bytes = [&disk](fsblkcnt_t blocks) {
      return Bytes{static_cast<std::int64_t>(blocks) * static_cast<std::int64_t>(disk.f_frsize)};
    };
    const Bytes usual = std::min(most_left_free, Bytes{bytes(disk.f_blocks).count / part_left_free});
    const Bytes least = limits_.leave_free.value_or(usual);
    if (bytes(disk.f_bavail) < least) return fail(fmt::format("less than {} are free on its disk", format_size(least)));
  }
  return is_below_user_max();
}

bool LogFile::is_below_user_max() {
  const bool was_below = problem_.empty();
  if (limits_.user_max <= Bytes{} || (was_below && unchecked_ > 0 && unchecked_ < measure_after)) return true;
  unchecked_ = 1;
  const std::string directory = limits_.path.substr(0, limits_.path.rfind('/'));
  Bytes taken = disk_use(directory);
  if (taken > limits_.user_max) {
    for (const RotatedFile& file : rotated_files(directory)) {
      if (taken <= limits_.user_max) break;
      if (::unlink(file.path.c_str()) == 0) taken -= file.size;
    }
  }
  return taken <= limits_.user_max || fail(fmt::format("the logs of its user take {}, and guard.log_user_max is {}",
                                                       format_size(taken), format_size(limits_.user_max)));
}

// Adds text that has no newline, or one at its end.
bool LogFile::add(std::string_view piece, Time now, char separator) {
  const bool ends = piece.back() == '\n';
  const std::size_t size = piece.size() + (ends ? 0 : 1);
  const auto exceeds = [&](std::size_t more) {
    return size_ + static_cast<std::int64_t>(size + more) > limits_.max_size.count;
  };
  if (in_line_ && exceeds(0)) end_line();
  if (!in_line_ && size_ > 0 && exceeds(time_and_newline - 1) && !rotate()) return false;
  const std::size_t before = pending_.size();
  if (!in_line_) {
    pending_ += format_rfc3339(now) + separator;
    line_ = 0;
  }
  pending_ += piece;
  line_ += piece.size();
  in_line_ = !ends;
  size_ += static_cast<std::int64_t>(pending_.size() - before);
  pieces_.push_back({pending_.size(), piece.size()});
  return true;
}

void LogFile::end_line() {
  pending_ += '\n';
  pieces_.push_back({pending_.size(), 0});
  ++size_;
  in_line_ = false;
}

bool LogFile::flush() {
  std::size_t done = 0;
  ssize_t size = 0;
  while (done < pending_.size()) {
    size = ::write(file_.get(), pending_.data() + done, pending_.size() - done);
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    done += static_cast<std::size_t>(size);
  }
  unchecked_ += static_cast<std::int64_t>(done);
  const int error = size < 0 ? errno : ENOSPC;
  const bool works = done == pending_.size();
  for (const Piece& piece : pieces_) lost_ += std::min(piece.bytes, piece.end - std::min(done, piece.end));
  pending_.clear();
  pieces_.clear();
  return works || fail(std::strerror(error));
}

bool LogFile::rotate() {
  if (!flush()) return false;
  file_.reset();
  for (int number = limits_.keep; number > 1; --number) {
    if (::rename(numbered(number - 1).c_str(), numbered(number).c_str()) != 0 && errno != ENOENT)
      return fail(std::strerror(errno));
  }
  const int failed =
      limits_.keep > 0 ? ::rename(limits_.path.c_str(), numbered(1).c_str()) : ::unlink(limits_.path.c_str());
  if (failed != 0 && errno != ENOENT) return fail(std::strerror(errno));
  return open();
}

bool LogFile::fail(const std::string& why) {
  problem_ = fmt::format("cannot write {}: {}", limits_.path, why);
  file_.reset();
  in_line_ = false;
  return false;
}

std::string LogFile::numbered(int number) const { return fmt::format("{}.{}", limits_.path, number); }

}  // namespace sublet::keep
