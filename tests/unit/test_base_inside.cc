// test_base_inside.cc: errors with causes, exceptions at the wall, the growth rule of structs, log lines, numbers in
// messages.
#include <new>
#include <stdexcept>

#include "base/guard.h"
#include "base/log.h"
#include "base/options.h"
#include "base/text.h"
#include "support/check.h"

namespace {

using gsel::Error;

gsel_error* chain_of_three() {
  const Error bottom = Error(GSEL_ERR_IO, "disk is full");
  const Error middle = Error(GSEL_ERR_PARSE, "no header").because(bottom);
  return gsel::to_handle(
      Error(GSEL_ERR_CONFIG, "cannot start").because(middle).about_rank(3).at({"a.toml", 4, 2, "train.batch"}));
}

void an_error_keeps_its_causes_rank_and_place(void**) {
  gsel_error* err = chain_of_three();
  assert_int_equal(gsel_error_code(err), GSEL_ERR_CONFIG);
  assert_int_equal(gsel_error_rank(err), 3);
  assert_string_equal(gsel_error_file(err).data, "a.toml");
  assert_int_equal(gsel_error_line(err), 4);
  assert_int_equal(gsel_error_column(err), 2);
  assert_string_equal(gsel_error_token(err).data, "train.batch");
  const gsel_error* middle = gsel_error_cause(err);
  assert_int_equal(gsel_error_code(middle), GSEL_ERR_PARSE);
  const gsel_error* bottom = gsel_error_cause(middle);
  assert_string_equal(gsel_error_message(bottom).data, "disk is full");
  assert_int_equal(gsel_error_rank(bottom), -1);
  assert_null(gsel_error_cause(bottom));
  gsel_error_free(err);
}

void formatting_joins_the_chain_and_is_cut_to_any_capacity(void**) {
  gsel_error* err = chain_of_three();
  const char whole[] = "cannot start: caused by: no header: caused by: disk is full";
  assert_int_equal(gsel_error_format(err, nullptr, 0), sizeof whole);
  for (size_t capacity = 0; capacity <= sizeof whole + 1; ++capacity) {
    char buffer[sizeof whole + 2];
    std::memset(buffer, '#', sizeof buffer);
    assert_int_equal(gsel_error_format(err, buffer, capacity), sizeof whole);
    const size_t shown = std::min(capacity ? capacity - 1 : 0, sizeof whole - 1);
    assert_memory_equal(buffer, whole, shown);
    if (capacity) assert_int_equal(buffer[shown], '\0');
    for (size_t i = capacity; i < sizeof buffer; ++i) assert_int_equal(buffer[i], '#');  // nothing past the end
  }
  gsel_error_free(err);
}

template <class Thrown>
void check_guarded(Thrown&& thrown, gsel_status code, const char* message) {
  gsel_error* err = nullptr;
  const auto body = [&] { throw thrown; };
  assert_int_equal(gsel::guard(&err, body), code);
  assert_int_equal(gsel_error_code(err), code);
  assert_string_equal(gsel_error_message(err).data, message);
  gsel_error_free(err);
  assert_int_equal(gsel::guard(nullptr, body), code);
}

void every_exception_becomes_a_status_at_the_wall(void**) {
  check_guarded(Error(GSEL_ERR_PEER, "rank 2 died"), GSEL_ERR_PEER, "rank 2 died");
  check_guarded(std::bad_alloc(), GSEL_ERR_NOMEM, "out of memory");
  check_guarded(std::runtime_error("x > y"), GSEL_ERR_INTERNAL, "internal error: x > y; please report it");
}

void the_out_of_memory_object_can_be_freed_any_number_of_times(void**) {
  for (int i = 0; i < 3; ++i) check_guarded(std::bad_alloc(), GSEL_ERR_NOMEM, "out of memory");
}

void a_status_with_its_object_becomes_an_exception_again(void**) {
  gsel::throw_if_failed(GSEL_OK, nullptr);
  gsel_error* err = nullptr;
  const gsel_status status = gsel::guard(&err, [] { gsel::throw_if_failed(GSEL_ERR_CONFIG, chain_of_three()); });
  assert_int_equal(status, GSEL_ERR_CONFIG);
  assert_int_equal(gsel_error_rank(err), 3);
  assert_string_equal(gsel_error_message(gsel_error_cause(gsel_error_cause(err))).data, "disk is full");
  gsel_error_free(err);
  assert_int_equal(gsel::guard(&err, [] { gsel::throw_if_failed(GSEL_ERR_IO, nullptr); }), GSEL_ERR_IO);
  assert_string_equal(gsel_error_message(err).data, "file or system call failed");
  gsel_error_free(err);
}

// A struct as this library knows it, and as an older and a newer caller do.
struct Known {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t first;
  int64_t second;
};
struct Newer {
  Known known;
  int64_t third;
};

void a_shorter_struct_is_read_with_zeros_for_what_it_lacks(void**) {
  const Known older = {offsetof(Known, second), 0, 11, 22};
  const Known read = gsel::read_struct(&older, "known");
  assert_int_equal(read.struct_size, sizeof(Known));
  assert_int_equal(read.first, 11);
  assert_int_equal(read.second, 0);
}

void a_longer_struct_is_read_when_its_unknown_tail_is_zero(void**) {
  Newer newer = {{sizeof(Newer), 0, 11, 22}, 0};
  assert_int_equal(gsel::read_struct(&newer.known, "known").second, 22);
  newer.third = 1;
  gsel_error* err = nullptr;
  check_fails(gsel::guard(&err, [&] { gsel::read_struct(&newer.known, "known"); }), err, GSEL_ERR_VERSION,
              "known has 32 bytes with fields set that this libgsel 0.1.0 (24 bytes) does not know; update libgsel");
}

void a_struct_without_its_size_is_refused(void**) {
  gsel_error* err = nullptr;
  for (uint32_t size : {0u, 7u}) {
    const Known unset = {size, 0, 0, 0};
    Known out = unset;
    check_fails(gsel::guard(&err, [&] { gsel::read_struct(&unset, "known"); }), err, GSEL_ERR_VERSION,
                "initialise it with its _INIT macro or _init function");
    check_fails(gsel::guard(&err, [&] { gsel::write_struct(&out, unset, "known"); }), err, GSEL_ERR_VERSION,
                "this libgsel knows 24 bytes");
  }
  const Known* none = nullptr;
  check_fails(gsel::guard(&err, [&] { gsel::read_struct(none, "known"); }), err, GSEL_ERR_ARG, "known is NULL");
}

struct Seen {
  int lines = 0;
  std::string last;
};

void remember(gsel_log_level level, gsel_str component, gsel_str line, void* user_data) {
  auto* seen = static_cast<Seen*>(user_data);
  ++seen->lines;
  seen->last = fmt::format("{} {} {}", level, std::string_view(component.data, component.len),
                           std::string_view(line.data, line.len));
}

void log_lines_reach_the_sink_up_to_its_level(void**) {
  Seen seen;
  gsel_log_set(remember, GSEL_LOG_INFO, &seen, nullptr);
  gsel::log(GSEL_LOG_INFO, "comm", "rank {} joined", 2);
  assert_string_equal(seen.last.c_str(), "3 comm rank 2 joined");
  gsel::log(GSEL_LOG_DEBUG, "comm", "too detailed");
  assert_int_equal(seen.lines, 1);
  gsel_log_set(nullptr, GSEL_LOG_DEBUG, nullptr, nullptr);
  assert_false(gsel::log_wanted(GSEL_LOG_ERROR));
  gsel::log(GSEL_LOG_ERROR, "comm", "nobody listens");
  assert_int_equal(seen.lines, 1);
}

void a_number_and_its_noun_agree(void**) {
  const struct {
    int64_t n;
    const char *noun, *expected;
  } rows[] = {{1, "rank", "1 rank"},         {2, "rank", "2 ranks"},
              {0, "rank", "0 ranks"},        {1, "process", "1 process"},
              {8, "process", "8 processes"}, {3, "batch", "3 batches"},
              {2, "entry", "2 entries"},     {2, "key", "2 keys"},
              {-1, "byte", "-1 bytes"},      {2, "micro-batch", "2 micro-batches"},
              {2, "box", "2 boxes"}};
  for (const auto& row : rows) assert_string_equal(gsel::with_noun(row.n, row.noun).c_str(), row.expected);
}

void seconds_are_told_as_they_were_given(void**) {
  const struct {
    double seconds;
    const char* expected;
  } rows[] = {{0.1 + 0.2, "0.3 s"},  {60, "60 s"},      {0.25, "0.25 s"},
              {1e9, "1000000000 s"}, {3600, "3600 s"},  {1.0 / 3, "0.333333 s"},
              {123456, "123456 s"},  {1e-6, "1e-06 s"}, {0, "0 s"}};
  for (const auto& row : rows) assert_string_equal(gsel::seconds_text(row.seconds).c_str(), row.expected);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(an_error_keeps_its_causes_rank_and_place),
      cmocka_unit_test(formatting_joins_the_chain_and_is_cut_to_any_capacity),
      cmocka_unit_test(every_exception_becomes_a_status_at_the_wall),
      cmocka_unit_test(the_out_of_memory_object_can_be_freed_any_number_of_times),
      cmocka_unit_test(a_status_with_its_object_becomes_an_exception_again),
      cmocka_unit_test(a_shorter_struct_is_read_with_zeros_for_what_it_lacks),
      cmocka_unit_test(a_longer_struct_is_read_when_its_unknown_tail_is_zero),
      cmocka_unit_test(a_struct_without_its_size_is_refused),
      cmocka_unit_test(a_number_and_its_noun_agree),
      cmocka_unit_test(seconds_are_told_as_they_were_given),
      cmocka_unit_test(log_lines_reach_the_sink_up_to_its_level),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
