/* test_base.c: status codes, log lines, element types and the split of items, as any caller sees them. */
#include "support/check.h"

#define CODE(constant, number, text) {#constant, constant, number, text},
static const struct {
  const char* name;
  gsel_status value, number;
  const char* text;
} kCodes[] = {GSEL_ERROR_LIST(CODE)};
#undef CODE
enum { kCodeCount = sizeof kCodes / sizeof kCodes[0] };

static void every_code_has_a_number_a_name_and_a_text_of_its_own(void** state) {
  (void)state;
  for (int i = 0; i < kCodeCount; ++i) {
    assert_int_equal(kCodes[i].value, kCodes[i].number);
    assert_true(kCodes[i].value <= 0);
    assert_string_equal(gsel_status_name(kCodes[i].value), kCodes[i].name);
    assert_string_equal(gsel_status_text(kCodes[i].value), kCodes[i].text);
    for (int j = 0; j < i; ++j) {
      assert_int_not_equal(kCodes[i].value, kCodes[j].value);
      assert_string_not_equal(kCodes[i].text, kCodes[j].text);
    }
  }
}

static void unknown_codes_are_harmless(void** state) {
  (void)state;
  const gsel_status unknown[] = {1, -21, -9999, INT32_MIN, INT32_MAX};
  for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; ++i) {
    assert_string_equal(gsel_status_name(unknown[i]), "unknown");
    assert_string_equal(gsel_status_text(unknown[i]), "unknown code");
  }
}

static void parts_of_no_error_are_empty(void** state) {
  (void)state;
  assert_int_equal(gsel_error_code(NULL), GSEL_OK);
  assert_string_equal(gsel_error_message(NULL).data, "");
  assert_null(gsel_error_cause(NULL));
  assert_int_equal(gsel_error_rank(NULL), -1);
  assert_string_equal(gsel_error_file(NULL).data, "");
  assert_int_equal(gsel_error_line(NULL), 0);
  assert_int_equal(gsel_error_column(NULL), 0);
  assert_string_equal(gsel_error_token(NULL).data, "");
  char buffer[4] = "xyz";
  assert_int_equal(gsel_error_format(NULL, buffer, sizeof buffer), 1);
  assert_string_equal(buffer, "");
  assert_int_equal(gsel_error_format(NULL, NULL, 0), 1);
  gsel_error_free(NULL);
}

static void a_failing_call_gives_code_and_message_and_a_good_one_clears(void** state) {
  (void)state;
  gsel_config* config = NULL;
  gsel_error* err = NULL;
  const gsel_str bad = GSEL_STR("[train]\nbatch = 0\n");
  assert_int_equal(gsel_config_parse(bad, gsel_str_from("f"), &config, &err), GSEL_ERR_CONFIG);
  assert_int_equal(gsel_error_code(err), GSEL_ERR_CONFIG);
  assert_int_equal(gsel_error_message(err).len, strlen(gsel_error_message(err).data));
  assert_int_equal(gsel_error_rank(err), -1);
  gsel_error_free(err);
  assert_int_equal(gsel_config_parse(bad, gsel_str_from("f"), &config, NULL), GSEL_ERR_CONFIG);
  err = (gsel_error*)&config;
  assert_int_equal(gsel_config_parse(gsel_str_from(""), gsel_str_from("f"), &config, &err), GSEL_OK);
  assert_null(err);
  gsel_config_free(config);
}

