// support/program_judge.h: what the instructions of one rank's program read and write: a second implementation, apart
// from the verifier's, so that damaged programs can be judged without it.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "program/program.h"

namespace gsel::test {

enum class Access { read, add, write };  // additions commute with each other
enum Thing {
  kValue,
  kGradient,
  kSaved,
  kWindow,
  kShard,
  kContributions,
  kBucketGradient,
  kUnderWay,
  kLoss,
  kNorm,
  kOverflow
};
using Touched = std::map<std::tuple<Thing, int32_t, int32_t>, Access>;

struct Footprint {
  Touched things;
  bool meets = false;  // has a place in the order of calls of its group
};

class Judge {
 public:
  explicit Judge(const Program& p);

  const Footprint& footprint(size_t i) const { return footprints_[i]; }

  // Whether two instructions may change places, on all ranks alike or on one.
  bool commute(size_t a, size_t b, bool everywhere) const;

  // Of buckets that are reduced several times a step: whether each reduction has a contribution, no contribution
  // follows the last reduction, and no instruction writes a bucket under way.
  bool reductions_are_sound(const std::vector<gsel_instr>& step) const;

  // Of buckets whose parameters are gathered: whether windows are opened, awaited and closed in turn, and each reader
  // is inside a window.
  bool windows_are_sound(const std::vector<gsel_instr>& step) const;

 private:
  static void note(Footprint& f, Thing thing, int32_t id, int32_t mb, Access access);
  uint64_t unread_by(const gsel_instr& instr) const;
  void params(Footprint& f, const ProgramLayer& l, uint64_t unread) const;
  void read_params(Footprint& f, const gsel_instr& instr) const;
  Footprint touch(const gsel_instr& instr, gsel_instr_kind under_way);
  void forward(Footprint& f, const gsel_instr& instr);
  void backward(Footprint& f, const gsel_instr& instr);

  const Program& p_;
  std::vector<int32_t> bucket_of_;
  std::vector<Footprint> footprints_;
};

}  // namespace gsel::test
