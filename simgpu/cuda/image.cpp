// SPDX-License-Identifier: Apache-2.0
#include "image.h"

#include <elf.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>

namespace simgpu {
namespace {

constexpr std::uint32_t fat_binary_magic = 0xBA55ED50;
constexpr std::uint32_t wrapper_magic = 0x466243B1;

bool word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%'; }

// Cuts PTX into words, numbers, directives (".entry") and single characters, without comments and strings.
class Tokens {
 public:
  explicit Tokens(std::string_view text) : text_(text) {}
  std::string_view next() {
    skip();
    if (at_ >= text_.size()) return {};
    const std::size_t begin = at_;
    if (text_[at_] == '"') {
      while (++at_ < text_.size() && text_[at_] != '"') {
      }
      at_ = std::min(at_ + 1, text_.size());
      return text_.substr(begin, at_ - begin);
    }
    if (word_char(text_[at_]) || text_[at_] == '.') {
      // A version such as 8.0 is one token, and so is a directive.
      while (++at_ < text_.size() &&
             (word_char(text_[at_]) || (text_[at_] == '.' && std::isdigit(static_cast<unsigned char>(text_[begin]))))) {
      }
      return text_.substr(begin, at_ - begin);
    }
    ++at_;
    return text_.substr(begin, 1);
  }

 private:
  void skip() {
    for (;;) {
      while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
      if (text_.substr(at_, 2) == "//") at_ = std::min(text_.find('\n', at_), text_.size());
      else if (text_.substr(at_, 2) == "/*") at_ = std::min(text_.find("*/", at_), text_.size() - 2) + 2;
      else return;
    }
  }
  std::string_view text_;
  std::size_t at_ = 0;
};

std::uint64_t number(std::string_view token) {
  std::uint64_t value = 0;
  std::from_chars(token.data(), token.data() + token.size(), value);
  return value;
}

std::size_t bytes_of_type(std::string_view type) {
  if (type == ".pred" || type.ends_with("8")) return 1;
  if (type.ends_with("16")) return 2;
  if (type.ends_with("32") || type == ".f16x2" || type == ".bf16x2") return 4;
  if (type.ends_with("64")) return 8;
  if (type.ends_with("128")) return 16;
  return 0;
}

// Skips the words between a state space and its name (alignment, type), and the array size after the name.
struct Declaration {
  std::string_view name;
  std::size_t alignment = 0, size = 0;
  std::string_view end;  // the token after it
};

Declaration read_declaration(Tokens& tokens) {
  Declaration declared;
  std::size_t element = 0, count = 1;
  for (auto token = tokens.next(); !token.empty(); token = tokens.next()) {
    if (token == ".align") {
      declared.alignment = number(tokens.next());
    } else if (token == ".v2" || token == ".v4") {
      count *= token == ".v2" ? 2 : 4;
    } else if (token.front() == '.') {
      if (const std::size_t bytes = bytes_of_type(token)) element = bytes;
    } else if (token == "[") {
      const auto inner = tokens.next();
      if (inner != "]") {
        count *= number(inner);
        tokens.next();
      }
    } else if (token == "," || token == ")" || token == ";" || token == "=") {
      declared.end = token;
      break;
    } else if (declared.name.empty()) {
      declared.name = token;
    }
  }
  declared.size = element * count;
  if (declared.alignment == 0) declared.alignment = std::max<std::size_t>(element, 1);
  return declared;
}

Entry read_entry(Tokens& tokens) {
  Entry entry;
  entry.name = tokens.next();
  entry.parameters_known = true;
  if (tokens.next() != "(") return entry;
  std::size_t offset = 0;
  for (auto token = tokens.next(); token == ".param";) {
    const Declaration declared = read_declaration(tokens);
    offset = (offset + declared.alignment - 1) / declared.alignment * declared.alignment;
    entry.parameters.push_back({offset, declared.size});
    offset += declared.size;
    if (declared.end != ",") break;
    token = tokens.next();
  }
  return entry;
}

class Elf {
 public:
  explicit Elf(const char* image) : image_(image) { std::memcpy(&header_, image, sizeof header_); }
  bool good() const {
    return header_.e_ident[EI_CLASS] == ELFCLASS64 && header_.e_shentsize == sizeof(Elf64_Shdr) &&
           header_.e_shstrndx < header_.e_shnum;
  }
  unsigned sections() const { return header_.e_shnum; }
  Elf64_Shdr section(unsigned index) const {
    Elf64_Shdr found;
    std::memcpy(&found, image_ + header_.e_shoff + index * sizeof found, sizeof found);
    return found;
  }
  std::string_view name(const Elf64_Shdr& section_header) const {
    return text(header_.e_shstrndx, section_header.sh_name);
  }
  std::string_view text(unsigned table, std::uint32_t offset) const {
    return image_ + section(table).sh_offset + offset;
  }
  Elf64_Sym symbol(const Elf64_Shdr& table, std::uint64_t index) const {
    Elf64_Sym found;
    std::memcpy(&found, image_ + table.sh_offset + index * sizeof found, sizeof found);
    return found;
  }

