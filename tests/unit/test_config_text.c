/* test_config_text.c: characters of gsel.toml: where those beyond ASCII may stand, and what is too deep to be read. */
#include "support/check.h"

/* U+00E9 and U+20AC in UTF-8. */
#define E9 "\xc3\xa9"
#define EURO "\xe2\x82\xac"
#define BOM "\xef\xbb\xbf"
#define STRAY(character) "\"" character "\" is outside of text and comments; put quotes around it"

static gsel_status parse(const char* text, gsel_config** config, gsel_error** err) {
  *config = NULL;
  *err = NULL;
  return gsel_config_parse(gsel_str_from(text), gsel_str_from("gsel.toml"), config, err);
}

typedef struct {
  const char* text;
  int32_t line, column;
  const char* message; /* behind the place */
  const char* token;
} Mistake;

static const Mistake kMistakes[] = {
    {E9 " = 1\n", 1, 1, STRAY(E9), E9},
    {BOM E9 "\n", 1, 1, STRAY(E9), E9},
    {"[train]\nbatch = 4 " E9 "\n", 2, 11, STRAY(E9), E9},
    {"[train]\nbatch" E9 " = 4\n", 2, 6, STRAY(E9), E9},
    {"[train]\nbatch = 4" E9, 2, 10, STRAY(E9), E9},
    {"[train]\nseed = t" E9 "\n", 2, 9, STRAY(E9), E9},
    {"[train]\nseed = [1, " E9 "]\n", 2, 12, STRAY(E9), E9},
    {"[tr" E9 "in]\n", 1, 4, STRAY(E9), E9},
    {"[train]\n" EURO "\n", 2, 1, STRAY(EURO), EURO},
    {"[train]\n\xe2\x82\n", 2, 1, STRAY("\\xe2"), "\\xe2"},
    {"[train]\n\xff", 2, 1, STRAY("\\xff"), "\\xff"},
    /* behind strings of every kind */
    {"[comm]\ntrace = \"" E9 E9 "\" " E9 "\n", 2, 14, STRAY(E9), E9},
    {"[comm]\ntrace = \"\\\"" E9 "\\\\\"" E9 "\n", 2, 16, STRAY(E9), E9},
    {"[comm]\ntrace = '" E9 "\\'" E9 "'\n", 2, 13, STRAY(E9), E9},
    {"[comm]\ntrace = \"\"" E9 "\n", 2, 11, STRAY(E9), E9},
    {"[comm]\ntrace = \"\"\"a\"\" \"\"\"\"\"" E9 "\n", 2, 21, STRAY(E9), E9},
    {"[comm]\ntrace = '''a\n'' ''''" E9 "\n", 3, 8, STRAY(E9), E9},
    /* where the parser looks for white space inside a string */
    {"[comm]\ntrace = \"\"\"\\" E9 "\"\"\"\n", 2, 13, "\"" E9 "\" cannot follow a backslash", E9},
    {"[comm]\ntrace = \"\"\"a\\\n  " E9 "\"\"\"\n", 3, 3,
     "\"" E9 "\" is first after a backslash that joins lines; put an ASCII character before it", E9},
    {"[comm]\ntrace = \"\"\"a\\ \r\n\n" E9 "\"\"\"\n", 4, 1, "\"" E9 "\" is first after a backslash", E9},
    /* where the parser looks for the end of a number */
    {"[train]\nbatch = 5\"" E9 "\"\n", 2, 10, "\"\"\" is in an unquoted value; use a number or a quoted text", "\""},
    {"[train]\nbatch = 1.'" E9 "'\n", 2, 11, "\"'\" is in an unquoted value", "'"},
    {"[train]\nbatch = 5=\"" E9 "\"\n", 2, 11, "\"\"\" is in an unquoted value", "\""},
    {"[train]\nbatch = [\n5, 6[\"" E9 "\"]]\n", 3, 6, "\"\"\" is in an unquoted value", "\""},
    {"[train]\nbatch = {a = 1, b = 2\"" E9 "\"}\n", 2, 22, "\"\"\" is in an unquoted value", "\""},
    {"[train]\nbatch = [{}, [], 2\"" E9 "\"]\n", 2, 19, "\"\"\" is in an unquoted value", "\""},
    {"[train]\nbatch = 1979-05-27 0#" E9 "\n", 2, 19, "\" \" is in an unquoted value; write T between date", " "},
    /* too deep */
    {"a.b.c.d.e.f.g.h.i.j = 1\n", 1, 18, "\".\" makes a key of more than 9 parts; use fewer", "."},
    {"a = 1\n[a. b.c.d.e.f.g.h.i.j]\n", 2, 20, "\".\" makes a key of more than 9 parts", "."},
    {"a = {b.c.d.e.f.g.h.i.j.k = 1}\n", 1, 23, "\".\" makes a key of more than 9 parts", "."},
    {"a = [[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]\n", 1, 21, "\"[\" opens a value in more than 16 others; use fewer", "["},
};

