// SPDX-License-Identifier: Apache-2.0
#include "guard/log_reader.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cerrno>
#include <string_view>

namespace sublet::guard {
namespace {

constexpr std::size_t block = 65536;
// The loop waits meanwhile, and the user decides about the size of the files. A keeper writes no longer lines.
constexpr off_t most_looked_back = 64 << 20;
constexpr off_t longest_line = 16384 + 64;
constexpr std::size_t time_length = 24;  // "2026-11-26T20:00:00.123Z"
constexpr int attempts = 3;

std::string read_at(const Fd& file, off_t offset, std::size_t size) {
  std::string text(size, '\0');
  ssize_t got = 0;
  do {
    got = ::pread(file.get(), text.data(), size, offset);
  } while (got < 0 && errno == EINTR);
  text.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
  return text;
}

// The time of a line; "" if the line has none.
std::string_view time_of(std::string_view line) {
  constexpr std::string_view form = "0000-00-00T00:00:00.000Z";
  if (line.size() <= form.size() || (line[form.size()] != ' ' && line[form.size()] != '\t')) return {};
  for (std::size_t i = 0; i < form.size(); ++i) {
    const bool is_digit = line[i] >= '0' && line[i] <= '9';
    if (form[i] == '0' ? !is_digit : line[i] != form[i]) return {};
  }
  return line.substr(0, time_length);
}

// Whether there is nothing but a hole. Each line has a time, so a log has no such block.
bool is_hole(std::string_view text) {
  return text.size() == block && text.find_first_not_of('\0') == std::string::npos;
}

timespec modified(const Fd& file) {
  struct stat info {};
  return ::fstat(file.get(), &info) == 0 ? info.st_mtim : timespec{};
}

bool is_before(const timespec& a, const timespec& b) {
  return a.tv_sec != b.tv_sec ? a.tv_sec < b.tv_sec : a.tv_nsec < b.tv_nsec;
}

Error refuse(const std::string& path, std::string_view what) {
  return denied(fmt::format("cannot read the log {}: {}", path, what), "remove the file; its keeper makes a new one");
}

}  // namespace

Result<LogReader> LogReader::open(LogQuery query) {
  LogReader reader(std::move(query));
  auto files = reader.open_files();
  if (!files) return files.error();
  reader.files_ = std::move(*files);
  if (reader.query_.since) reader.skip_before(*reader.query_.since);
  if (reader.query_.lines) reader.skip_to_last(*reader.query_.lines);
  return reader;
}

bool LogReader::is_mark(std::string_view line) {
  return line.size() > time_length && line[time_length] == '\t' && !time_of(line).empty();
}

std::string LogReader::next() {
  if (query_.marks) return next_piece();
  for (std::string piece = next_piece(); !piece.empty(); piece = next_piece())
    if (std::string text = without_marks(piece); !text.empty()) return text;
  return {};
}

// A line is held back until it is known whether it is a mark.
std::string LogReader::without_marks(const std::string& piece) {
  const std::string all = std::exchange(line_start_, {}) + piece;
  std::string text;
  for (std::size_t at = 0; at < all.size();) {
    const auto newline = all.find('\n', at);
    const std::size_t end = newline == std::string::npos ? all.size() : newline + 1;
    const std::string_view line = std::string_view(all).substr(at, end - at);
    if (!in_line_ && !in_mark_) {
      if (newline == std::string::npos && line.size() <= time_length) {
        line_start_ = line;
        break;
      }
      (is_mark(line) ? in_mark_ : in_line_) = true;
    }
    if (in_line_) text += line;
    if (newline != std::string::npos) in_line_ = in_mark_ = false;
    at = end;
  }
  return text;
}

std::string LogReader::next_piece() {
  if (files_.empty()) open_newer();
  bool has_skipped = false;
  while (!files_.empty()) {
    File& file = files_.front();
    // Asked first: after its rotation, nothing is added to a file.
    const bool last = files_.size() == 1, rotated = last && is_rotated(file);
    std::string text = read_at(file.fd, file.offset, block);
    const off_t begin = std::exchange(file.offset, file.offset + static_cast<off_t>(text.size()));
    // Written zeros, and a file of many holes, must not keep the loop: each call skips one hole at most.
    if (is_hole(text) && !std::exchange(has_skipped, true)) {
      struct stat info {};
      const off_t data = ::lseek(file.fd.get(), begin, SEEK_DATA);
      if (data < 0 && ::fstat(file.fd.get(), &info) != 0) return {};
      if (data == begin) return text;
      file.offset = data < 0 ? info.st_size : data;
      continue;
    }
    if (!text.empty()) return text;
    if (last && !rotated) {
      struct stat info {};
      if (::fstat(file.fd.get(), &info) != 0 || info.st_size >= file.offset) return {};
      file.offset = 0;  // the file was truncated
      continue;
    }
    if (rotated) {
      open_newer();
      if (files_.size() <= 1) return {};
    }
    files_.pop_front();
  }
  return {};
}

// --- opening

// `number` 0: the live file. A file without descriptor does not exist.
Result<LogReader::File> LogReader::open_file(int directory, int number) const {
  const std::string path = number == 0 ? query_.path : fmt::format("{}.{}", query_.path, number);
  const std::string name = path.substr(path.rfind('/') + 1);
  File file;
  file.fd = Fd(::openat(directory, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (!file.fd && errno == ENOENT) return file;
  if (!file.fd && errno == ELOOP) return refuse(path, "it is a symbolic link");
  if (!file.fd && errno == ENXIO) return refuse(path, "it is not a regular file");
  if (!file.fd) return from_errno("cannot read the log " + path, errno);
  struct stat info {};
  if (::fstat(file.fd.get(), &info) != 0) return from_errno("cannot read the log " + path, errno);
  if (!S_ISREG(info.st_mode)) return refuse(path, "it is not a regular file");
  if (info.st_uid != query_.uid) return refuse(path, fmt::format("it belongs to uid {}", info.st_uid));
  // It has no name if it is removed at this moment.
  if (info.st_nlink > 1) return refuse(path, fmt::format("it has {} names", info.st_nlink));
  file.device = info.st_dev;
  file.inode = info.st_ino;
  file.size = info.st_size;
  return file;
}

Result<LogReader::Files> LogReader::open_files() const {
  const std::string parent = query_.path.substr(0, query_.path.rfind('/'));
  const Fd directory(::open(parent.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory && errno == ENOENT) return Files{};
  if (!directory) return from_errno("cannot open the directory " + parent, errno);
  Files files;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    files.clear();
    bool has_live = false;
    for (int number = 0; number <= query_.keep; ++number) {
      auto file = open_file(directory.get(), number);
      if (!file) return file.error();
      // A rotation moves files to greater numbers, so a file may be seen twice.
      if (!file->fd || (!files.empty() && *file == files.front())) continue;
      has_live = has_live || number == 0;
      files.push_front(std::move(*file));
    }
    // If the live file was rotated meanwhile, the order may be wrong.
    const auto live = open_file(directory.get(), 0);
    if (!live) return live.error();
    if (live->fd ? has_live && *live == files.back() : !has_live) break;
  }
  return files;
}

// --- where to begin

// The offset of the first line of this time or later. The lines are in the order of their times.
off_t LogReader::find_since(const File& file, const std::string& time) {
  off_t low = 0, high = file.size;
  // The first line with a time in a block at `low` decides about the part before it.
  const auto first_line = [&](off_t at, std::string& its_time) -> off_t {
    const std::string text = read_at(file.fd, at, block);
    for (std::size_t start = at == 0 ? 0 : text.find('\n') + 1; start != 0 || at == 0;
         start = text.find('\n', start) + 1) {
      its_time = time_of(std::string_view(text).substr(start));
      if (!its_time.empty()) return at + static_cast<off_t>(start);
      if (text.find('\n', start) == std::string::npos) break;
    }
    return -1;
  };
  while (high - low > static_cast<off_t>(block)) {
    const off_t middle = low + (high - low) / 2;
    std::string its_time;
    const off_t line = first_line(middle, its_time);
    if (line < 0 || line >= high || its_time >= time) high = middle;
    else low = line;
  }
  // At most one block up to `high`, and the line that begins before it and ends after it.
  const std::string text = read_at(file.fd, low, 2 * block);
  for (std::size_t start = 0; start < text.size();) {
    const auto its_time = time_of(std::string_view(text).substr(start));
    if (!its_time.empty() && its_time >= time) return low + static_cast<off_t>(start);
    const auto newline = text.find('\n', start);
    if (newline == std::string::npos) break;
    start = newline + 1;
  }
  return file.size;
}

void LogReader::skip_before(Time since) {
  const std::string time = format_rfc3339(since);
  for (auto file = files_.rbegin(); file != files_.rend(); ++file) {
    file->offset = find_since(*file, time);
    if (file->offset == 0) continue;
    for (auto older = file + 1; older != files_.rend(); ++older) older->offset = older->size;
    return;
  }
}

void LogReader::skip_to_last(std::size_t lines) {
  std::size_t wanted = lines;
  const off_t most = std::min(most_looked_back, (static_cast<off_t>(lines) + 1) * longest_line + off_t{1 << 20});
  off_t looked = 0;
  bool enough = lines == 0;
  bool at_end = true;
  std::string newer;
  for (auto file = files_.rbegin(); file != files_.rend(); ++file) {
    off_t end = file->size;
    const off_t from = file->offset;
    if (enough) file->offset = end;
    // The beginning of a line. The last newline of a file is followed by the first line of the newer one.
    const auto line_at = [&](off_t at) {
      return at < file->size ? read_at(file->fd, at, time_length + 1) : std::exchange(newer, {});
    };
    while (!enough && end > from) {
      const off_t begin = std::max(from, end - static_cast<off_t>(block));
      const std::string text = read_at(file->fd, begin, static_cast<std::size_t>(end - begin));
      for (std::size_t i = text.size(); i > 0 && !enough; --i) {
        if (text[i - 1] != '\n') {
          at_end = false;
          continue;
        }
        if (std::exchange(at_end, false)) continue;  // the newline ends the log
        if (!query_.marks && is_mark(line_at(begin + static_cast<off_t>(i)))) continue;
        if (--wanted > 0) continue;
        file->offset = begin + static_cast<off_t>(i);
        enough = true;
      }
      looked += end - begin;
      end = begin;
      if (!enough && (looked >= most || is_hole(text))) {
        file->offset = is_hole(text) ? end + static_cast<off_t>(text.size()) : begin;
        enough = true;
      }
    }
    newer = read_at(file->fd, from, time_length + 1);
  }
}

// --- following

bool LogReader::is_rotated(const File& live) const {
  struct stat info {};
  if (::lstat(query_.path.c_str(), &info) != 0) return false;  // the new file comes with its first line
  return info.st_ino != live.inode || info.st_dev != live.device;
}

// Adds the files that are newer than the last one. A file that is refused ends the text until it is removed.
void LogReader::open_newer() {
  auto files = open_files();
  if (!files || files->empty()) return;
  const auto known = files_.empty() ? files->end() : std::find(files->begin(), files->end(), files_.back());
  if (known != files->end()) {
    files->erase(files->begin(), known + 1);
  } else if (!files_.empty()) {
    // The last file is gone. Files that were written before it were already read.
    const timespec last = modified(files_.back().fd);
    std::erase_if(*files, [&](const File& file) { return is_before(modified(file.fd), last); });
  }
  for (File& file : *files) files_.push_back(std::move(file));
}

}  // namespace sublet::guard
