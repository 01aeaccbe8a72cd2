/* nets/scene.h: an object of each opaque type and an argument of each struct, good ones, for calls that are then made
 * with one thing changed. A type without a maker here is a failure of the net that meets it. */
#ifndef GSEL_TESTS_NETS_SCENE_H
#define GSEL_TESTS_NETS_SCENE_H

#include "nets/table.h"
#include "support/ranks.h"

enum { SCENE_OBJECTS = 28 };

/* What one rank holds. */
typedef struct scene {
  rank_run run;
  const char* function; /* that is to be called */
  int variant;          /* of the structs that have several good forms */
  void* objects[SCENE_OBJECTS];
  struct scene_rest* rest;
  char failure[512];
} scene;

void scene_open(scene* s, const char* function, int32_t rank, int32_t world_size, const gsel_unique_id* id,
                int variant);
/* The object of this type, made when first asked for; NULL with s->failure when it could not be. */
void* scene_object(scene* s, const char* type);
/* The function under test has released it. */
void scene_forget(scene* s, const char* type);
/* Releases an object of this type that a function gave out. */
void scene_release(const char* type, void* object);
void scene_close(scene* s);

/* Whether there are objects of this type, and whether they belong to a communicator. */
int scene_makes(const char* type);
int scene_needs_comm(const char* type);
/* A good struct of this type; 0: `variant` is past the last. The size is noted already. */
int scene_fill(scene* s, const char* record, void* at);
/* A good text or number for a parameter of this name; NULL or 0 where nothing special is needed. */
const char* scene_text(const char* function, const char* name);
int scene_number(const scene* s, const char* function, const char* name, int64_t* value);

#endif