static void what_the_parser_must_not_see_is_named_with_its_place(void** state) {
  (void)state;
  for (size_t i = 0; i < sizeof kMistakes / sizeof *kMistakes; ++i) {
    const Mistake* m = &kMistakes[i];
    gsel_config* config;
    gsel_error* err;
    const gsel_status status = parse(m->text, &config, &err);
    char expected[256];
    snprintf(expected, sizeof expected, "gsel.toml:%d: column %d: %s", m->line, m->column, m->message);
    const char* got = gsel_error_message(err).data;
    if (status != GSEL_ERR_PARSE || strncmp(got, expected, strlen(expected)) != 0)
      fail_msg("%s\nexpected %s\n     got %s", m->text, expected, got);
    assert_null(config);
    assert_string_equal(gsel_error_token(err).data, m->token);
    assert_int_equal(gsel_error_line(err), m->line);
    assert_int_equal(gsel_error_column(err), m->column);
    gsel_error_free(err);
  }
}

static void check_value(const char* text, const char* key, const char* expected) {
  gsel_config* config;
  gsel_error* err;
  check_ok(parse(text, &config, &err), err);
  const gsel_str got = gsel_config_get(config, gsel_str_from(key));
  if (!got.data || strcmp(got.data, expected) != 0)
    fail_msg("%s\n%s: expected \"%s\", got %s", text, key, expected, got.data ? got.data : "nothing");
  gsel_config_free(config);
}

static void text_and_comments_may_have_any_character(void** state) {
  (void)state;
  check_value("[comm]\ntrace = \"/tmp/" E9 EURO "\"\n", "comm.trace", "/tmp/" E9 EURO);
  check_value("[comm]\ntrace = '" E9 "'\n", "comm.trace", E9);
  check_value("[comm]\ntrace = \"\\\"" E9 "\\\\\"\n", "comm.trace", "\"" E9 "\\");
  check_value("[comm]\ntrace = \"\"\"\n\"" E9 "\"\" \\\n  a" E9 "\\\"\"\"\"\"\n", "comm.trace",
              "\"" E9 "\"\" a" E9 "\"\"");
  check_value("[comm]\ntrace = '''" E9 "\n''" E9 "\\'''\n", "comm.trace", E9 "\n''" E9 "\\");
  check_value(BOM "# " E9 "\r\n[comm]#" E9 " \"\ntrace = \"a\"#" EURO "\n", "comm.trace", "a");
  check_value("[strategy.data]\nplugin = \"ddp\"\nname = \"a.b.c.d.e.f.g.h.i.j.k\" # a.b.c.d.e.f.g.h.i.j.k\n",
              "strategy.data.name", "a.b.c.d.e.f.g.h.i.j.k");
  check_value("strategy.\"data\".'plugin' = \"ddp\"\n", "strategy.data.plugin", "ddp");
  check_value(
      "[strategy]\ndata = {\"plugin\" = \""
      "ddp\", x = 1, \"y\" = '" E9 "'}\n",
      "strategy.data.y", E9);
  check_value("strategy . data . plugin = \"ddp\" # .......... \"\"\" [[[[[[[[[[[[[[[[[[[[\n", "strategy.data.plugin",
              "ddp");
}

/* Wherever a character beyond ASCII is put, it is a value, a mistake, and never something undefined; a sanitizer sees
 * more of this than the test does. */
static void any_character_anywhere_gives_an_answer(void** state) {
  (void)state;
  static const char kText[] =
      "# a\n[comm]\ntrace = \"\"\"a\\\n b\"\"\" # c\n[strategy.data]\nplugin = 'ddp'\nx.y = [1.5, {a = true}, "
      "1979-05-27]\n";
  static const char* const kPut[] = {"\xc2\x85", "\xc2\xa0",     E9,  "\xe1\x9a\x80",     "\xe2\x80\xa8",
                                     EURO,       "\xe3\x80\x80", BOM, "\xf0\x9f\x98\x80", "\xff"};
  for (size_t at = 0; at < sizeof kText; ++at)
    for (size_t which = 0; which < sizeof kPut / sizeof *kPut; ++which) {
      char text[sizeof kText + 8];
      snprintf(text, sizeof text, "%.*s%s%s", (int)at, kText, kPut[which], kText + at);
      gsel_config* config;
      gsel_error* err;
      const gsel_status status = parse(text, &config, &err);
      if (status != GSEL_ERR_PARSE && status != GSEL_ERR_CONFIG) fail_msg("%s\ngave %d", text, status);
      assert_true(gsel_error_line(err) >= 1);
      gsel_error_free(err);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_the_parser_must_not_see_is_named_with_its_place),
      cmocka_unit_test(text_and_comments_may_have_any_character),
      cmocka_unit_test(any_character_anywhere_gives_an_answer),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
