/* fuzz_checkpoint: the files of a checkpoint. An input begins with a letter: m, the text of a manifest up to its sum;
 * c, the text of an index, a byte 0x1e and the JSON of a safetensors header, before 24 bytes of data; s, an index, 0x1e
 * and a whole safetensors file; w, the same, and the manifest has another sum of the file; p, numbers, a byte each, of
 * which a checkpoint of the trainer below is made, with few faults (put_pieces). Other sums are made right, so that
 * what is behind them is reached. A checkpoint opens or is refused in one line; what opens can be listed, and what
 * verifies is equal to itself. A trainer of the step model with Lion loads it: what it has loaded it trains on; a load
 * that is refused leaves the state as it was, or a trainer that refuses all further steps. */
#define XXH_INLINE_ALL
#include <gsel/state.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "fuzz/fuzz.h"
#include "support/step_model.h"

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

static void put_checkpoint(gsel_str index, const unsigned char* file, size_t file_bytes, int has_wrong_sum) {
  char text[1024], index_sum[33], file_sum[33];
  put_file("index.json", index.data, index.len, "", 0);
  put_file("rank-00000.safetensors", file, file_bytes, "", 0);
  sum_text(index_sum, index.data, index.len);
  sum_text(file_sum, file, file_bytes);
  if (has_wrong_sum) file_sum[0] = file_sum[0] == '0' ? '1' : '0';
  const int n =
      snprintf(text, sizeof text,
               "{\"format\": 1, \"step\": 1, \"block_bytes\": 16777216, \"files\": [\n"
               "{\"name\": \"index.json\", \"bytes\": %zu, \"xxh3_128\": \"%s\", \"blocks\": [%s%s%s]},\n"
               "{\"name\": \"rank-00000.safetensors\", \"bytes\": %zu, \"xxh3_128\": \"%s\", \"blocks\": [%s%s%s]}],\n",
               index.len, index_sum, index.len ? "\"" : "", index.len ? index_sum : "", index.len ? "\"" : "",
               file_bytes, file_sum, file_bytes ? "\"" : "", file_bytes ? file_sum : "", file_bytes ? "\"" : "");
  put_manifest(text, (size_t)n);
}

/* ---- a checkpoint made of numbers ---- */

struct text {
  char at[8192];
  size_t n;
};
static void put_text(struct text* text, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  text->n += (size_t)vsnprintf(text->at + text->n, sizeof text->at - text->n, format, arguments);
  va_end(arguments);
  CLAIM(text->n < sizeof text->at, "%zu bytes of text", text->n);
}

/* The next number, below n; 0 where the input has ended. */
static unsigned number(struct rest* rest, unsigned n) {
  if (!rest->left) return 0;
  --rest->left;
  return (unsigned char)*rest->at++ % n;
}

/* One piece of a tensor of STEP_WIDTH elements, in the index and in the file's header. */
static void put_piece(struct rest* rest, struct text* index, struct text* header, const char* name, unsigned begin,
                      unsigned end, size_t* bytes) {
  const unsigned fault = number(rest, 48), is_interval = number(rest, 2);
  const size_t size = sizeof(float) * (end - begin), at = *bytes - (fault == 1 && *bytes >= size ? size : 0);
  const char* const form = is_interval ? "\"intervals\": [[[%u, %u]]]" : "\"range\": [%u, %u]";
  put_text(index, "%s{\"tensor\": \"%s\", \"file\": \"rank-%05u.safetensors\", \"key\": \"%s#%u\", ",
           *bytes ? ", " : "", name, fault == 2, name, begin);
  put_text(index, form, begin, end + (fault == 3));
  put_text(index, "}");
  put_text(header, "%s\"%s#%u\":{\"dtype\":\"%s\",\"shape\":[%u],\"data_offsets\":[%zu,%zu]}", *bytes ? "," : "", name,
           begin + (fault == 4), fault == 5 ? "I32" : "F32", end - begin, at, at + size);
  *bytes += size;
}

