/* exclude.c: see exclude.h. The list has comma-separated names; a * in a name matches any characters. The error for an
 * unknown name suggests the nearest one, by edit distance. */
#include "tp/exclude.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 100 }; /* name length for edit distances */

struct name {
  const char* text;
  size_t length;
};

static void refuse(struct placements* p, gsel_status status, const char* text, gsel_error** err) {
  if (p->status) return;
  p->status = status;
  *err = p->host->error_new(status, text);
}

static int matches(struct name pattern, const char* layer) {
  size_t at = 0, star = (size_t)-1;
  const char* behind = layer; /* end of the characters matched by the last star */
  while (*layer) {
    if (at < pattern.length && pattern.text[at] == '*') {
      star = at++, behind = layer;
    } else if (at < pattern.length && pattern.text[at] == *layer) {
      ++at, ++layer;
    } else if (star != (size_t)-1) {
      at = star + 1, layer = ++behind;
    } else {
      return 0;
    }
  }
  while (at < pattern.length && pattern.text[at] == '*') ++at;
  return at == pattern.length;
}

/* Levenshtein distance. */
static int distance(struct name a, const char* b) {
  int row[LONGEST + 1];
  const size_t n = strlen(b) < LONGEST ? strlen(b) : LONGEST;
  for (size_t j = 0; j <= n; ++j) row[j] = (int)j;
  for (size_t i = 1; i <= a.length; ++i) {
    int diagonal = row[0];
    row[0] = (int)i;
    for (size_t j = 1; j <= n; ++j) {
      const int replaced = diagonal + (a.text[i - 1] != b[j - 1]);
      const int least = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
      diagonal = row[j];
      row[j] = least < replaced ? least : replaced;
    }
  }
  return row[n];
}

static void refuse_unknown(struct placements* p, struct name name, gsel_error** err) {
  char text[640];
  const char* nearest = "";
  int least = -1;
  gsel_layer_info layer = {.struct_size = sizeof layer};
  for (int32_t l = 0; l < p->api->layer_count(p->pass); ++l) {
    if (placements_layer(p, l, &layer)) return;
    if (name.length > LONGEST || !placements_are_declared(p, &layer)) continue;
    const int far = distance(name, layer.name);
    if (least < 0 || far < least) least = far, nearest = layer.name;
  }
  snprintf(
      text, sizeof text,
      "tp: strategy.tensor.exclude names \"%.*s\", and no layer has this name%s%.100s%s; names with commas between "
      "are accepted, in which * stands for any characters",
      (int)(name.length < LONGEST ? name.length : LONGEST), name.text, least < 0 ? "" : ", the nearest is \"", nearest,
      least < 0 ? "" : "\"");
  refuse(p, GSEL_ERR_CONFIG, text, err);
}

static void exclude_one(struct placements* p, struct name name, unsigned char* excluded, gsel_error** err) {
  const char *found = NULL, *divided = NULL;
  gsel_layer_info layer = {.struct_size = sizeof layer};
  for (int32_t l = 0; l < p->api->layer_count(p->pass); ++l) {
    if (placements_layer(p, l, &layer)) return;
    if (!matches(name, layer.name)) continue;
    found = layer.name;
    if (placements_are_declared(p, &layer)) divided = layer.name, excluded[l] = 1;
  }
  if (!found) {
    refuse_unknown(p, name, err);
  } else if (!divided) {
    char text[512];
    snprintf(text, sizeof text,
             "tp: strategy.tensor.exclude names \"%.*s\", and nothing divides layer \"%.100s\"; leave it out",
             (int)(name.length < LONGEST ? name.length : LONGEST), name.text, found);
    refuse(p, GSEL_ERR_CONFIG, text, err);
  }
}

/* A parameter is either split or not: all layers that use it must agree. */
static void check_shared(struct placements* p, const unsigned char* excluded, gsel_error** err) {
  const int32_t n_layers = p->api->layer_count(p->pass), n_params = p->api->param_count(p->pass);
  struct users {
    const char* who[2]; /* divided, excluded */
  }* of = calloc((size_t)n_params + 1, sizeof *of);
  if (!of) p->status = GSEL_ERR_NOMEM;
  for (int32_t l = 0; l < n_layers && !p->status; ++l) {
    gsel_layer_info layer = {.struct_size = sizeof layer};
    if (placements_layer(p, l, &layer)) break;
    for (int32_t i = 0; i < layer.n_params; ++i) of[layer.params[i]].who[excluded[l]] = layer.name;
  }
  for (int32_t one = 0; one < n_params && !p->status; ++one) {
    gsel_param_info param = {.struct_size = sizeof param};
    const char* const* who = of[one].who;
    if (!who[0] || !who[1] || p->api->param(p->pass, one, &param) || param.shard != GSEL_SHARD_DIM) continue;
    char text[640];
    snprintf(text, sizeof text,
             "tp: strategy.tensor.exclude names layer \"%.100s\" and not layer \"%.100s\", and both have parameter "
             "\"%.100s\"; name both or neither",
             who[1], who[0], param.name);
    refuse(p, GSEL_ERR_CONFIG, text, err);
  }
  free(of);
}

unsigned char* exclude_read(struct placements* p, gsel_error** err) {
  const char* rest = p->api->option_text(p->pass, "exclude");
  unsigned char* excluded = calloc((size_t)p->api->layer_count(p->pass) + 1, 1);
  if (!excluded) p->status = GSEL_ERR_NOMEM;
  while (!p->status && rest && *rest) {
    struct name name = {rest, strcspn(rest, ",")};
    rest += name.length + (rest[name.length] == ',');
    for (; name.length && *name.text == ' '; --name.length) ++name.text;
    while (name.length && name.text[name.length - 1] == ' ') --name.length;
    exclude_one(p, name, excluded, err);
  }
  if (!p->status) check_shared(p, excluded, err);
  if (!p->status) return excluded;
  free(excluded);
  return NULL;
}
