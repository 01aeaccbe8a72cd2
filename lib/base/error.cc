// base/error.cc: see error.h. Out of memory must be reportable without memory, hence the static object.
#include "base/error.h"

#include <cstring>

#include "base/text.h"

// NOLINTNEXTLINE(misc-no-recursion): as deep as the chain of causes
gsel_error::gsel_error(gsel::Error e) : error(std::move(e)) {
  if (error.cause()) cause = std::make_unique<gsel_error>(*error.cause());
}

namespace gsel {

namespace {

gsel_error& out_of_memory() noexcept {
  static gsel_error instance{Error(GSEL_ERR_NOMEM, "out of memory")};
  return instance;
}
// Constructed at load time, when there is memory.
[[maybe_unused]] const gsel_error& made_early = out_of_memory();

}  // namespace

std::string place_prefix(const Place& place) {
  if (place.file.empty()) return {};
  const std::string file = one_line(place.file);
  return place.line > 0 ? fmt::format("{}:{}: ", file, place.line) : file + ": ";
}

std::string errno_text(int number) {
  const char* name = strerrorname_np(number);
  return fmt::format("{} ({}{})", name ? name : std::to_string(number),
                     strerrordesc_np(number) ? strerrordesc_np(number) : "unknown",
                     number == EMFILE ? "; raise the limit, ulimit -n" : "");
}

gsel_error* to_handle(const Error& error) noexcept {
  try {
    return new gsel_error(error);
  } catch (...) {
    return &out_of_memory();
  }
}

// Copies the exception being handled. When there is no memory for the copy, the result is an out-of-memory error.
Error current_error() {
  try {
    throw;
  } catch (const Error& e) {
    try {
      return e;
    } catch (const std::bad_alloc&) {
      return Error(GSEL_ERR_NOMEM, "out of memory");
    }
  } catch (const std::bad_alloc&) {
    return Error(GSEL_ERR_NOMEM, "out of memory");
  } catch (const std::exception& e) {
    return Error(GSEL_ERR_INTERNAL, fmt::format("internal error: {}; please report it", e.what()));
  } catch (...) {
    return Error(GSEL_ERR_INTERNAL, "internal error of an unknown kind; please report it");
  }
}

gsel_error* current_exception_to_handle() noexcept {
  try {
    return to_handle(current_error());
  } catch (...) {
    return &out_of_memory();
  }
}

gsel_status code_of(const gsel_error* handle) noexcept {
  return handle ? handle->error.code() : GSEL_OK;
}

void free_handle(gsel_error* handle) noexcept {
  if (handle != &out_of_memory()) delete handle;
}

void take_over(gsel_status status, gsel_error* handle) {
  if (status == GSEL_OK) {
    free_handle(handle);
    return;
  }
  Error error = handle ? handle->error : Error(status, status_text(status));
  free_handle(handle);
  throw error;
}

const char* status_text(gsel_status status) {
#define GSEL_CASE(constant, number, text) \
  case number:                            \
    return text;
  switch (status) { GSEL_ERROR_LIST(GSEL_CASE) default : return "unknown code"; }
#undef GSEL_CASE
}

const char* status_name(gsel_status status) {
#define GSEL_CASE(constant, number, text) \
  case number:                            \
    return #constant;
  switch (status) { GSEL_ERROR_LIST(GSEL_CASE) default : return "unknown"; }
#undef GSEL_CASE
}

}  // namespace gsel
