/* linked.c: a program whose strategies are linked into it. It registers them, then goes on as examples/gpt, whose main
 * is compiled under the name gpt_main. */
#include <gsel/gsel.h>
#include <gsel/strategies.h>
#include <stdio.h>

int gpt_main(int argc, char** argv);

int main(int argc, char** argv) {
  for (int i = 0; gsel_strategies_v1[i]; ++i) {
    gsel_error* err;
    if (gsel_plugin_register(gsel_strategies_v1[i], &err)) {
      fprintf(stderr, "%s\n", gsel_error_message(err).data);
      gsel_error_free(err);
      return 1;
    }
  }
  return gpt_main(argc, argv);
}
