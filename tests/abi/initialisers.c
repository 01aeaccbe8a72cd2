/* initialisers.c: every initialiser of the public headers, in each place where people write one, as C and as C++.
 * initialisers.inc, made of the headers by headers.sh, lists them as INITIALISER(type, macro, function). */
#include <gsel/gsel.h>
#include <gsel/plugin.h>
#include <stdio.h>
#include <string.h>

/* At file scope, where C wants a constant. */
#define INITIALISER(type, macro, function) static const type constant_##type = macro;
#include "initialisers.inc"
#undef INITIALISER

static int failures;

static void compare(const char* macro, uint32_t size, size_t type_bytes, const void* by_macro,
                    const void* by_function) {
  if (size == type_bytes && memcmp(by_macro, by_function, type_bytes) == 0) return;
  printf("%s: expected struct_size %u and the bytes its function writes, got struct_size %u%s\n", macro,
         (unsigned)type_bytes, (unsigned)size, size == type_bytes ? " and other bytes" : "");
  ++failures;
}

/* As a variable, over a function that finds the memory full of ones; NULL is fine there. */
#define INITIALISER(type, macro, function)                                                      \
  static void try_##type(void) {                                                                \
    const type by_macro = macro;                                                                \
    type by_function;                                                                           \
    memset(&by_function, 0xff, sizeof by_function);                                             \
    function(&by_function, sizeof by_function);                                                 \
    function(NULL, sizeof by_function);                                                         \
    compare(#macro, by_macro.struct_size, sizeof(type), &by_macro, &by_function);               \
    compare(#macro, constant_##type.struct_size, sizeof(type), &constant_##type, &by_function); \
  }
#include "initialisers.inc"
#undef INITIALISER

static const gsel_str literal = GSEL_STR("text");
GSEL_PLUGIN_DEFINE = {sizeof(struct gsel_plugin_v1),
                      0,
                      GSEL_PLUGIN_ABI_MAJOR,
                      GSEL_PLUGIN_ABI_MINOR,
                      GSEL_PLUGIN_STRATEGY,
                      0,
                      "none",
                      "0",
                      "test",
                      NULL,
                      NULL};

int main(void) {
#define INITIALISER(type, macro, function) try_##type();
#include "initialisers.inc"
#undef INITIALISER
  if (strcmp(literal.data, "text") != 0 || literal.len != GSEL_NUL) ++failures, puts("GSEL_STR: wrong text");
  if (gsel_plugin_v1.struct_size != sizeof gsel_plugin_v1) ++failures, puts("GSEL_PLUGIN_DEFINE: wrong size");
  if (gsel_version() != GSEL_VERSION_NUMBER) ++failures, puts("gsel_version: not that of the headers");
  return failures != 0;
}
