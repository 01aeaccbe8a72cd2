/* unit/test_mesh.c: gsel/mesh.h: sizes from a config, coordinates of ranks and back, and communicators of the
 * axes against what coordinates say. */
#include <gsel/gsel.h>

#include "support/ranks.h"

static gsel_mesh mesh_of(int32_t tensor, int32_t data, int32_t pipeline) {
  gsel_mesh mesh = GSEL_MESH_INIT;
  mesh.size[GSEL_AXIS_TENSOR] = tensor;
  mesh.size[GSEL_AXIS_DATA] = data;
  mesh.size[GSEL_AXIS_PIPELINE] = pipeline;
  mesh.world_size = tensor * data * pipeline;
  return mesh;
}

static void a_mesh_is_that_of_the_config(void** state) {
  (void)state;
  gsel_error* err = NULL;
  gsel_config* config = NULL;
  gsel_mesh mesh = GSEL_MESH_INIT;
  check_ok(gsel_mesh_resolve(NULL, 6, &mesh, &err), err);
  assert_int_equal(mesh.world_size, 6);
  assert_int_equal(mesh.size[GSEL_AXIS_DATA], 6);
  check_ok(
      gsel_config_parse(gsel_str_from("[mesh]\ntensor = 2\npipeline = 3\n"), gsel_str_from("m.toml"), &config, &err),
      err);
  check_ok(gsel_mesh_resolve(config, 24, &mesh, &err), err);
  assert_int_equal(mesh.size[GSEL_AXIS_TENSOR], 2);
  assert_int_equal(mesh.size[GSEL_AXIS_DATA], 4);
  assert_int_equal(mesh.size[GSEL_AXIS_PIPELINE], 3);
  assert_int_equal(gsel_mesh_resolve(config, 8, &mesh, &err), GSEL_ERR_CONFIG);
  assert_non_null(strstr(gsel_error_message(err).data, "does not divide 8 ranks"));
  gsel_error_free(err);
  assert_int_equal(gsel_mesh_resolve(config, 0, &mesh, &err), GSEL_ERR_ARG);
  gsel_error_free(err);
  assert_int_equal(gsel_mesh_resolve(config, 6, NULL, &err), GSEL_ERR_ARG);
  gsel_error_free(err);
  gsel_config_free(config);
}

static void ranks_and_coordinates_are_two_names_of_the_same(void** state) {
  (void)state;
  const gsel_mesh mesh = mesh_of(2, 3, 4);
  int32_t rank = 0, coordinates[GSEL_MAX_AXES] = {0};
  for (coordinates[2] = 0; coordinates[2] < 4; ++coordinates[2])
    for (coordinates[1] = 0; coordinates[1] < 3; ++coordinates[1])
      for (coordinates[0] = 0; coordinates[0] < 2; ++coordinates[0], ++rank) {
        assert_int_equal(gsel_mesh_rank(&mesh, coordinates, GSEL_MAX_AXES), rank);
        for (gsel_axis axis = 0; axis < gsel_axis_count(); ++axis)
          assert_int_equal(gsel_mesh_coordinate(&mesh, rank, axis), coordinates[axis]);
      }
  const int32_t outside[][GSEL_MAX_AXES] = {{2, 0, 0}, {0, 3, 0}, {0, 0, 4}, {-1, 0, 0}};
  for (size_t i = 0; i < 4; ++i) assert_int_equal(gsel_mesh_rank(&mesh, outside[i], 3), -1);
  assert_int_equal(gsel_mesh_coordinate(&mesh, 24, GSEL_AXIS_DATA), -1);
  assert_int_equal(gsel_mesh_coordinate(&mesh, -1, GSEL_AXIS_DATA), -1);
  assert_int_equal(gsel_mesh_coordinate(&mesh, 0, GSEL_MAX_AXES), -1);
  assert_int_equal(gsel_mesh_coordinate(&mesh, 0, -1), -1);
  assert_int_equal(gsel_mesh_coordinate(NULL, 0, 0), -1);
  assert_int_equal(gsel_mesh_rank(&mesh, NULL, 1), -1);
  gsel_mesh wrong = mesh;
  wrong.world_size = 23;
  assert_int_equal(gsel_mesh_coordinate(&wrong, 0, 0), -1);
  wrong = mesh_of(1 << 20, 1 << 20, 1 << 20);
  assert_int_equal(gsel_mesh_coordinate(&wrong, 0, 0), -1);
}

/* Every set of axes: who is in the group, and in which order. */
static void splits(rank_run* run) {
  gsel_error* err = NULL;
  gsel_comm* comm;
  const gsel_mesh mesh = mesh_of(2, 2, run->world_size / 4);
  rank_ok(run, rank_join(run, &comm, &err), err);
  for (uint32_t axes = 0; axes < 1u << gsel_axis_count(); ++axes) {
    gsel_comm* group;
    int32_t members[RANKS_MAX], n = 0;
    rank_ok(run, gsel_mesh_split(comm, &mesh, axes, &group, &err), err);
    rank_ok(run, gsel_allgather(group, &run->rank, members, 1, GSEL_I32, &err), err);
    for (int32_t other = 0; other < run->world_size; ++other) {
      int differs = 0;
      for (gsel_axis axis = 0; axis < gsel_axis_count(); ++axis)
        differs |= !(axes >> axis & 1) &&
                   gsel_mesh_coordinate(&mesh, other, axis) != gsel_mesh_coordinate(&mesh, run->rank, axis);
      if (differs) continue;
      rank_check(run, n < gsel_comm_world_size(group) && members[n] == other);
      ++n;
    }
    rank_check(run, n == gsel_comm_world_size(group));
    gsel_comm_free(group);
  }
  gsel_comm* none = comm;
  rank_check(run, gsel_mesh_split(comm, &mesh, 1u << gsel_axis_count(), &none, &err) == GSEL_ERR_ARG && none == NULL);
  gsel_error_free(err);
  const gsel_mesh larger = mesh_of(2, 2, run->world_size);
  rank_check(run, gsel_mesh_split(comm, &larger, 1, &none, &err) == GSEL_ERR_ARG);
  rank_check(run, strstr(gsel_error_message(err).data, "they must have as many") != NULL);
  gsel_error_free(err);
  gsel_comm_free(comm);
}

static void a_split_has_the_ranks_that_differ_on_its_axes(void** state) {
  (void)state;
  as_threads(4, splits, NULL);
  as_threads(12, splits, NULL);
  as_processes(8, splits, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_mesh_is_that_of_the_config),
      cmocka_unit_test(ranks_and_coordinates_are_two_names_of_the_same),
      cmocka_unit_test(a_split_has_the_ranks_that_differ_on_its_axes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
