// api/checkpoint.cc: gsel/checkpoint.h.
#include "checkpoint/checkpoint.h"

#include <gsel/checkpoint.h>
#include <gsel/state.h>

#include "api/handles.h"
#include "base/guard.h"
#include "base/options.h"
#include "base/text.h"
#include "checkpoint/tools.h"

struct gsel_checkpoint {
  explicit gsel_checkpoint(gsel::checkpoint::CheckpointTexts texts) : impl(gsel::checkpoint::real_disk(), texts) {
    for (const auto& tensor : impl.index().tensors) roles.push_back(tensor.name.substr(0, tensor.name.find(':')));
  }
  gsel::checkpoint::Contents impl;
  std::vector<std::string> roles;  // by entry
};
struct gsel_checkpoint_differences {
  std::vector<gsel::checkpoint::Difference> impl;
};

namespace {

struct ToolOptions {
  uint32_t flags = 0;
  gsel::checkpoint::Progress progress;
};

ToolOptions tool_options(const gsel_checkpoint_tool_options* given, uint32_t known_flags) {
  if (!given) return {};
  const auto options = gsel::read_struct(given, "gsel_checkpoint_tool_options");
  gsel::check_flags(options.flags, known_flags, "gsel_checkpoint_tool_options.flags");
  ToolOptions made{options.flags, {}};
  if (options.progress)
    made.progress = [options](uint64_t done, uint64_t total) {
      return options.progress(done, total, options.user_data) == 0;
    };
  return made;
}

gsel::checkpoint::SaveTarget target_of(gsel_str folder, const gsel_checkpoint_options* options) {
  return {gsel::text(folder), options ? gsel::read_struct(options, "gsel_checkpoint_options").keep : 0};
}

}  // namespace

extern "C" {

void gsel_checkpoint_report_init(gsel_checkpoint_report* report, size_t struct_size) {
  gsel::init_struct(report, struct_size);
}
void gsel_checkpoint_options_init(gsel_checkpoint_options* options, size_t struct_size) {
  gsel::init_struct(options, struct_size);
}
void gsel_checkpoint_tool_options_init(gsel_checkpoint_tool_options* options, size_t struct_size) {
  gsel::init_struct(options, struct_size);
}
void gsel_checkpoint_info_init(gsel_checkpoint_info* info, size_t struct_size) {
  gsel::init_struct(info, struct_size);
}
void gsel_checkpoint_entry_init(gsel_checkpoint_entry* entry, size_t struct_size) {
  gsel::init_struct(entry, struct_size);
}
void gsel_checkpoint_piece_init(gsel_checkpoint_piece* piece, size_t struct_size) {
  gsel::init_struct(piece, struct_size);
}
void gsel_checkpoint_own_init(gsel_checkpoint_own* own, size_t struct_size) {
  gsel::init_struct(own, struct_size);
}
void gsel_checkpoint_file_init(gsel_checkpoint_file* file, size_t struct_size) {
  gsel::init_struct(file, struct_size);
}
void gsel_checkpoint_difference_init(gsel_checkpoint_difference* difference, size_t struct_size) {
  gsel::init_struct(difference, struct_size);
}

gsel_status gsel_trainer_save(gsel_trainer* trainer, gsel_str folder, const gsel_checkpoint_options* options,
                              gsel_checkpoint_report* report, gsel_error** err) {
  return gsel::guard(err, [&] {
    if (report) gsel::stated_size(report, "gsel_checkpoint_report");
    const gsel::checkpoint::SaveTarget target = target_of(folder, options);
    gsel_trainer& of = gsel::required(trainer, "trainer");
    const gsel_checkpoint_report done =
        gsel::checkpoint::save(of.impl(), target, gsel::checkpoint::real_disk(), of.background_save.get());
    if (report) gsel::write_struct(report, done, "gsel_checkpoint_report");
  });
}

gsel_status gsel_trainer_save_begin(gsel_trainer* trainer, gsel_str folder, const gsel_checkpoint_options* options,
                                    gsel_checkpoint_report* report, gsel_error** err) {
  return gsel::guard(err, [&] {
    if (report) gsel::stated_size(report, "gsel_checkpoint_report");
    gsel_trainer& of = gsel::required(trainer, "trainer");
    const gsel_checkpoint_report begun = of.background_save->begin(of.impl(), target_of(folder, options));
    if (report) gsel::write_struct(report, begun, "gsel_checkpoint_report");
  });
}

int32_t gsel_trainer_save_state(const gsel_trainer* trainer) {
  return trainer ? trainer->background_save->state() : GSEL_SAVE_NONE;
}

gsel_status gsel_trainer_save_wait(gsel_trainer* trainer, gsel_checkpoint_report* report, gsel_error** err) {
  return gsel::guard(err, [&] {
    if (report) gsel::stated_size(report, "gsel_checkpoint_report");
    gsel_trainer& of = gsel::required(trainer, "trainer");
    of.give_up_save_of_lost_ranks();
    const gsel_checkpoint_report done = of.background_save->wait().value_or(gsel_checkpoint_report{});
    if (report) gsel::write_struct(report, done, "gsel_checkpoint_report");
  });
}

gsel_status gsel_trainer_load(gsel_trainer* trainer, gsel_str path, gsel_checkpoint_report* report, gsel_error** err) {
  return gsel::guard(err, [&] {
    if (report) gsel::stated_size(report, "gsel_checkpoint_report");
    const gsel_checkpoint_report done =
        gsel::checkpoint::load(gsel::required(trainer, "trainer").impl(), gsel::text(path));
    if (report) gsel::write_struct(report, done, "gsel_checkpoint_report");
  });
}

gsel_status gsel_checkpoint_open(gsel_str path, gsel_checkpoint** out, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel_checkpoint*& opened = gsel::required(out, "out");
    opened = nullptr;
    const std::string given = gsel::text(path);
    gsel::checkpoint::check_path(given, "path");
    opened = new gsel_checkpoint(gsel::checkpoint::find_checkpoint(gsel::checkpoint::real_disk(), given));
  });
}

