// States of the program's own (gsel_trainer_add_state) wherever a trainer's are: listed by gsel_state, and in
// checkpoints looked into, verified, compared and written anew (gsel/checkpoint.h).
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>

#include "base/error.h"
#include "checkpoint/file_plan.h"
#include "checkpoint/folder.h"
#include "support/check.h"
#include "support/one_trainer.h"
#include "support/scratch.h"

namespace {

namespace checkpoint = gsel::checkpoint;

char dir[256];

std::string in_dir(const std::string& name) {
  return std::string(dir) + "/" + name;
}
std::string text(gsel_str s) {
  return {s.data, s.len};
}

// A checkpoint of n_ranks: a parameter with an element of each, and these states.
struct Own {
  std::string name;
  std::vector<std::string> bytes;  // by rank, or one that is shared
};
using Change = std::function<void(int32_t rank, std::vector<checkpoint::StoredTensor>& tensors)>;
constexpr const char* kStep = "/step-000000000001";

std::string written(const char* folder, int32_t n_ranks, const std::vector<Own>& states, const Change& change = {}) {
  checkpoint::Disk& disk = checkpoint::real_disk();
  checkpoint::NewCheckpoint made(disk, in_dir(folder), 1, 7);
  made.begin(0);
  checkpoint::Index index;
  index.numbers.step = 1;
  index.n_ranks = n_ranks;
  index.optimizer = "sgd";
  index.tensors = {{"param:w", {n_ranks}}};
  const auto is_of_rank = [&](const Own& own) { return n_ranks > 1 && own.bytes.size() > 1; };
  for (const Own& own : states) index.users.push_back({own.name, is_of_rank(own)});
  std::vector<std::string> files, pieces;
  for (int32_t rank = 0; rank < n_ranks; ++rank) {
    checkpoint::FilePlan plan(checkpoint::name_of_file(rank), 1);
    plan.add(0, "param:w", gsel::Region({n_ranks}).part(rank, 1));
    for (const Own& own : states)
      if (rank == 0 || is_of_rank(own)) plan.add_user(own.name, own.bytes[static_cast<size_t>(rank)].size());
    if (change) change(rank, plan.header.tensors);
    checkpoint::FileWriter file(disk, made.path_of(plan.name), plan.header);
    const auto value = static_cast<float>(rank);
    file.put(&value, sizeof value);
    for (const Own& own : states)
      if (rank == 0 || is_of_rank(own)) {
        const std::string& bytes = own.bytes[static_cast<size_t>(rank)];
        file.put(bytes.data(), bytes.size());
      }
    files.push_back(checkpoint::ManifestFile{plan.name, file.finish()}.text());
    pieces.push_back(checkpoint::Index::text_of(plan.pieces, index.tensors));
  }
  made.commit(index.text(pieces), files);
  return in_dir(folder) + kStep;
}

gsel_checkpoint* opened(const std::string& path) {
  gsel_checkpoint* checkpoint = nullptr;
  gsel_error* error = nullptr;
  check_ok(gsel_checkpoint_open(gsel_str_from(path.c_str()), &checkpoint, &error), error);
  return checkpoint;
}

struct Listed {
  int32_t scope;
  std::string name, file, key;
  uint64_t bytes;
  bool operator==(const Listed&) const = default;
};
Listed listed(gsel_checkpoint* checkpoint, int32_t i, int32_t rank) {
  gsel_checkpoint_own own = GSEL_CHECKPOINT_OWN_INIT;
  gsel_error* error = nullptr;
  check_ok(gsel_checkpoint_own_get(checkpoint, i, rank, &own, &error), error);
  return {own.scope, text(own.name), text(own.file), text(own.key), own.bytes};
}

int set_up(void**) {
  return make_scratch(dir, sizeof dir, "checkpoint-states") ? 0 : -1;
}
int tear_down(void**) {
  return remove_scratch(dir);
}

// ---- what there is --------------------------------------------------------------------------------------------------

void a_trainer_lists_what_was_added(void**) {
  OneTrainer trainer;
  gsel_error* error = nullptr;
  gsel_state* state = nullptr;
  char position[8] = "1234567", seed[3] = "12";
  const auto add = [&](const char* name, void* data, size_t bytes, int32_t scope) {
    check_ok(gsel_trainer_add_state(trainer.handle(), gsel_str_from(name), data, bytes, scope, &error), error);
  };
  add("data/position", position, sizeof position, GSEL_STATE_SHARED);
  add("seed", seed, sizeof seed, GSEL_STATE_OF_RANK);
  check_ok(gsel_state_open(trainer.handle(), &state, &error), error);
  add("later", nullptr, 0, GSEL_STATE_SHARED);
  assert_int_equal(gsel_state_own_count(nullptr), 0);
  assert_int_equal(gsel_state_own_count(state), 2);
  gsel_state_own own = GSEL_STATE_OWN_INIT;
  check_ok(gsel_state_own_at(state, 0, &own, &error), error);
  assert_string_equal(text(own.name).c_str(), "data/position");
  assert_true(own.data == position && own.bytes == sizeof position && own.scope == GSEL_STATE_SHARED);
  check_ok(gsel_state_own_at(state, 1, &own, &error), error);
  assert_string_equal(text(own.name).c_str(), "seed");
  assert_true(own.data == seed && own.bytes == sizeof seed && own.scope == GSEL_STATE_OF_RANK);
  for (const int32_t i : {-1, 2})
    check_fails(gsel_state_own_at(state, i, &own, &error), error, GSEL_ERR_ARG, "expected 0 to 1");
  trainer.step();
  check_fails(gsel_state_own_at(state, 0, &own, &error), error, GSEL_ERR_STATE, "open its state again");
  gsel_state_free(state);

  trainer.save(in_dir("run"));
  gsel_checkpoint* const saved = opened(in_dir("run"));
  gsel_checkpoint_info info = GSEL_CHECKPOINT_INFO_INIT;
  check_ok(gsel_checkpoint_inspect(saved, &info, &error), error);
  assert_int_equal(info.n_own, 3);
  assert_int_equal(info.n_ranks, 1);
  const std::string file = "rank-00000.safetensors";
  assert_true(listed(saved, 0, 0) == (Listed{GSEL_STATE_SHARED, "data/position", file, "user:data/position", 8}));
  assert_true(listed(saved, 1, 0) == (Listed{GSEL_STATE_OF_RANK, "seed", file, "user:seed", 3}));
  assert_true(listed(saved, 2, 0) == (Listed{GSEL_STATE_SHARED, "later", file, "user:later", 0}));
  gsel_checkpoint_own none = GSEL_CHECKPOINT_OWN_INIT;
  check_fails(gsel_checkpoint_own_get(saved, 3, 0, &none, &error), error, GSEL_ERR_ARG, "i is 3");
  check_fails(gsel_checkpoint_own_get(saved, 0, 1, &none, &error), error, GSEL_ERR_ARG, "rank is 1");
  gsel_checkpoint_free(saved);
}

void each_rank_has_its_size(void**) {
  gsel_checkpoint* const of_two = opened(written("sizes", 2, {{"position", {"abc"}}, {"own", {"12345", "1"}}}));
  const std::string first = "rank-00000.safetensors", second = "rank-00001.safetensors";
  const Listed shared{GSEL_STATE_SHARED, "position", first, "user:position", 3};
  assert_true(listed(of_two, 0, 0) == shared && listed(of_two, 0, 1) == shared);
  assert_true(listed(of_two, 1, 0) == (Listed{GSEL_STATE_OF_RANK, "own", first, "user:own", 5}));
  assert_true(listed(of_two, 1, 1) == (Listed{GSEL_STATE_OF_RANK, "own", second, "user:own", 1}));
  gsel_checkpoint_free(of_two);
}

void an_index_with_wrong_names_is_refused(void**) {
  const struct {
    std::vector<Own> states;
    const char* why;
  } rows[] = {{{{"a b", {"1"}}}, "is no name of a state of the program's own"},
              {{{"own@1", {"1"}}}, "is no name of a state of the program's own"},
              {{{"twice", {"1"}}, {"twice", {"2"}}}, "is another state's"}};
  int n = 0;
  for (const auto& row : rows) {
    gsel_checkpoint* checkpoint = nullptr;
    gsel_error* error = nullptr;
    const std::string path = written(("names-" + std::to_string(n++)).c_str(), 1, row.states,
                                     [](int32_t, auto& tensors) { tensors.back().key += "!"; });
    check_fails(gsel_checkpoint_open(gsel_str_from(path.c_str()), &checkpoint, &error), error, GSEL_ERR_PARSE, row.why);
  }
}

// ---- verify ---------------------------------------------------------------------------------------------------------

void what_a_file_lacks_is_found(void**) {
  const struct {
    std::function<void(checkpoint::StoredTensor&)> change;
    const char* why;
  } rows[] = {
      {[](auto& t) { t.key = "user:other"; }, "\"user:own\" is in the index and not in the file"},
      {[](auto& t) { t.type = checkpoint::stored_type(GSEL_I8); }, "\"user:own\" has the type I8; expected U8"},
      {[](auto& t) { t.type = checkpoint::stored_type(GSEL_F32), t.shape = {1}; },
       "\"user:own\" has the type F32; expected U8"},
      {[](auto& t) {
         t.shape = {2, 2};
       },
       "\"user:own\" has 2 dimensions; expected 1, of bytes"},
  };
  int n = 0;
  for (const auto& row : rows) {
    const std::string folder = "faults-" + std::to_string(n++);
    const std::string path =
        written(folder.c_str(), 3, {{"shared", {"x"}}, {"own", {"1234", "5678", "90ab"}}},
                [&](int32_t rank, auto& tensors) { rank == 2 ? row.change(tensors.back()) : void(); });
    gsel_checkpoint* const checkpoint = opened(path);
    gsel_error* error = nullptr;
    const gsel_status status = gsel_checkpoint_verify(checkpoint, nullptr, &error);
    assert_int_equal(status, GSEL_ERR_PARSE);
    const std::string message = text(gsel_error_message(error));
    if (message.find(row.why) == message.npos) fail_msg("expected %s, got %s", row.why, message.c_str());
    assert_string_equal(text(gsel_error_file(error)).c_str(), (path + "/rank-00002.safetensors").c_str());
    assert_string_equal(text(gsel_error_token(error)).c_str(), "user:own");
    gsel_error_free(error);
    error = nullptr;
    gsel_checkpoint_own own = GSEL_CHECKPOINT_OWN_INIT;
    check_ok(gsel_checkpoint_own_get(checkpoint, 1, 1, &own, &error), error);
    check_fails(gsel_checkpoint_own_get(checkpoint, 1, 2, &own, &error), error, GSEL_ERR_PARSE, row.why);
    check_fails(gsel_checkpoint_consolidate(checkpoint, gsel_str_from(in_dir("x").c_str()), nullptr, &error), error,
                GSEL_ERR_PARSE, row.why);
    gsel_checkpoint_free(checkpoint);
  }
}

// ---- diff -----------------------------------------------------------------------------------------------------------

struct Differs {
  int32_t kind;
  std::string name, first, second;
  int64_t element = -1, count = 0;
};

int32_t is_counted(uint64_t done, uint64_t total, void* of_all) {
  assert_true(done <= total);
  *static_cast<uint64_t*>(of_all) = total - done;
  return 0;
}

void check_diff(const std::string& a, const std::string& b, const std::vector<Differs>& expected) {
  gsel_checkpoint *const first = opened(a), *const second = opened(b);
  gsel_checkpoint_differences* found = nullptr;
  gsel_error* error = nullptr;
  uint64_t left = 1;
  gsel_checkpoint_tool_options options = GSEL_CHECKPOINT_TOOL_OPTIONS_INIT;
  options.progress = is_counted;
  options.user_data = &left;
  check_ok(gsel_checkpoint_diff(first, second, &options, &found, &error), error);
  assert_int_equal(left, 0);
  std::string got;
  for (int32_t i = 0; i < gsel_checkpoint_difference_count(found); ++i) {
    gsel_checkpoint_difference one = GSEL_CHECKPOINT_DIFFERENCE_INIT;
    check_ok(gsel_checkpoint_difference_get(found, i, &one, &error), error);
    got += fmt::format("{} {} '{}' '{}' {} {} {}\n", one.kind, text(one.name), text(one.first), text(one.second),
                       one.element, one.count, one.largest);
  }
  std::string wanted;
  for (const Differs& one : expected)
    wanted +=
        fmt::format("{} {} '{}' '{}' {} {} 0\n", one.kind, one.name, one.first, one.second, one.element, one.count);
  assert_string_equal(got.c_str(), wanted.c_str());
  gsel_checkpoint_differences_free(found);
  gsel_checkpoint_free(first), gsel_checkpoint_free(second);
}

void differences_are_named(void**) {
  const std::string base =
      written("base", 2, {{"position", {"abc"}}, {"own", {"12345", "1"}}, {"scope", {"1", "2"}}, {"mine", {"1"}}});
  const std::string other =
      written("other", 2, {{"own", {"1x3y5", "12"}}, {"position", {"abc"}}, {"scope", {"1"}}, {"theirs", {"1", "2"}}});
  check_diff(base, base, {});
  check_diff(base, other,
             {{GSEL_CHECKPOINT_DIFFERS_SCOPE, "user:scope", "of each of 2 ranks", "shared"},
              {GSEL_CHECKPOINT_DIFFERS_ONLY_FIRST, "user:mine", "shared", ""},
              {GSEL_CHECKPOINT_DIFFERS_ONLY_SECOND, "user:theirs", "", "of each of 2 ranks"},
              {GSEL_CHECKPOINT_DIFFERS_BYTES, "user:own@0", "50", "120", 1, 2},
              {GSEL_CHECKPOINT_DIFFERS_SIZE, "user:own@1", "1", "2"}});
}

void ranks_that_both_have_are_compared(void**) {
  const std::string two = written("two", 2, {{"own", {"1", "2"}}}),
                    three = written("three", 3, {{"own", {"1", "3", "4"}}});
  gsel_checkpoint *const first = opened(two), *const second = opened(three);
  gsel_checkpoint_differences* found = nullptr;
  gsel_error* error = nullptr;
  check_ok(gsel_checkpoint_diff(first, second, nullptr, &found, &error), error);
  assert_int_equal(gsel_checkpoint_difference_count(found), 3);  // the shape of "param:w" as well
  gsel_checkpoint_difference one = GSEL_CHECKPOINT_DIFFERENCE_INIT;
  check_ok(gsel_checkpoint_difference_get(found, 1, &one, &error), error);
  assert_int_equal(one.kind, GSEL_CHECKPOINT_DIFFERS_SCOPE);
  assert_string_equal(text(one.second).c_str(), "of each of 3 ranks");
  check_ok(gsel_checkpoint_difference_get(found, 2, &one, &error), error);
  assert_int_equal(one.kind, GSEL_CHECKPOINT_DIFFERS_BYTES);
  assert_string_equal(text(one.name).c_str(), "user:own@1");
  gsel_checkpoint_differences_free(found);
  gsel_checkpoint_free(first), gsel_checkpoint_free(second);
}

// More than is in memory at a time.
void long_states_are_compared_and_copied(void**) {
  std::string a(2 * checkpoint::kSumBlockBytes + 5, 'a'), b = a;
  b[checkpoint::kSumBlockBytes + 3] = 'b', b.back() = 'c';
  const std::string first = written("long", 1, {{"log", {a}}}), second = written("longer", 1, {{"log", {b}}});
  check_diff(first, second,
             {{GSEL_CHECKPOINT_DIFFERS_BYTES, "user:log", "97", "98", checkpoint::kSumBlockBytes + 3, 2}});
  gsel_checkpoint* const longer = opened(second);
  gsel_error* error = nullptr;
  check_ok(gsel_checkpoint_reshard(longer, gsel_str_from(in_dir("long-2").c_str()), 2, nullptr, &error), error);
  gsel_checkpoint_free(longer);
  check_diff(second, in_dir("long-2"), {});
}

// ---- other files ----------------------------------------------------------------------------------------------------

// Tensors of a safetensors file, as their type and bytes.
std::map<std::string, std::string> tensors_of(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::stringstream all;
  all << stream.rdbuf();
  const std::string file = all.str();
  const auto header = checkpoint::SafetensorsHeader::read(
      path, file.size(), [&](uint64_t at, char* dst, size_t bytes) { file.copy(dst, bytes, at); });
  std::map<std::string, std::string> tensors;
  for (const checkpoint::StoredTensor& tensor : header.tensors)
    tensors[tensor.key] =
        tensor.type_name() + (" " + file.substr(header.data_at + tensor.begin, tensor.end - tensor.begin));
  return tensors;
}

void one_file_has_those_of_all_ranks(void**) {
  gsel_checkpoint* const of_two = opened(written("whole", 2, {{"position", {"abc"}}, {"own", {"12345", ""}}}));
  gsel_error* error = nullptr;
  uint64_t left = 1;
  gsel_checkpoint_tool_options options = GSEL_CHECKPOINT_TOOL_OPTIONS_INIT;
  options.progress = is_counted;
  options.user_data = &left;
  const std::string all = in_dir("all.safetensors"), params = in_dir("params.safetensors");
  check_ok(gsel_checkpoint_consolidate(of_two, gsel_str_from(all.c_str()), &options, &error), error);
  assert_int_equal(left, 0);
  std::map<std::string, std::string> found = tensors_of(all);
  assert_int_equal(found.size(), 4);
  assert_string_equal(found["user:position"].c_str(), "U8 abc");
  assert_string_equal(found["user:own@0"].c_str(), "U8 12345");
  assert_string_equal(found["user:own@1"].c_str(), "U8 ");
  assert_int_equal(found["param:w"].size(), strlen("F32 ") + 2 * sizeof(float));
  options.flags = GSEL_CHECKPOINT_PARAMS_ONLY;
  check_ok(gsel_checkpoint_consolidate(of_two, gsel_str_from(params.c_str()), &options, &error), error);
  found = tensors_of(params);
  assert_true(found.size() == 1 && found.begin()->first == "w");
  gsel_checkpoint_free(of_two);
}

void other_files_have_them_too(void**) {
  const std::string path = written("divided", 2, {{"position", {"abc"}}, {"own", {"12345", "6"}}});
  gsel_checkpoint* const of_two = opened(path);
  gsel_error* error = nullptr;
  uint64_t left = 1;
  gsel_checkpoint_tool_options options = GSEL_CHECKPOINT_TOOL_OPTIONS_INIT;
  options.progress = is_counted;
  options.user_data = &left;
  const std::string again = in_dir("divided-2");
  check_ok(gsel_checkpoint_reshard(of_two, gsel_str_from(again.c_str()), 2, &options, &error), error);
  assert_int_equal(left, 0);
  check_diff(path, again, {});
  check_fails(gsel_checkpoint_reshard(of_two, gsel_str_from(in_dir("divided-3").c_str()), 3, nullptr, &error), error,
              GSEL_ERR_UNSUPPORTED, "\"own\" is each rank's own, of 2 ranks");
  gsel_checkpoint_free(of_two);
}

}  // namespace

int main() {
  const CMUnitTest tests[] = {
      cmocka_unit_test(a_trainer_lists_what_was_added),
      cmocka_unit_test(each_rank_has_its_size),
      cmocka_unit_test(an_index_with_wrong_names_is_refused),
      cmocka_unit_test(what_a_file_lacks_is_found),
      cmocka_unit_test(differences_are_named),
      cmocka_unit_test(ranks_that_both_have_are_compared),
      cmocka_unit_test(long_states_are_compared_and_copied),
      cmocka_unit_test(one_file_has_those_of_all_ranks),
      cmocka_unit_test(other_files_have_them_too),
  };
  return cmocka_run_group_tests_name("states of the program's own", tests, set_up, tear_down);
}
