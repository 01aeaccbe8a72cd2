// api/types.cc: gsel/types.h, gsel/error.h and gsel/log.h.
#include "base/types.h"

#include <gsel/types.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "base/options.h"
#include "base/shard.h"
#include "base/text.h"
#include "base/version.h"

extern "C" {

int32_t gsel_version(void) {
  return GSEL_VERSION_NUMBER;
}
const char* gsel_version_text(void) {
  return gsel::kVersionText;
}

gsel_str gsel_str_from(const char* text) {
  return {text, text ? std::strlen(text) : 0};
}

size_t gsel_dtype_bytes(gsel_dtype dtype) {
  return gsel::dtype_bytes(dtype);
}
const char* gsel_dtype_name(gsel_dtype dtype) {
  return gsel::dtype_name(dtype);
}

int32_t gsel_axis_count(void) {
  return gsel::kAxes;
}
const char* gsel_axis_name(gsel_axis axis) {
  return gsel::axis_name(axis);
}

void gsel_comm_count_init(gsel_comm_count* count, size_t struct_size) {
  gsel::init_struct(count, struct_size);
}

gsel_range gsel_shard_range(int64_t n, int64_t parts, int64_t index) {
  return gsel::shard_range(n, parts, index);
}

const char* gsel_status_text(gsel_status status) {
  return gsel::status_text(status);
}
const char* gsel_status_name(gsel_status status) {
  return gsel::status_name(status);
}

gsel_status gsel_error_code(const gsel_error* error) {
  return gsel::code_of(error);
}
gsel_str gsel_error_message(const gsel_error* error) {
  return error ? gsel::borrow(error->error.message()) : gsel_str{"", 0};
}
const gsel_error* gsel_error_cause(const gsel_error* error) {
  return error ? error->cause.get() : nullptr;
}
int32_t gsel_error_rank(const gsel_error* error) {
  return error ? error->error.rank() : -1;
}
gsel_str gsel_error_file(const gsel_error* error) {
  return error ? gsel::borrow(error->error.place().file) : gsel_str{"", 0};
}
int32_t gsel_error_line(const gsel_error* error) {
  return error ? error->error.place().line : 0;
}
int32_t gsel_error_column(const gsel_error* error) {
  return error ? error->error.place().column : 0;
}
gsel_str gsel_error_token(const gsel_error* error) {
  return error ? gsel::borrow(error->error.place().token) : gsel_str{"", 0};
}

size_t gsel_error_format(const gsel_error* error, char* buffer, size_t capacity) {
  static constexpr std::string_view kBecause = ": caused by: ";
  size_t length = 0;
  auto put = [&](std::string_view part) {
    if (buffer && length < capacity)
      std::memcpy(buffer + length, part.data(), std::min(part.size(), capacity - length));
    length += part.size();
  };
  for (const gsel_error* e = error; e; e = e->cause.get()) {
    if (e != error) put(kBecause);
    put(e->error.message());
  }
  if (buffer && capacity) buffer[std::min(length, capacity - 1)] = '\0';
  return length + 1;
}

void gsel_error_free(gsel_error* error) {
  gsel::free_handle(error);
}

void gsel_log_set(gsel_log_fn sink, gsel_log_level level, void* user_data, gsel_free_fn free_user_data) {
  gsel::set_log_sink(sink, level, user_data, free_user_data);
}

}  // extern "C"
