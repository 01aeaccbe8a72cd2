// Reading ahead: pieces arrive as the files have them and in the order that was asked for, a read that fails is told
// after the pieces before it, and what nobody takes any more is waited for.
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/read_ahead.h"
#include "support/check.h"
#include "support/scratch.h"

using gsel::checkpoint::DiskFile;
using gsel::checkpoint::FilePiece;
using gsel::checkpoint::ReadAhead;

namespace {

char byte_at(uint64_t offset) {
  return static_cast<char>(offset * 0x9E3779B97F4A7C15U >> 56);
}

// A file without end, one byte of which may be unreadable.
class EndlessFile : public DiskFile {
 public:
  uint64_t fails_at = UINT64_MAX;
  std::atomic<uint64_t> bytes_read{0};

  uint64_t bytes() const override { return UINT64_MAX; }
  void read(uint64_t offset, void* dst, size_t bytes) override {
    if (fails_at >= offset && fails_at < offset + bytes)
      throw gsel::Error(GSEL_ERR_IO, "endless: byte " + std::to_string(fails_at)).at({"endless", 0, 0, {}});
    for (size_t i = 0; i < bytes; ++i) static_cast<char*>(dst)[i] = byte_at(offset + i);
    bytes_read += bytes;
  }
  void write(uint64_t, const void*, size_t) override {}
  void reserve(uint64_t) override {}
  void sync() override {}
};

void check_piece(const FilePiece& piece, const char* data) {
  assert_int_equal(reinterpret_cast<uintptr_t>(data) % sizeof(float), 0);
  for (size_t i = 0; i < piece.bytes; ++i)
    if (data[i] != byte_at(piece.offset + i))
      fail_msg("byte %zu of %zu at offset %llu", i, piece.bytes, static_cast<unsigned long long>(piece.offset));
}

// Long and short ones, at offsets that elements, blocks or nothing divides.
std::vector<FilePiece> pieces_of(DiskFile& file, size_t rounds) {
  constexpr size_t kBlock = ReadAhead::kReadBlockBytes;
  std::vector<FilePiece> pieces;
  for (size_t i = 0; i < rounds; ++i) {
    const uint64_t at = i * 10 * kBlock;
    pieces.push_back({&file, at, kBlock});
    pieces.push_back({&file, at + kBlock + 4092, kBlock - 4092});
    for (size_t n = 0; n < 50; ++n) pieces.push_back({&file, at + 2 * kBlock + 10000 * n + 12, 4 * n + 4});
    pieces.push_back({&file, at + 3 * kBlock + 1, kBlock});
    pieces.push_back({&file, at + 4 * kBlock + 2, (size_t{1} << 20) + 4});
    pieces.push_back({&file, at + 5 * kBlock + 4, (size_t{1} << 20) + 8});
  }
  return pieces;
}

void pieces_arrive_in_the_order_asked_for(void**) {
  for (const size_t rounds : {1, 3}) {
    EndlessFile file;
    const std::vector<FilePiece> pieces = pieces_of(file, rounds);
    uint64_t bytes = 0;
    ReadAhead ahead(pieces);
    for (const FilePiece& piece : pieces) {
      check_piece(piece, ahead.next());
      bytes += piece.bytes;
    }
    assert_int_equal(file.bytes_read.load(), bytes);
  }
  EndlessFile file;
  ReadAhead nothing({});
  std::vector<FilePiece> few{{&file, 3, 8}, {&file, 100, 4}};
  ReadAhead ahead(few);
  assert_int_equal(file.bytes_read.load(), 0);  // on the caller's thread
  for (const FilePiece& piece : few) check_piece(piece, ahead.next());
  assert_int_equal(file.bytes_read.load(), 12);
}

void a_read_that_fails_is_told_after_the_pieces_before_it(void**) {
  for (const size_t rounds : {1, 3}) {
    EndlessFile file;
    const std::vector<FilePiece> pieces = pieces_of(file, rounds);
    for (size_t failing = 0; failing < pieces.size(); failing += 23) {
      file.fails_at = pieces[failing].offset + pieces[failing].bytes - 1;
      ReadAhead ahead(pieces);
      for (size_t i = 0; i < failing; ++i) {
        const char* const data = ahead.next();
        assert_int_equal(data[pieces[i].bytes - 1], byte_at(pieces[i].offset + pieces[i].bytes - 1));
      }
      for (int again = 0; again < 2; ++again) {
        try {
          ahead.next();
          fail_msg("piece %zu cannot be read, and was", failing);
        } catch (const gsel::Error& e) {
          assert_int_equal(e.code(), GSEL_ERR_IO);
          assert_string_equal(e.what(), ("endless: byte " + std::to_string(file.fails_at)).c_str());
          assert_string_equal(e.place().file.c_str(), "endless");
        }
      }
    }
  }
}

void no_more_is_read_than_the_blocks_take(void**) {
  EndlessFile file;
  std::vector<FilePiece> pieces;
  for (size_t i = 0; i < 12; ++i) pieces.push_back({&file, i * ReadAhead::kReadBlockBytes, ReadAhead::kReadBlockBytes});
  for (const size_t taken : {0, 1, 5}) {
    file.bytes_read = 0;
    {
      ReadAhead ahead(pieces);
      for (size_t i = 0; i < taken; ++i) check_piece(pieces[i], ahead.next());
    }
    assert_in_range(file.bytes_read.load(), taken * ReadAhead::kReadBlockBytes,
                    (taken + ReadAhead::kMostBlocks) * ReadAhead::kReadBlockBytes);
  }
}

// The same through a file of the disk, of which long reads go around the page cache.
void a_file_of_the_disk_reads_as_it_was_written(void**) {
  char folder[256];
  assert_int_equal(make_scratch(folder, sizeof folder, "read_ahead"), 1);
  const std::string path = std::string(folder) + "/file";
  constexpr size_t kBytes = 3 * ReadAhead::kReadBlockBytes + 123;
  std::vector<char> bytes(kBytes);
  for (size_t i = 0; i < kBytes; ++i) bytes[i] = byte_at(i);
  gsel::checkpoint::real_disk().create(path)->write(0, bytes.data(), kBytes);
  const auto file = gsel::checkpoint::real_disk().open(path);
  for (const uint64_t first : {0, 4, 7, 4096, 5000}) {
    std::vector<FilePiece> pieces;
    for (uint64_t at = first; at < kBytes;) {
      pieces.push_back({file.get(), at, ReadAhead::piece_bytes(at, kBytes - at)});
      at += pieces.back().bytes;
    }
    ReadAhead ahead(pieces);
    for (const FilePiece& piece : pieces) check_piece(piece, ahead.next());
  }
  ReadAhead beyond({{file.get(), 4096, ReadAhead::kReadBlockBytes},
                    {file.get(), 2 * ReadAhead::kReadBlockBytes + 124, ReadAhead::kReadBlockBytes}});
  beyond.next();
  try {
    beyond.next();
    fail_msg("the file ends before");
  } catch (const gsel::Error& e) {
    assert_int_equal(e.code(), GSEL_ERR_IO);
    assert_string_equal(e.what(), (path + " ends at byte " + std::to_string(kBytes) + "; expected 1 more").c_str());
  }
  remove_scratch(folder);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(pieces_arrive_in_the_order_asked_for),
      cmocka_unit_test(a_read_that_fails_is_told_after_the_pieces_before_it),
      cmocka_unit_test(no_more_is_read_than_the_blocks_take),
      cmocka_unit_test(a_file_of_the_disk_reads_as_it_was_written),
  };
  return cmocka_run_group_tests_name("read ahead", tests, nullptr, nullptr);
}