static void put_pieces(struct rest* rest) {
  static const char* const names[] = {"param:a", "exp_avg:a", "param:b", "exp_avg:b"};
  static struct text index, pieces, header, file;
  size_t bytes = 0;
  index.n = pieces.n = header.n = file.n = 0;
  put_text(&index, "{\"format\": 1, \"step\": %u, \"updates\": %u, \"ranks\": 1, \"first_sample\": %u, \"seed\": 7, ",
           8 + number(rest, 9), number(rest, 10), number(rest, 256));
  put_text(&index, "\"users\": [], \"optimizer\": \"%s\", \"loss_scale\": %u, \"good_steps\": %u, ",
           number(rest, 32) == 1 ? "sgd" : "lion", number(rest, 4), number(rest, 4));
  put_text(&index, "\"overflows_left\": %u, \"tensors\": [", number(rest, 4));
  for (int t = 0; t < 4; ++t) {
    const unsigned fault = number(rest, 32), a = number(rest, 4), b = number(rest, 4);
    const unsigned cuts[] = {0, a < b ? a : b, a < b ? b : a, STEP_WIDTH};
    put_text(&index, "%s{\"name\": \"%s%s\", \"shape\": [%d%s]}", t ? ", " : "", names[t], fault == 1 ? "x" : "",
             STEP_WIDTH + (fault == 2), fault == 3 ? ", 1" : "");
    for (int i = 0; i < 3; ++i)
      if (cuts[i] < cuts[i + 1]) put_piece(rest, &pieces, &header, names[t], cuts[i], cuts[i + 1], &bytes);
  }
  put_text(&index, "], \"pieces\": [%s]}", pieces.at);
  const unsigned has_wrong_sum = number(rest, 8) == 1, is_short = number(rest, 32) == 1;
  const uint64_t header_bytes = header.n + 2;
  memcpy(file.at, &header_bytes, sizeof header_bytes);
  file.n = sizeof header_bytes;
  put_text(&file, "{%s}", header.at);
  for (size_t i = 0; i + is_short < bytes; ++i) file.at[file.n++] = (char)number(rest, 256);
  put_checkpoint((gsel_str){index.at, index.n}, (const unsigned char*)file.at, file.n, (int)has_wrong_sum);
}

/* ---- what must hold ---- */

/* also: a code that the call has beside those of each. */
static void check_refusal(gsel_status status, gsel_error* err, gsel_status also) {
  const gsel_str message = gsel_error_message(err);
  CLAIM(status == GSEL_ERR_PARSE || status == GSEL_ERR_IO || status == GSEL_ERR_NOT_FOUND || status == also, "%s: %s",
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
      check_refusal(status, err, GSEL_ERR_PARSE);
      err = NULL, is_told = 0;
    }
  const gsel_status status = gsel_checkpoint_verify(checkpoint, NULL, &err);
  CLAIM(status != GSEL_OK || is_told, "it verifies, and has a state that cannot be told");
  if (status != GSEL_OK) {
    check_refusal(status, err, GSEL_ERR_PARSE);
    return;
  }
  gsel_checkpoint_differences* differences = NULL;
  CLAIM(gsel_checkpoint_diff(checkpoint, checkpoint, NULL, &differences, &err) == GSEL_OK, "%s",
        gsel_error_message(err).data);
  CLAIM(gsel_checkpoint_difference_count(differences) == 0, "it differs from itself");
  gsel_checkpoint_differences_free(differences);
}

/* ---- a trainer ---- */

enum { STATES = 2 * STEP_PARAMS };

struct trainer_state {
  float values[STATES][STEP_WIDTH];
  gsel_training_numbers numbers;
};

static step_session training;

