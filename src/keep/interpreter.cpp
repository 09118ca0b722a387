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
#include <cstdlib>
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

// Returns 0 if the file can be executed, else the errno of exec. Does not look at its interpreter.
int executable(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return errno;
  if (!S_ISREG(status.st_mode)) return EACCES;
  return ::access(path.c_str(), X_OK) == 0 ? 0 : errno;
}

ExecFailure failed(int errnum, std::string why) { return {errnum, std::move(why), {}}; }

bool is_directory(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

// Why executable() returned `errnum` for this path.
ExecFailure not_executable(const std::string& path, int errnum) {
  if (is_directory(path)) return failed(errnum, "it is a directory");
  struct stat status {};
  const bool lacks_mode = ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && (status.st_mode & 0111) == 0;
  return {errnum, {}, lacks_mode ? fmt::format("if it is a program: chmod +x {}", printable(path)) : ""};
}

ExecFailure crlf(const std::string& path, std::string_view wanted) {
  return {ENOENT, fmt::format("its first line ends in CRLF, so that its interpreter is '{}'", printable(wanted)),
          fmt::format("write its lines with LF ends: sed -i 's/\\r$//' {}", printable(path))};
}

std::optional<ExecFailure> find_at(const std::string& program, int depth);

// The line `#!/usr/bin/env NAME` makes `env` look for NAME in PATH. The kernel passes on the rest of the line as one
// argument. Flags and variables are left to `env`.
std::optional<ExecFailure> failure_of_env(std::string_view argument, int depth) {
  argument.remove_prefix(std::min(argument.find_first_not_of(blank), argument.size()));
  argument = argument.substr(0, argument.find_last_not_of(blank) + 1);
  const bool left_to_env = argument.starts_with('-') || argument.find('=') != std::string_view::npos;
  if (argument.empty() || left_to_env) return std::nullopt;
  const std::string name(argument);
  const auto failure = find_at(name, depth);
  if (!failure) return std::nullopt;
  return ExecFailure{failure->errnum, fmt::format("its interpreter {}", failure->detail(name)), failure->hint};
}

// Returns the failure of exec because of the interpreter of the file.
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
    const std::string why = is_directory(interpreter) ? "it is a directory" : std::strerror(errnum);
    return failed(errnum, fmt::format("its interpreter '{}': {}", printable(interpreter), why));
  }
  if (depth == deepest) return std::nullopt;
  if (auto broken = failure_at(interpreter, depth + 1)) return broken;
  return interpreter.ends_with("/env") ? failure_of_env(line.substr(interpreter.size()), depth + 1) : std::nullopt;
}

std::optional<ExecFailure> find_at(const std::string& program, int depth) {
  if (program.empty()) return ExecFailure{ENOENT};
  if (program.find('/') != std::string::npos) {
    const int errnum = executable(program);
    return errnum == 0 ? failure_at(program, depth) : not_executable(program, errnum);
  }
  const char* variable = std::getenv("PATH");
  std::string_view path = variable != nullptr ? variable : "/bin:/usr/bin";
  int found = ENOENT;
  std::optional<ExecFailure> broken;
  for (;;) {
    const auto colon = path.find(':');
    const std::string_view dir = path.substr(0, colon);
    const std::string file = dir.empty() ? program : fmt::format("{}/{}", dir, program);
    const int errnum = executable(file);
    // Like exec: continues the search, and reports EACCES if nothing better is found.
    if (errnum == EACCES) found = EACCES;
    if (errnum == 0) {
      auto failed = failure_at(file, depth);
      if (!failed) return std::nullopt;
      if (!broken) broken = std::move(failed);
    }
    if (colon == std::string_view::npos) return broken ? broken : ExecFailure{found};
    path.remove_prefix(colon + 1);
  }
}

}  // namespace

std::optional<ExecFailure> find_program(const std::string& program) { return find_at(program, 0); }

}  // namespace sublet::keep