 private:
  const char* image_;
  Elf64_Ehdr header_;
};

void read_symbols(const Elf& elf, const Elf64_Shdr& table, Image& out) {
  for (std::uint64_t i = 0; i < table.sh_size / sizeof(Elf64_Sym); ++i) {
    const Elf64_Sym symbol = elf.symbol(table, i);
    if (ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT && symbol.st_size != 0)
      out.variables.push_back({std::string(elf.text(table.sh_link, symbol.st_name)), symbol.st_size});
  }
}

// Finds the kernels of a binary by sections named ".text.KERNEL", and its variables by their symbols.
CUresult read_elf(const char* image, Image& out) {
  constexpr std::string_view code = ".text.", shared = ".nv.shared.", constants = ".nv.constant3";
  const Elf elf(image);
  if (!elf.good()) return CUDA_ERROR_INVALID_IMAGE;
  int constant_bytes = 0;
  for (unsigned i = 0; i < elf.sections(); ++i) {
    const Elf64_Shdr section = elf.section(i);
    const std::string_view name = elf.name(section);
    if (section.sh_type == SHT_SYMTAB) read_symbols(elf, section, out);
    if (name == constants) constant_bytes = static_cast<int>(section.sh_size);
    if (!name.starts_with(code)) continue;
    out.entries.emplace_back();
    out.entries.back().name = name.substr(code.size());
    out.entries.back().registers = static_cast<int>(section.sh_info >> 24);
  }
  for (auto& entry : out.entries) {
    entry.constant_bytes = constant_bytes;
    for (unsigned i = 0; i < elf.sections(); ++i)
      if (elf.name(elf.section(i)) == std::string(shared) + entry.name)
        // The first 1024 bytes are the driver's, if there are so many.
        entry.shared_bytes = static_cast<int>(elf.section(i).sh_size) - (elf.section(i).sh_size >= 1024 ? 1024 : 0);
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult read_ptx(std::string_view text, Image& out) {
  Tokens tokens(text);
  bool target = false;
  // Only text outside of bodies declares anything.
  int depth = 0;
  for (auto token = tokens.next(); !token.empty(); token = tokens.next()) {
    if (token == "{") ++depth;
    if (token == "}") --depth;
    if (depth != 0) continue;
    if (token == ".version") {
      const auto version = tokens.next();
      const auto dot = version.find('.');
      if (dot == std::string_view::npos) return CUDA_ERROR_INVALID_PTX;
      out.ptx_version = static_cast<int>(number(version.substr(0, dot)) * 10 + number(version.substr(dot + 1)));
    } else if (token == ".target") {
      target = true;
    } else if (token == ".entry") {
      out.entries.push_back(read_entry(tokens));
      if (out.entries.back().name.empty()) return CUDA_ERROR_INVALID_PTX;
    } else if (token == ".global" || token == ".const") {
      const Declaration declared = read_declaration(tokens);
      if (!declared.name.empty()) out.variables.push_back({std::string(declared.name), declared.size});
    }
  }
  return out.ptx_version != 0 && target && depth == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
}

CUresult read_image(const void* image, Image& out) {
  if (!image) return CUDA_ERROR_INVALID_VALUE;
  std::uint32_t magic = 0;
  // Compares byte by byte: a short text may end before four bytes.
  const char* bytes = static_cast<const char*>(image);
  for (unsigned i = 0; i < 4 && (i == 0 || bytes[i - 1] != 0); ++i)
    magic |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  if (magic == wrapper_magic || magic == fat_binary_magic) {
    out.any_name = true;
    return CUDA_SUCCESS;
  }
  if (magic == 0x464c457f) return read_elf(bytes, out);
  const auto first = static_cast<unsigned char>(bytes[0]);
  if (first == 0 || (!std::isprint(first) && !std::isspace(first))) return CUDA_ERROR_INVALID_IMAGE;
  return read_ptx(bytes, out);
}

}  // namespace simgpu