static void make_trainer(void) {
  step_model m;
  rank_run alone;
  gsel_error* err = NULL;
  memset(&m, 0, sizeof m);
  memset(&alone, 0, sizeof alone);
  m.config = "[train]\noptimizer = \"lion\"\nlearning_rate = 1.0\nbatch = 2\n";
  alone.world_size = 1;
  const gsel_status status = step_open(&alone, &m, &training, &err);
  CLAIM(status == GSEL_OK, "%s", gsel_error_message(err).data);
}

static gsel_status read_state(struct trainer_state* out, gsel_error** err) {
  gsel_state* state = NULL;
  gsel_status status = gsel_state_open(training.trainer, &state, err);
  if (status) return status;
  memset(out, 0, sizeof *out);
  gsel_training_numbers_init(&out->numbers, sizeof out->numbers);
  CLAIM(gsel_state_count(state) == STATES, "%d tensors", gsel_state_count(state));
  for (int32_t i = 0; i < STATES && !status; ++i)
    status = gsel_state_read(state, i, 0, STEP_WIDTH, out->values[i], err);
  if (!status) status = gsel_state_numbers(state, &out->numbers, err);
  gsel_state_free(state);
  return status;
}

static void check_step(gsel_status expected) {
  gsel_error* err = NULL;
  const gsel_status status = gsel_trainer_step(training.trainer, NULL, &err);
  CLAIM(status == expected, "a step gives %s: %s", gsel_status_name(status), err ? gsel_error_message(err).data : "");
  gsel_error_free(err);
}

static void check_load(void) {
  static struct trainer_state before;
  struct trainer_state after;
  gsel_error* err = NULL;
  if (!training.trainer) {
    make_trainer();
    check_step(GSEL_OK);
    CLAIM(read_state(&before, &err) == GSEL_OK, "%s", gsel_error_message(err).data);
  }
  const gsel_status loaded = gsel_trainer_load(training.trainer, gsel_str_from(folder), NULL, &err);
  if (loaded == GSEL_OK) {
    CLAIM(read_state(&after, &err) == GSEL_OK, "%s", gsel_error_message(err).data);
    check_step(GSEL_OK);
    CLAIM(read_state(&before, &err) == GSEL_OK, "%s", gsel_error_message(err).data);
    CLAIM(before.numbers.step == after.numbers.step + 1, "step %lld", (long long)before.numbers.step);
    CLAIM(before.numbers.updates > 0 && before.numbers.updates <= before.numbers.step, "%lld updates",
          (long long)before.numbers.updates);
    return;
  }
  check_refusal(loaded, err, GSEL_ERR_MISMATCH);
  err = NULL;
  if (read_state(&after, &err) == GSEL_OK) {
    CLAIM(!memcmp(&before, &after, sizeof before), "a refused load has changed the state");
    return;
  }
  CLAIM(gsel_error_code(err) == GSEL_ERR_STATE, "%s", gsel_error_message(err).data);
  gsel_error_free(err);
  check_step(GSEL_ERR_STATE);
  step_close(&training);
  memset(&training, 0, sizeof training);
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
  } else if (data[0] == 'p') {
    put_pieces(&rest);
  } else {
    const gsel_str index = take(&rest, '\x1e');
    size_t n = 0;
    if (data[0] != 's' && data[0] != 'w') {
      for (; n < 8; ++n) file[n] = (unsigned char)((uint64_t)rest.left >> 8 * n);
      memcpy(file + n, rest.at, rest.left);
      memset(file + n + rest.left, 'x', 24);
      n += rest.left + 24;
    } else {
      memcpy(file, rest.at, rest.left);
      n = rest.left;
    }
    put_checkpoint(index, file, n, data[0] == 'w');
  }
  gsel_checkpoint* checkpoint = NULL;
  gsel_error* err = NULL;
  const gsel_status status = gsel_checkpoint_open(gsel_str_from(folder), &checkpoint, &err);
  if (status == GSEL_OK)
    check_contents(checkpoint);
  else
    check_refusal(status, err, GSEL_ERR_PARSE);
  gsel_checkpoint_free(checkpoint);
  check_load();
  return 0;
}
