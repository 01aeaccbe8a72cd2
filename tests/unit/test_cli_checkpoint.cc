// gsel/checkpoint.h without a trainer, and `gsel checkpoint`: what they say of checkpoints, what they write, and how a
// call is ended.
#include <dirent.h>

#include <cmath>
#include <string>

#include "support/command.h"
#include "support/one_trainer.h"

namespace {

std::string in_dir(const char* name) {
  return std::string(dir) + "/" + name;
}

gsel_checkpoint* opened(const char* name) {
  gsel_checkpoint* checkpoint = nullptr;
  gsel_error* error = nullptr;
  check_ok(gsel_checkpoint_open(gsel_str_from(in_dir(name).c_str()), &checkpoint, &error), error);
  return checkpoint;
}

std::string text(gsel_str s) {
  return {s.data, s.len};
}

// run: steps 1 and 2, other: step 1 of another optimizer.
int set_up(void**) {
  if (command_set_up("checkpoint") != 0) return -1;
  OneTrainer trainer;
  for (int i = 0; i < 2; ++i) trainer.step(), trainer.save(in_dir("run"));
  OneTrainer other("adamw");
  other.step();
  other.save(in_dir("other"));
  return 0;
}
int tear_down(void**) {
  return command_tear_down();
}

void a_checkpoint_is_looked_into(void**) {
  gsel_checkpoint* const checkpoint = opened("run");
  gsel_error* error = nullptr;
  gsel_checkpoint_info info = GSEL_CHECKPOINT_INFO_INIT;
  check_ok(gsel_checkpoint_inspect(checkpoint, &info, &error), error);
  assert_string_equal(text(info.path).c_str(), in_dir("run/step-000000000002").c_str());
  assert_string_equal(text(info.optimizer).c_str(), "lion");
  assert_int_equal(info.step, 2);
  assert_int_equal(info.updates, 2);
  assert_true(info.learning_rate == -1);
  assert_int_equal(info.n_entries, 2 * N_PARAMS);
  assert_int_equal(info.n_files, 2);
  assert_int_equal(info.entry_bytes, 2 * sizeof(float) * EXACT_ELEMS);
  gsel_checkpoint_entry entry = GSEL_CHECKPOINT_ENTRY_INIT;
  uint64_t bytes = 0;
  for (int32_t i = 0; i < info.n_entries; ++i) {
    check_ok(gsel_checkpoint_entry_get(checkpoint, i, &entry, &error), error);
    int64_t elems = 1, found = 0;
    for (int32_t d = 0; d < entry.n_dims; ++d) elems *= entry.shape[d];
    for (int32_t p = 0; p < entry.n_pieces; ++p) {
      gsel_checkpoint_piece piece = GSEL_CHECKPOINT_PIECE_INIT;
      check_ok(gsel_checkpoint_piece_get(checkpoint, i, p, &piece, &error), error);
      assert_string_equal(text(piece.file).c_str(), "rank-00000.safetensors");
      assert_string_equal(text(piece.key).c_str(), text(entry.name).c_str());
      assert_int_equal(piece.first, 0);
      found += piece.count;
    }
    assert_int_equal(found, elems);
    assert_int_equal(entry.bytes, sizeof(float) * static_cast<uint64_t>(elems));
    assert_int_equal(entry.dtype, GSEL_F32);
    assert_int_equal(text(entry.name).find(text(entry.role) + ":"), 0);
    bytes += entry.bytes;
  }
  assert_int_equal(bytes, info.entry_bytes);
  assert_int_equal(gsel_checkpoint_entry_get(checkpoint, info.n_entries, &entry, nullptr), GSEL_ERR_ARG);
  assert_int_equal(gsel_checkpoint_open(gsel_str_from("/nowhere"), nullptr, nullptr), GSEL_ERR_ARG);
  gsel_checkpoint_free(checkpoint);
}

struct Cancel {
  uint64_t after, last = 0;
};
int32_t cancel(uint64_t done, uint64_t total, void* user) {
  auto& at = *static_cast<Cancel*>(user);
  assert_true(done >= at.last && done <= total);
  at.last = done;
  return done >= at.after;
}

void a_call_that_is_ended_leaves_nothing(void**) {
  gsel_checkpoint* const checkpoint = opened("run");
  gsel_checkpoint_info info = GSEL_CHECKPOINT_INFO_INIT;
  gsel_error* error = nullptr;
  check_ok(gsel_checkpoint_inspect(checkpoint, &info, &error), error);
  const std::string folder = in_dir("ended"), file = folder + "/model.safetensors";
  assert_int_equal(mkdir(folder.c_str(), 0755), 0);
  gsel_checkpoint_tool_options options = GSEL_CHECKPOINT_TOOL_OPTIONS_INIT;
  options.progress = cancel;
  for (const uint64_t after : {uint64_t{0}, info.file_bytes / 2, info.file_bytes + info.entry_bytes / 2}) {
    Cancel at{after};
    options.user_data = &at;
    assert_int_equal(gsel_checkpoint_consolidate(checkpoint, gsel_str_from(file.c_str()), &options, nullptr),
                     GSEL_ERR_ABORTED);
    at.last = 0;
    assert_int_equal(gsel_checkpoint_reshard(checkpoint, gsel_str_from(folder.c_str()), 3, &options, nullptr),
                     GSEL_ERR_ABORTED);
    at.last = 0;
    if (after < info.file_bytes)
      assert_int_equal(gsel_checkpoint_verify(checkpoint, &options, nullptr), GSEL_ERR_ABORTED);
  }
  DIR* const open = opendir(folder.c_str());
  assert_non_null(open);
  while (const dirent* entry = readdir(open))
    if (entry->d_name[0] != '.' || strlen(entry->d_name) > 2) fail_msg("%s is left", entry->d_name);
  closedir(open);
  gsel_checkpoint_free(checkpoint);
}

void differences_are_named(void**) {
  gsel_checkpoint *const first = opened("run/step-000000000001"), *const second = opened("run"),
                         *const other = opened("other");
  gsel_checkpoint_differences* found = nullptr;
  gsel_error* error = nullptr;
  check_ok(gsel_checkpoint_diff(first, first, nullptr, &found, &error), error);
  assert_int_equal(gsel_checkpoint_difference_count(found), 0);
  gsel_checkpoint_differences_free(found);
  const std::vector<float> before = params_after(1), after = params_after(2);
  size_t element = 0;
  while (before[element] == after[element]) ++element;
  check_ok(gsel_checkpoint_diff(first, second, nullptr, &found, &error), error);
  bool has_step = false, has_values = false;
  for (int32_t i = 0; i < gsel_checkpoint_difference_count(found); ++i) {
    gsel_checkpoint_difference one = GSEL_CHECKPOINT_DIFFERENCE_INIT;
    check_ok(gsel_checkpoint_difference_get(found, i, &one, &error), error);
    if (one.kind == GSEL_CHECKPOINT_DIFFERS_NUMBER && text(one.name) == "step")
      has_step = text(one.first) == "1" && text(one.second) == "2";
    if (one.kind != GSEL_CHECKPOINT_DIFFERS_VALUES || !text(one.name).starts_with("param:") || has_values) continue;
    has_values = true;
    assert_int_equal(one.element, element);  // of the first parameter
    assert_true(std::stof(text(one.first)) == before[element] && std::stof(text(one.second)) == after[element]);
    assert_true(one.count > 0 && one.largest >= std::fabs(before[element] - after[element]));
  }
  assert_true(has_step && has_values);
  gsel_checkpoint_differences_free(found);
  check_ok(gsel_checkpoint_diff(first, other, nullptr, &found, &error), error);
  int only_first = 0, only_second = 0;
  for (int32_t i = 0; i < gsel_checkpoint_difference_count(found); ++i) {
    gsel_checkpoint_difference one = GSEL_CHECKPOINT_DIFFERENCE_INIT;
    check_ok(gsel_checkpoint_difference_get(found, i, &one, &error), error);
    only_first += one.kind == GSEL_CHECKPOINT_DIFFERS_ONLY_FIRST;
    only_second += one.kind == GSEL_CHECKPOINT_DIFFERS_ONLY_SECOND;
  }
  assert_int_equal(only_second, only_first == 0 ? N_PARAMS : 2 * N_PARAMS);
  gsel_checkpoint_differences_free(found);
  gsel_checkpoint_free(first), gsel_checkpoint_free(second), gsel_checkpoint_free(other);
}

void the_command_does_all(void**) {
  check_gsel("checkpoint inspect run", 0);
  check_part(out, "/step-000000000002: step 2, lion, 10 tensors of ");
  check_part(out, "\nfile                    bytes  XXH3-128\n");
  check_gsel("checkpoint inspect run --json", 0);
  check_part(out, "\"optimizer\": \"lion\"");
  check_gsel("checkpoint verify run/step-000000000001", 0);
  check_part(out, "ok: run/step-000000000001, 2 files, ");
  assert_string_equal(err, "");
  check_gsel("checkpoint diff run/step-000000000001 run", 1);
  check_part(out, "number");
  check_gsel("checkpoint consolidate run model.safetensors --params", 0);
  assert_string_equal(out, "model.safetensors\n");
  check_gsel("checkpoint consolidate run model.safetensors --params", 2);
  check_part(err, "model.safetensors is there already");
  check_gsel("checkpoint reshard run divided --files 3", 0);
  assert_string_equal(out, "divided/step-000000000002\n");
  check_gsel("checkpoint diff run divided", 0);
  assert_string_equal(out, "equal\n");
  OneTrainer reader;
  gsel_error* error = nullptr;
  check_ok(gsel_trainer_load(reader.handle(), gsel_str_from(in_dir("divided").c_str()), nullptr, &error), error);
  assert_true(reader.params() == params_after(2));
}

void the_command_has_states_of_the_program(void**) {
  const auto save = [](const char* folder, std::string position, std::string own, int32_t scope) {
    OneTrainer trainer;
    gsel_error* error = nullptr;
    check_ok(gsel_trainer_add_state(trainer.handle(), GSEL_STR("data/position"), position.data(), position.size(),
                                    GSEL_STATE_SHARED, &error),
             error);
    check_ok(gsel_trainer_add_state(trainer.handle(), GSEL_STR("own"), own.data(), own.size(), scope, &error), error);
    trainer.save(in_dir(folder));
  };
  save("of-program", "12345678", "abc", GSEL_STATE_OF_RANK);
  save("of-program-2", "1x34y678", "abcd", GSEL_STATE_OF_RANK);
  save("of-program-3", "12345678", "abc", GSEL_STATE_SHARED);
  check_gsel("checkpoint inspect of-program", 0);
  check_part(out,
             "\nstate of the program  scope   rank  bytes\n"
             "data/position         shared  all   8\n"
             "own                   rank    0     3\n\nfile ");
  check_gsel("checkpoint inspect of-program --json", 0);
  for (const char* part : {"\"ranks\": 1", "\"own\": [", "\"scope\": \"rank\"", "\"key\": \"user:data/position\""})
    check_part(out, part);
  check_gsel("checkpoint diff of-program of-program", 0);
  check_gsel("checkpoint diff of-program of-program-2", 1);
  assert_string_equal(out,
                      "what   name                first  second  element  count  largest\n"
                      "bytes  user:data/position  50     120     1        2\n"
                      "size   user:own@0          3      4\n");
  check_gsel("checkpoint diff of-program of-program-2 --json", 1);
  check_part(out, "\"kind\": \"size\"");
  assert_null(strstr(out, "\"largest\""));
  check_gsel("checkpoint diff of-program of-program-3", 1);
  check_part(out, "\nscope  user:own  of each of 1 rank  shared\n");
  check_gsel("checkpoint verify of-program", 0);
}

void the_command_refuses(void**) {
  check_gsel("checkpoint look run", 2);
  check_part(err, "look: inspect, verify, diff, consolidate or reshard is needed");
  check_gsel("checkpoint diff run", 2);
  check_part(err, "diff: 1 path given, 2 needed");
  check_gsel("checkpoint verify nowhere", 2);
  check_gsel("checkpoint reshard run divided --files 0", 2);
  const std::string file = in_dir("other/step-000000000001/rank-00000.safetensors");
  const int fd = open(file.c_str(), O_WRONLY);
  assert_true(fd >= 0 && pwrite(fd, "\x55", 1, 4100) == 1);
  close(fd);
  check_gsel("checkpoint verify other", 2);
  check_part(err, "rank-00000.safetensors, bytes 0 to ");
  check_part(err, "the manifest says ");
  check_gsel("checkpoint reshard other other-2", 2);
}

void older_ones_go(void**) {
  const std::string folder = in_dir("kept");
  OneTrainer trainer;
  const auto is_there = [&](int step) {
    return access((folder + "/step-00000000000" + std::to_string(step)).c_str(), F_OK) == 0;
  };
  for (int i = 0; i < 5; ++i, trainer.step()) trainer.save(folder, 3);
  for (int i = 0; i < 5; ++i) assert_int_equal(is_there(i), i >= 2);
  // What is no whole checkpoint stays, and does not count.
  assert_int_equal(remove((folder + "/step-000000000003/manifest.json").c_str()), 0);
  trainer.save(folder, 2);
  assert_false(is_there(2));
  assert_true(is_there(3) && is_there(4) && is_there(5));
  // A run that went back keeps what it saved, and the newest.
  OneTrainer back;
  back.save(folder, 1);
  assert_true(is_there(0) && is_there(3) && is_there(5));
  assert_false(is_there(4));
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_checkpoint_is_looked_into),
      cmocka_unit_test(a_call_that_is_ended_leaves_nothing),
      cmocka_unit_test(differences_are_named),
      cmocka_unit_test(the_command_does_all),
      cmocka_unit_test(the_command_has_states_of_the_program),
      cmocka_unit_test(the_command_refuses),
      cmocka_unit_test(older_ones_go),
  };
  return cmocka_run_group_tests_name("checkpoints without a trainer", tests, set_up, tear_down);
}