static void element_types_have_the_sizes_and_names_they_are_called_by(void** state) {
  (void)state;
  const struct {
    gsel_dtype dtype;
    size_t bytes;
    const char* name;
  } types[] = {{GSEL_I8, 1, "i8"},         {GSEL_U8, 1, "u8"},         {GSEL_I16, 2, "i16"},  {GSEL_U16, 2, "u16"},
               {GSEL_I32, 4, "i32"},       {GSEL_U32, 4, "u32"},       {GSEL_I64, 8, "i64"},  {GSEL_U64, 8, "u64"},
               {GSEL_F16, 2, "f16"},       {GSEL_BF16, 2, "bf16"},     {GSEL_F32, 4, "f32"},  {GSEL_F64, 8, "f64"},
               {GSEL_F8E4M3, 1, "f8e4m3"}, {GSEL_F8E5M2, 1, "f8e5m2"}, {GSEL_BOOL, 1, "bool"}};
  for (size_t i = 0; i < sizeof types / sizeof types[0]; ++i) {
    assert_int_equal(types[i].dtype, i + 1); /* the numbers are frozen */
    assert_int_equal(gsel_dtype_bytes(types[i].dtype), types[i].bytes);
    assert_string_equal(gsel_dtype_name(types[i].dtype), types[i].name);
  }
  const gsel_dtype unknown[] = {0, 16, -1, INT32_MIN, INT32_MAX};
  for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; ++i) {
    assert_int_equal(gsel_dtype_bytes(unknown[i]), 0);
    assert_string_equal(gsel_dtype_name(unknown[i]), "unknown");
  }
}

static void check_split(int64_t n, int64_t parts) {
  int64_t end = 0, first = -1, last_size = 0;
  for (int64_t i = 0; i < parts; ++i) {
    const gsel_range range = gsel_shard_range(n, parts, i);
    const int64_t size = range.end - range.begin;
    if (i == 0) first = size;
    if (range.begin != end || size < 0 || size > first || size < first - 1 || (i > 0 && size > last_size))
      fail_msg("part %d of %d of %d items is [%d, %d)", (int)i, (int)parts, (int)n, (int)range.begin, (int)range.end);
    end = range.end;
    last_size = size;
  }
  assert_int_equal(end, n);
}

static void parts_cover_all_items_once_with_larger_parts_first(void** state) {
  (void)state;
  for (int64_t n = 0; n <= 40; ++n)
    for (int64_t parts = 1; parts <= 45; ++parts) check_split(n, parts);
  check_split(INT64_MAX, 3);
  check_split(INT64_MAX - 1, 1000);
}

static void a_split_out_of_range_is_empty(void** state) {
  (void)state;
  const int64_t wrong[][3] = {{-1, 2, 0}, {4, 0, 0}, {4, -2, 0}, {4, 2, -1}, {4, 2, 2}, {4, INT64_MIN, INT64_MIN}};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
    const gsel_range range = gsel_shard_range(wrong[i][0], wrong[i][1], wrong[i][2]);
    assert_int_equal(range.begin, 0);
    assert_int_equal(range.end, 0);
  }
}

static void text_and_version_are_as_declared(void** state) {
  (void)state;
  const gsel_str given = gsel_str_from("abc"), absent = gsel_str_from(NULL), literal = GSEL_STR("abc");
  assert_int_equal(given.len, 3);
  assert_null(absent.data);
  assert_int_equal(absent.len, 0);
  assert_int_equal(literal.len, GSEL_NUL);
  assert_int_equal(gsel_version(), GSEL_VERSION_NUMBER);
  char expected[32];
  snprintf(expected, sizeof expected, "%d.%d.%d", GSEL_VERSION_MAJOR, GSEL_VERSION_MINOR, GSEL_VERSION_PATCH);
  assert_string_equal(gsel_version_text(), expected);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_code_has_a_number_a_name_and_a_text_of_its_own),
      cmocka_unit_test(unknown_codes_are_harmless),
      cmocka_unit_test(parts_of_no_error_are_empty),
      cmocka_unit_test(a_failing_call_gives_code_and_message_and_a_good_one_clears),
      cmocka_unit_test(element_types_have_the_sizes_and_names_they_are_called_by),
      cmocka_unit_test(parts_cover_all_items_once_with_larger_parts_first),
      cmocka_unit_test(a_split_out_of_range_is_empty),
      cmocka_unit_test(text_and_version_are_as_declared),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