void gsel_checkpoint_free(gsel_checkpoint* checkpoint) {
  delete checkpoint;
}

gsel_status gsel_checkpoint_inspect(const gsel_checkpoint* checkpoint, gsel_checkpoint_info* out, gsel_error** err) {
  return gsel::guard(err, [&] {
    const gsel::checkpoint::Contents& of = gsel::required(checkpoint, "checkpoint").impl;
    const gsel::checkpoint::Index& index = of.index();
    gsel_checkpoint_info info = GSEL_CHECKPOINT_INFO_INIT;
    info.path = gsel::borrow(of.path());
    info.optimizer = gsel::borrow(index.optimizer);
    info.step = index.numbers.step;
    info.updates = index.numbers.updates;
    info.learning_rate = index.numbers.learning_rate.value_or(-1);
    info.loss_scale = index.numbers.loss_scale;
    info.n_entries = static_cast<int32_t>(index.tensors.size());
    info.n_files = static_cast<int32_t>(of.manifest().files.size());
    for (const auto& tensor : index.tensors) info.entry_bytes += bytes_of(tensor);
    info.file_bytes = of.file_bytes();
    info.n_own = static_cast<int32_t>(index.users.size());
    info.n_ranks = index.n_ranks;
    gsel::write_struct(out, info, "gsel_checkpoint_info");
  });
}

gsel_status gsel_checkpoint_entry_get(const gsel_checkpoint* checkpoint, int32_t i, gsel_checkpoint_entry* out,
                                      gsel_error** err) {
  return gsel::guard(err, [&] {
    const gsel_checkpoint& of = gsel::required(checkpoint, "checkpoint");
    gsel::check_index(i, of.roles.size(), "i");
    const gsel::checkpoint::IndexTensor& tensor = of.impl.index().tensors[static_cast<size_t>(i)];
    gsel_checkpoint_entry entry = GSEL_CHECKPOINT_ENTRY_INIT;
    entry.name = gsel::borrow(tensor.name);
    entry.role = gsel::borrow(of.roles[static_cast<size_t>(i)]);
    entry.shape = tensor.shape.data();
    entry.n_dims = static_cast<int32_t>(tensor.shape.size());
    entry.dtype = GSEL_F32;
    entry.bytes = bytes_of(tensor);
    entry.n_pieces = static_cast<int32_t>(of.impl.pieces(i).size());
    gsel::write_struct(out, entry, "gsel_checkpoint_entry");
  });
}

gsel_status gsel_checkpoint_piece_get(const gsel_checkpoint* checkpoint, int32_t entry, int32_t i,
                                      gsel_checkpoint_piece* out, gsel_error** err) {
  return gsel::guard(err, [&] {
    const gsel_checkpoint& of = gsel::required(checkpoint, "checkpoint");
    gsel::check_index(entry, of.roles.size(), "entry");
    const auto pieces = of.impl.pieces(entry);
    gsel::check_index(i, pieces.size(), "i");
    const gsel::checkpoint::IndexPiece& listed = pieces[static_cast<size_t>(i)];
    gsel_checkpoint_piece piece = GSEL_CHECKPOINT_PIECE_INIT;
    piece.file = gsel::borrow(listed.file);
    piece.key = gsel::borrow(listed.key);
    if (const auto run = gsel::Region::Cursor(listed.region).next()) piece.first = run->whole;
    piece.count = listed.region.count();
    gsel::write_struct(out, piece, "gsel_checkpoint_piece");
  });
}

