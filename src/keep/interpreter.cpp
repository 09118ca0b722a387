// SPDX-License-Identifier: Apache-2.0
#include "keep/interpreter.h"

#include "base/fd.h"
#include "base/text.h"

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace sublet::keep {
namespace {

constexpr int deepest = 5;             // scripts that the kernel follows as interpreters of scripts
constexpr std::size_t line_end = 256;  // bytes of the first line that the kernel reads
constexpr std::string_view blank = " \t";

// Reads at most `size` bytes; fewer if the file ends or cannot be read.
std::string read_at(int fd, std::size_t size, off_t offset) {
  std::string text(size, '\0');
  const ssize_t n = ::pread(fd, text.data(), size, offset);
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return text;
}

// Returns the dynamic linker that a 64-bit ELF file names, or "".
std::string dynamic_linker(int fd, std::string_view start) {
  Elf64_Ehdr header{};
  if (start.size() < sizeof header || !start.starts_with(ELFMAG)) return {};
  std::memcpy(&header, start.data(), sizeof header);
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_phentsize != sizeof(Elf64_Phdr)) return {};
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    const std::string raw = read_at(fd, sizeof segment, static_cast<off_t>(header.e_phoff + i * sizeof segment));
    if (raw.size() < sizeof segment) return {};
    std::memcpy(&segment, raw.data(), sizeof segment);
    if (segment.p_type != PT_INTERP || segment.p_filesz > 4096) continue;
    const std::string path = read_at(fd, segment.p_filesz, static_cast<off_t>(segment.p_offset));
    return path.substr(0, path.find('\0'));
  }
  return {};
}

ExecFailure failed(int errnum, std::string why) { return {errnum, std::move(why), {}}; }

ExecFailure crlf(const std::string& path, std::string_view wanted) {
  return {ENOENT,
          fmt::format("its first line ends in CRLF, so that its interpreter is '{}'", printable(wanted)),
          fmt::format("write its lines with LF ends: sed -i 's/\\r$//' {}", printable(path))};
}

std::optional<ExecFailure> failure_at(const std::string& path, int depth) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!file) return std::nullopt;
  const std::string start = read_at(file.get(), line_end, 0);
  if (!start.starts_with("#!")) {
    const std::string linker = dynamic_linker(file.get(), start);
    if (linker.empty() || ::access(linker.c_str(), F_OK) == 0) return std::nullopt;
    return failed(errno, fmt::format("its dynamic linker '{}': {}", printable(linker), std::strerror(errno)));
  }
  std::string_view line(start);
  line = line.substr(2, line.find('\n') - 2);
  line.remove_prefix(std::min(line.find_first_not_of(blank), line.size()));
  const std::string interpreter(line.substr(0, line.find_first_of(blank)));
  if (interpreter.empty()) return std::nullopt;  // exec hands such a file to the shell
  const bool returns = line.ends_with('\r');
  // `env` would look for a program with the CR in its name.
  if (returns && interpreter.ends_with("/env")) return crlf(path, line);
  if (const int errnum = executable(interpreter)) {
    if (returns && interpreter.ends_with('\r')) return crlf(path, interpreter);
    return failed(errnum, fmt::format("its interpreter '{}': {}", printable(interpreter), std::strerror(errnum)));
  }
  return depth < deepest ? failure_at(interpreter, depth + 1) : std::nullopt;
}

}  // namespace

int executable(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return errno;
  if (!S_ISREG(status.st_mode)) return EACCES;
  return ::access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

std::optional<ExecFailure> interpreter_failure(const std::string& path) { return failure_at(path, 0); }

}  // namespace sublet::keep
