// train/check/member.h: a layer as one rank has it, with the data and arguments of its calls. Runs one rank, or several
// in lockstep with the collectives of the layer's phases between them. Does not know what is checked.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "train/check/findings.h"
#include "train/check/ground.h"

namespace gsel::check {

constexpr size_t kRoles = GSEL_BUFFER_REDUCTION + 1;

struct Member {
  Member(const Model& model, const Layer& layer, std::vector<int64_t> sample_ids);

  const Model* model;
  const Layer* layer;
  std::vector<int64_t> sample_ids;
  int32_t microbatch = 0, shard_index = 0, shard_count = 1;
  std::array<std::vector<Buffer>, kRoles> of;  // by role
  std::vector<uint8_t> produced;

  int64_t n_samples() const { return static_cast<int64_t>(sample_ids.size()); }
  std::vector<Buffer>& operator[](int32_t role) { return of[role]; }
  const std::vector<Buffer>& operator[](int32_t role) const { return of[role]; }
  bool gets_d_output(size_t i) const;
  bool gets_d_input(size_t i) const;
  bool trains(size_t param) const;
};

// How to call a callback.
struct Round {
  int32_t callback = GSEL_FORWARD;
  int32_t accumulate = 0;
  int32_t evaluating = 0;
  uint64_t rng_key = 0;
  unsigned char poison = 0xff;    // fills output buffers and guards
  bool moved = false;             // use the second ground; the first one is poisoned
  bool poisons_gradients = true;  // of parameters, unless accumulated
  unsigned char unread = 0;       // nonzero: lend buffers filled with this byte instead of NULL
};

// The buffers that a callback writes.
std::vector<Buffer*> written_by(Member& member, int32_t callback);
// Whether a callback must write all of the buffer: not so for saved bytes.
bool must_write(const Buffer& buffer);

class Caller {
 public:
  Caller(const std::shared_ptr<DeviceContext>& device, Findings& findings)
      : device_(device), findings_(findings), grounds_{Ground(device), Ground(device)} {}

  // Calls the callback of each member, phase by phase; results go to the members. The members are the ranks of one
  // axis. Parameter gradients are poisoned first unless accumulated. False: a callback wrote memory that it must not.
  // GSEL_ERR_CALLBACK when a callback fails.
  bool run(std::span<Member> ranks, gsel_axis axis, const Round& round);
  bool run(Member& member, const Round& round) { return run({&member, 1}, GSEL_AXIS_TENSOR, round); }

  Findings& findings() { return findings_; }

 private:
  bool call(Member& member, const Round& round, int32_t phase);

  const std::shared_ptr<DeviceContext> device_;
  Findings& findings_;
  std::array<Ground, 2> grounds_;
};

}  // namespace gsel::check
