// SPDX-License-Identifier: Apache-2.0
#include "content.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace simgpu {
namespace {

std::uint8_t* new_page() {
  void* page = std::malloc(content_page);
  if (!page) throw std::bad_alloc();
  return static_cast<std::uint8_t*>(page);
}

bool equals(const std::uint8_t* data, std::uint64_t offset, std::uint64_t size, const Pattern& pattern) {
  for (; size != 0 && offset % 16 != 0; ++offset, --size)
    if (*data++ != pattern[offset % 16]) return false;
  for (; size >= 16; size -= 16, data += 16)
    if (std::memcmp(data, pattern.data(), 16) != 0) return false;
  return std::memcmp(data, pattern.data(), size) == 0;
}

}  // namespace

void spread(std::uint8_t* out, std::uint64_t offset, std::uint64_t size, const Pattern& pattern) {
  if (std::all_of(pattern.begin(), pattern.end(), [&](std::uint8_t byte) { return byte == pattern[0]; })) {
    std::memset(out, pattern[0], size);
    return;
  }
  const Pattern turn = turned(pattern, offset, 0);
  const std::uint64_t first = std::min<std::uint64_t>(size, 16);
  std::memcpy(out, turn.data(), first);
  // The size doubles each time, up to a size that stays in the caches.
  for (std::uint64_t done = first; done < size;) {
    const std::uint64_t part = std::min({size - done, done, content_page});
    std::memcpy(out + done, out, part);
    done += part;
  }
}

Pattern turned(const Pattern& pattern, std::uint64_t from_offset, std::uint64_t to_offset) {
  Pattern result;
  for (unsigned i = 0; i < 16; ++i) result[(to_offset + i) % 16] = pattern[(from_offset + i) % 16];
  return result;
}

Pattern repeated(std::uint32_t value, unsigned unit, std::uint64_t offset) {
  Pattern result;
  for (unsigned i = 0; i < 16; ++i) result[(offset + i) % 16] = static_cast<std::uint8_t>(value >> (8 * (i % unit)));
  return result;
}

SparseContent::SparseContent(std::uint64_t size) : chunks_((size + chunk_bytes - 1) / chunk_bytes) {}

SparseContent::~SparseContent() {
  for (auto& chunk : chunks_) clear(chunk);
}

void SparseContent::drop(Page& page) {
  std::free(page.data);
  page.data = nullptr;
}

void SparseContent::clear(Chunk& chunk) {
  if (!chunk.pages) return;
  for (auto& page : *chunk.pages) drop(page);
  chunk.pages.reset();
}

SparseContent::Page& SparseContent::page(std::uint64_t offset) {
  auto& chunk = chunks_[offset / chunk_bytes];
  if (!chunk.pages) {
    chunk.pages = std::make_unique<std::array<Page, chunk_pages>>();
    for (auto& page : *chunk.pages) page.pattern = chunk.pattern;
  }
  return (*chunk.pages)[offset % chunk_bytes / content_page];
}

// A chunk that was written page by page with one pattern becomes a uniform chunk again.
void SparseContent::collapse(Chunk& chunk) {
  if (!chunk.pages) return;
  const Pattern pattern = (*chunk.pages)[0].pattern;
  for (const auto& page : *chunk.pages)
    if (page.data || page.pattern != pattern) return;
  chunk.pattern = pattern;
  chunk.pages.reset();
}

Piece SparseContent::next(std::uint64_t offset, std::uint64_t limit, std::uint8_t* buffer) const {
  Piece piece;
  while (piece.size < limit) {
    const std::uint64_t at = offset + piece.size;
    const auto& chunk = chunks_[at / chunk_bytes];
    const Page* page = chunk.pages ? &(*chunk.pages)[at % chunk_bytes / content_page] : nullptr;
    const std::uint64_t end =
        page ? at / content_page * content_page + content_page : at / chunk_bytes * chunk_bytes + chunk_bytes;
    const std::uint64_t part = std::min(end - at, limit - piece.size);
    if (page && page->data) {
      if (piece.size != 0) return piece;
      std::memcpy(buffer, page->data + at % content_page, part);
      piece.uniform = false;
      piece.size = part;
      return piece;
    }
    const Pattern& pattern = page ? page->pattern : chunk.pattern;
    if (piece.size == 0) piece.pattern = pattern;
    else if (pattern != piece.pattern) return piece;
    piece.size += part;
  }
  return piece;
}

