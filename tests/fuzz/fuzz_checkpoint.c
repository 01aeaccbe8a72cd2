/* fuzz_checkpoint: the files of a checkpoint. An input begins with a letter: m, the text of a manifest up to its sum;
 * c, the text of an index, a byte 0x1e and the JSON of a safetensors header, before 24 bytes of data; s, an index, 0x1e
 * and a whole safetensors file. Sums are made right, so that what is behind them is reached. A checkpoint opens or is
 * refused in one line; what opens can be listed, and what verifies is equal to itself. */
#define XXH_INLINE_ALL
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "fuzz/fuzz.h"

static char folder[] = "/tmp/gsel-fuzz-checkpoint-XXXXXX"; /* mkdtemp fills in the X */

static void remove_folder(void) {
  static const char* const names[] = {"manifest.json", "index.json", "rank-00000.safetensors"};
  char path[256];
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    snprintf(path, sizeof path, "%s/%s", folder, names[i]);
    unlink(path);
  }
  rmdir(folder);
}

static void put_file(const char* name, const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  char path[256];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE* file = fopen(path, "wb");
  CLAIM(file && fwrite(a, 1, a_bytes, file) == a_bytes && fwrite(b, 1, b_bytes, file) == b_bytes, "%s", path);
  fclose(file);
}

static void sum_text(char* text, const void* data, size_t bytes) {
  const XXH128_hash_t sum = XXH3_128bits(data, bytes);
  sprintf(text, "%016llx%016llx", (unsigned long long)sum.high64, (unsigned long long)sum.low64);
}

static void put_manifest(const char* text, size_t bytes) {
  char sum[33], last[64];
  sum_text(sum, text, bytes);
  put_file("manifest.json", text, bytes, last, (size_t)sprintf(last, "\"xxh3_128\": \"%s\"}\n", sum));
}

static void put_checkpoint(gsel_str index, const unsigned char* file, size_t file_bytes) {
  char text[1024], index_sum[33], file_sum[33];
  put_file("index.json", index.data, index.len, "", 0);
  put_file("rank-00000.safetensors", file, file_bytes, "", 0);
  sum_text(index_sum, index.data, index.len);
  sum_text(file_sum, file, file_bytes);
  const int n =
      snprintf(text, sizeof text,
               "{\"format\": 1, \"step\": 1, \"block_bytes\": 16777216, \"files\": [\n"
               "{\"name\": \"index.json\", \"bytes\": %zu, \"xxh3_128\": \"%s\", \"blocks\": [%s%s%s]},\n"
               "{\"name\": \"rank-00000.safetensors\", \"bytes\": %zu, \"xxh3_128\": \"%s\", \"blocks\": [%s%s%s]}],\n",
               index.len, index_sum, index.len ? "\"" : "", index.len ? index_sum : "", index.len ? "\"" : "",
               file_bytes, file_sum, file_bytes ? "\"" : "", file_bytes ? file_sum : "", file_bytes ? "\"" : "");
  put_manifest(text, (size_t)n);
}

static void check_refusal(gsel_status status, gsel_error* err) {
  const gsel_str message = gsel_error_message(err);
  CLAIM(status == GSEL_ERR_PARSE || status == GSEL_ERR_IO || status == GSEL_ERR_NOT_FOUND, "%s: %s",
        gsel_status_name(status), message.data);
  CLAIM(message.len > 0 && message.len < 65536, "a message of %zu bytes", message.len);
  for (size_t i = 0; i < message.len; ++i)
    CLAIM((unsigned char)message.data[i] >= 0x20, "a line break in: %s", message.data);
  gsel_error_free(err);
}

static void check_contents(gsel_checkpoint* checkpoint) {
  gsel_checkpoint_info info = GSEL_CHECKPOINT_INFO_INIT;
  gsel_error* err = NULL;
  CLAIM(gsel_checkpoint_inspect(checkpoint, &info, NULL) == GSEL_OK, "no info");
  CLAIM(info.entry_bytes <= info.file_bytes, "%llu bytes of tensors in files of %llu",
        (unsigned long long)info.entry_bytes, (unsigned long long)info.file_bytes);
  for (int32_t i = 0; i < info.n_entries; ++i) {
    gsel_checkpoint_entry entry = GSEL_CHECKPOINT_ENTRY_INIT;
    CLAIM(gsel_checkpoint_entry_get(checkpoint, i, &entry, NULL) == GSEL_OK, "entry %d", i);
    uint64_t bytes = 0;
    for (int32_t p = 0; p < entry.n_pieces; ++p) {
      gsel_checkpoint_piece piece = GSEL_CHECKPOINT_PIECE_INIT;
      CLAIM(gsel_checkpoint_piece_get(checkpoint, i, p, &piece, NULL) == GSEL_OK, "piece %d of %d", p, i);
      bytes += 4 * (uint64_t)piece.count;
    }
    CLAIM(bytes == entry.bytes, "entry %d: %llu bytes in pieces", i, (unsigned long long)bytes);
  }
  int is_told = 1;
  for (int32_t i = 0; i < info.n_own; ++i)
    for (int32_t rank = 0; rank < info.n_ranks && rank < 2; ++rank) {
      gsel_checkpoint_own own = GSEL_CHECKPOINT_OWN_INIT;
      const gsel_status status = gsel_checkpoint_own_get(checkpoint, i, rank, &own, &err);
      if (status == GSEL_OK) {
        CLAIM(own.bytes <= info.file_bytes && own.name.len > 0, "state %d: %llu bytes", i,
              (unsigned long long)own.bytes);
        continue;
      }
      check_refusal(status, err);
      err = NULL, is_told = 0;
    }
  const gsel_status status = gsel_checkpoint_verify(checkpoint, NULL, &err);
  CLAIM(status != GSEL_OK || is_told, "it verifies, and has a state that cannot be told");
  if (status != GSEL_OK) {
    check_refusal(status, err);
    return;
  }
  gsel_checkpoint_differences* differences = NULL;
  CLAIM(gsel_checkpoint_diff(checkpoint, checkpoint, NULL, &differences, &err) == GSEL_OK, "%s",
        gsel_error_message(err).data);
  CLAIM(gsel_checkpoint_difference_count(differences) == 0, "it differs from itself");
  gsel_checkpoint_differences_free(differences);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static unsigned char file[1 << 21];
  static int has_folder;
  if (!has_folder) {
    CLAIM(mkdtemp(folder), "%s", folder);
    atexit(remove_folder);
    has_folder = 1;
  }
  if (size == 0 || size > 1 << 20) return 0;
  struct rest rest = {(const char*)data + 1, size - 1};
  if (data[0] == 'm') {
    put_manifest(rest.at, rest.left);
  } else {
    const gsel_str index = take(&rest, '\x1e');
    size_t n = 0;
    if (data[0] != 's') {
      for (; n < 8; ++n) file[n] = (unsigned char)((uint64_t)rest.left >> 8 * n);
      memcpy(file + n, rest.at, rest.left);
      memset(file + n + rest.left, 'x', 24);
      n += rest.left + 24;
    } else {
      memcpy(file, rest.at, rest.left);
      n = rest.left;
    }
    put_checkpoint(index, file, n);
  }
  gsel_checkpoint* checkpoint = NULL;
  gsel_error* err = NULL;
  const gsel_status status = gsel_checkpoint_open(gsel_str_from(folder), &checkpoint, &err);
  if (status == GSEL_OK)
    check_contents(checkpoint);
  else
    check_refusal(status, err);
  gsel_checkpoint_free(checkpoint);
  return 0;
}