gsel_status gsel_checkpoint_own_get(gsel_checkpoint* checkpoint, int32_t i, int32_t rank, gsel_checkpoint_own* out,
                                    gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::checkpoint::Contents& of = gsel::required(checkpoint, "checkpoint").impl;
    const gsel::checkpoint::Index& index = of.index();
    gsel::check_index(i, index.users.size(), "i");
    gsel::check_index(rank, static_cast<size_t>(index.n_ranks), "rank");
    const gsel::checkpoint::IndexUser& user = index.users[static_cast<size_t>(i)];
    const gsel::checkpoint::StoredUser stored = of.stored_user(user, user.is_of_rank ? rank : 0);
    gsel_checkpoint_own own = GSEL_CHECKPOINT_OWN_INIT;
    own.scope = user.is_of_rank ? GSEL_STATE_OF_RANK : GSEL_STATE_SHARED;
    own.name = gsel::borrow(user.name);
    own.file = gsel::borrow(stored.file);
    own.key = gsel::borrow(stored.key);
    own.bytes = stored.read.bytes;
    gsel::write_struct(out, own, "gsel_checkpoint_own");
  });
}

gsel_status gsel_checkpoint_file_get(const gsel_checkpoint* checkpoint, int32_t i, gsel_checkpoint_file* out,
                                     gsel_error** err) {
  return gsel::guard(err, [&] {
    const auto& files = gsel::required(checkpoint, "checkpoint").impl.manifest().files;
    gsel::check_index(i, files.size(), "i");
    const gsel::checkpoint::ManifestFile& of = files[static_cast<size_t>(i)];
    gsel_checkpoint_file file = GSEL_CHECKPOINT_FILE_INIT;
    file.name = gsel::borrow(of.name);
    file.sum = gsel::borrow(of.sums.whole);
    file.bytes = of.sums.bytes;
    gsel::write_struct(out, file, "gsel_checkpoint_file");
  });
}

gsel_status gsel_checkpoint_verify(gsel_checkpoint* checkpoint, const gsel_checkpoint_tool_options* options,
                                   gsel_error** err) {
  return gsel::guard(err, [&] {
    const ToolOptions given = tool_options(options, 0);
    gsel::checkpoint::verify(gsel::required(checkpoint, "checkpoint").impl, given.progress);
  });
}

gsel_status gsel_checkpoint_diff(gsel_checkpoint* first, gsel_checkpoint* second,
                                 const gsel_checkpoint_tool_options* options, gsel_checkpoint_differences** out,
                                 gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel_checkpoint_differences*& differences = gsel::required(out, "out");
    differences = nullptr;
    differences = new gsel_checkpoint_differences{gsel::checkpoint::diff(
        gsel::required(first, "first").impl, gsel::required(second, "second").impl, tool_options(options, 0).progress)};
  });
}

int32_t gsel_checkpoint_difference_count(const gsel_checkpoint_differences* differences) {
  return differences ? static_cast<int32_t>(differences->impl.size()) : 0;
}

gsel_status gsel_checkpoint_difference_get(const gsel_checkpoint_differences* differences, int32_t i,
                                           gsel_checkpoint_difference* out, gsel_error** err) {
  return gsel::guard(err, [&] {
    const auto& all = gsel::required(differences, "differences").impl;
    gsel::check_index(i, all.size(), "i");
    const gsel::checkpoint::Difference& of = all[static_cast<size_t>(i)];
    gsel_checkpoint_difference difference = GSEL_CHECKPOINT_DIFFERENCE_INIT;
    difference.kind = of.kind;
    difference.name = gsel::borrow(of.name);
    difference.first = gsel::borrow(of.first);
    difference.second = gsel::borrow(of.second);
    difference.element = of.element;
    difference.count = of.count;
    difference.largest = of.largest;
    gsel::write_struct(out, difference, "gsel_checkpoint_difference");
  });
}

void gsel_checkpoint_differences_free(gsel_checkpoint_differences* differences) {
  delete differences;
}

gsel_status gsel_checkpoint_consolidate(gsel_checkpoint* checkpoint, gsel_str path,
                                        const gsel_checkpoint_tool_options* options, gsel_error** err) {
  return gsel::guard(err, [&] {
    const ToolOptions given = tool_options(options, GSEL_CHECKPOINT_PARAMS_ONLY);
    gsel::checkpoint::consolidate(gsel::required(checkpoint, "checkpoint").impl, gsel::text(path),
                                  (given.flags & GSEL_CHECKPOINT_PARAMS_ONLY) != 0, given.progress);
  });
}

gsel_status gsel_checkpoint_reshard(gsel_checkpoint* checkpoint, gsel_str folder, int32_t n,
                                    const gsel_checkpoint_tool_options* options, gsel_error** err) {
  return gsel::guard(err, [&] {
    gsel::checkpoint::reshard(gsel::required(checkpoint, "checkpoint").impl, gsel::text(folder), n,
                              tool_options(options, 0).progress);
  });
}

}  // extern "C"