void SparseContent::write_page(std::uint64_t offset, const std::uint8_t* data, std::uint64_t size) {
  auto& chunk = chunks_[offset / chunk_bytes];
  if (!chunk.pages && equals(data, offset, size, chunk.pattern)) return;
  auto& target = page(offset);
  if (!target.data && equals(data, offset, size, target.pattern)) return;
  // A whole page that repeats 16 bytes becomes a pattern again.
  if (size == content_page && std::memcmp(data, data + 16, size - 16) == 0) {
    drop(target);
    std::memcpy(target.pattern.data(), data, 16);
    return;
  }
  if (!target.data) {
    target.data = new_page();
    if (size != content_page) spread(target.data, 0, content_page, target.pattern);
  }
  std::memcpy(target.data + offset % content_page, data, size);
}

void SparseContent::write(std::uint64_t offset, const std::uint8_t* data, std::uint64_t size) {
  while (size != 0) {
    const std::uint64_t part = std::min(size, content_page - offset % content_page);
    write_page(offset, data, part);
    const std::uint64_t end = offset + part;
    if (end % chunk_bytes == 0) collapse(chunks_[offset / chunk_bytes]);
    offset = end, data += part, size -= part;
  }
}

void SparseContent::fill(std::uint64_t offset, std::uint64_t size, const Pattern& pattern) {
  while (size != 0) {
    auto& chunk = chunks_[offset / chunk_bytes];
    if (offset % chunk_bytes == 0 && size >= chunk_bytes) {
      clear(chunk);
      chunk.pattern = pattern;
      offset += chunk_bytes, size -= chunk_bytes;
      continue;
    }
    const std::uint64_t part = std::min(size, content_page - offset % content_page);
    if (chunk.pages || chunk.pattern != pattern) {
      auto& target = page(offset);
      if (part == content_page) {
        drop(target);
        target.pattern = pattern;
      } else if (target.data || target.pattern != pattern) {
        if (!target.data) {
          target.data = new_page();
          spread(target.data, 0, content_page, target.pattern);
        }
        spread(target.data + offset % content_page, offset, part, pattern);
      }
    }
    offset += part, size -= part;
    if (offset % chunk_bytes == 0) collapse(chunk);
  }
}

// Reading a hole through a mapping would fill it with pages; reading it through the file leaves a hole.
Piece FileContent::next(std::uint64_t offset, std::uint64_t limit, std::uint8_t* buffer) const {
  Piece piece;
  const auto data = ::lseek(fd_, static_cast<off_t>(offset), SEEK_DATA);
  const std::uint64_t first = data < 0 ? offset + limit : static_cast<std::uint64_t>(data);
  if (first > offset) {
    piece.size = std::min(limit, first - offset);
    return piece;
  }
  piece.uniform = false;
  piece.size = std::min(limit, content_page - offset % content_page);
  const auto got = ::pread(fd_, buffer, piece.size, static_cast<off_t>(offset));
  if (got < static_cast<ssize_t>(piece.size)) {
    const std::uint64_t good = got < 0 ? 0 : static_cast<std::uint64_t>(got);
    std::memset(buffer + good, 0, piece.size - good);
  }
  return piece;
}

void FileContent::write(std::uint64_t offset, const std::uint8_t* data, std::uint64_t size) {
  while (size != 0) {
    const auto put = ::pwrite(fd_, data, size, static_cast<off_t>(offset));
    if (put <= 0) throw std::bad_alloc();  // no space in the file system: treated as out of memory
    offset += static_cast<std::uint64_t>(put), data += put, size -= static_cast<std::uint64_t>(put);
  }
}

void FileContent::fill(std::uint64_t offset, std::uint64_t size, const Pattern& pattern) {
  if (pattern == Pattern{} && ::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                                          static_cast<off_t>(size)) == 0)
    return;
  std::vector<std::uint8_t> block(std::min<std::uint64_t>(size, 1 << 20));
  while (size != 0) {
    const std::uint64_t part = std::min<std::uint64_t>(size, block.size());
    spread(block.data(), offset, part, pattern);
    write(offset, block.data(), part);
    offset += part, size -= part;
  }
}

}  // namespace simgpu
