// SPDX-License-Identifier: Apache-2.0
// What is stored in simulated VRAM, sparsely: a stretch is a repeated 16-byte pattern (zero at first) or
// pages of data. Neither reading, copying nor hashing makes a page of what was never written, and writing
// what is already there does not either. Callers hold the lock of the Physical that owns the content.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace simgpu {

// The byte at offset o of a uniform stretch is pattern[o % 16], wherever the stretch begins.
using Pattern = std::array<std::uint8_t, 16>;

inline constexpr std::uint64_t content_page = 4096;

struct Piece {
  bool uniform = true;
  Pattern pattern{};
  std::uint64_t size = 0;  // bytes; when not uniform they stand in the caller's buffer, at most one page
};

class Content {
 public:
  virtual ~Content() = default;
  // The longest stretch from `offset` that is of one kind, at most `limit` bytes; `buffer` has one page.
  virtual Piece next(std::uint64_t offset, std::uint64_t limit, std::uint8_t* buffer) const = 0;
  virtual void write(std::uint64_t offset, const std::uint8_t* data, std::uint64_t size) = 0;
  virtual void fill(std::uint64_t offset, std::uint64_t size, const Pattern& pattern) = 0;
};

// In the memory of this process alone.
class SparseContent final : public Content {
 public:
  explicit SparseContent(std::uint64_t size);
  ~SparseContent() override;
  Piece next(std::uint64_t offset, std::uint64_t limit, std::uint8_t* buffer) const override;
  void write(std::uint64_t offset, const std::uint8_t* data, std::uint64_t size) override;
  void fill(std::uint64_t offset, std::uint64_t size, const Pattern& pattern) override;

 private:
  struct Page {
    Pattern pattern{};
    std::uint8_t* data = nullptr;  // one page, or null: the pattern throughout
  };
  static constexpr std::uint64_t chunk_bytes = 2 << 20;
  static constexpr std::uint64_t chunk_pages = chunk_bytes / content_page;
  struct Chunk {
    Pattern pattern{};
    std::unique_ptr<std::array<Page, chunk_pages>> pages;  // null: the pattern throughout
  };
  Page& page(std::uint64_t offset);
  static void drop(Page& page);
  static void collapse(Chunk& chunk);
  static void clear(Chunk& chunk);
  void write_page(std::uint64_t offset, const std::uint8_t* data, std::uint64_t size);

  std::vector<Chunk> chunks_;
};

// In a sparse file that other processes hold too; a pattern other than zero takes pages here.
class FileContent final : public Content {
 public:
  explicit FileContent(int fd) : fd_(fd) {}  // does not own the descriptor
  Piece next(std::uint64_t offset, std::uint64_t limit, std::uint8_t* buffer) const override;
  void write(std::uint64_t offset, const std::uint8_t* data, std::uint64_t size) override;
  void fill(std::uint64_t offset, std::uint64_t size, const Pattern& pattern) override;

 private:
  int fd_;
};

// The same bytes as seen from another offset: a pattern is bound to offsets, so moving it turns it.
Pattern turned(const Pattern& pattern, std::uint64_t from_offset, std::uint64_t to_offset);
// The pattern whose bytes from `offset` on repeat `unit` (1, 2 or 4 bytes).
Pattern repeated(std::uint32_t value, unsigned unit, std::uint64_t offset);

// Writes the bytes that a uniform stretch has from `offset` on.
void spread(std::uint8_t* out, std::uint64_t offset, std::uint64_t size, const Pattern& pattern);

}  // namespace simgpu
