// SPDX-License-Identifier: Apache-2.0
// Stores the contents of simulated VRAM sparsely. A stretch is a repeated 16-byte pattern (zero at first) or pages of
// data. Reading, copying and hashing never create a page, and neither does writing the bytes that are already there.
// Callers hold the lock of the Physical that owns the content.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace simgpu {

// A repeated pattern of 16 bytes. The byte at offset o of a uniform stretch is pattern[o % 16], wherever the stretch
// begins.
using Pattern = std::array<std::uint8_t, 16>;

inline constexpr std::uint64_t content_page = 4096;

struct Piece {
  bool uniform = true;
  Pattern pattern{};
  // size in bytes; a stretch that is not uniform is in the caller's buffer and has at most one page
  std::uint64_t size = 0;
};

class Content {
 public:
  virtual ~Content() = default;
  // Finds the longest stretch of one kind from `offset`, at most `limit` bytes long. `buffer` has the size of a page.
  virtual Piece next(std::uint64_t offset, std::uint64_t limit, std::uint8_t* buffer) const = 0;
  virtual void write(std::uint64_t offset, const std::uint8_t* data, std::uint64_t size) = 0;
  virtual void fill(std::uint64_t offset, std::uint64_t size, const Pattern& pattern) = 0;
};

// Contents in the memory of this process alone.
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
    std::uint8_t* data = nullptr;  // a page of data, or null: the pattern fills the page
  };
  static constexpr std::uint64_t chunk_bytes = 2 << 20;
  static constexpr std::uint64_t chunk_pages = chunk_bytes / content_page;
  struct Chunk {
    Pattern pattern{};
    std::unique_ptr<std::array<Page, chunk_pages>> pages;  // null: the pattern fills the chunk
  };
  Page& page(std::uint64_t offset);
  static void drop(Page& page);
  static void collapse(Chunk& chunk);
  static void clear(Chunk& chunk);
  void write_page(std::uint64_t offset, const std::uint8_t* data, std::uint64_t size);

  std::vector<Chunk> chunks_;
};

// Contents in a sparse file that other processes share. A pattern other than zero takes pages here.
class FileContent final : public Content {
 public:
  explicit FileContent(int fd) : fd_(fd) {}  // not owned: the caller closes the descriptor
  Piece next(std::uint64_t offset, std::uint64_t limit, std::uint8_t* buffer) const override;
  void write(std::uint64_t offset, const std::uint8_t* data, std::uint64_t size) override;
  void fill(std::uint64_t offset, std::uint64_t size, const Pattern& pattern) override;

 private:
  int fd_;
};

// Returns the pattern that has the same bytes from another offset on: a pattern is bound to offsets, so a move rotates
// it.
Pattern turned(const Pattern& pattern, std::uint64_t from_offset, std::uint64_t to_offset);
// Returns the pattern whose bytes from `offset` on repeat `unit` (1, 2 or 4 bytes).
Pattern repeated(std::uint32_t value, unsigned unit, std::uint64_t offset);

// Writes the bytes that a uniform stretch has from `offset` on.
void spread(std::uint8_t* out, std::uint64_t offset, std::uint64_t size, const Pattern& pattern);

}  // namespace simgpu
