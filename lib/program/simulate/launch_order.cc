// program/simulate/launch_order.cc: see launch_order.h.
#include "program/simulate/launch_order.h"

#include <algorithm>
#include <map>

#include "program/optimistic.h"
#include "program/simulate/activities.h"
#include "program/words/words.h"

namespace gsel {
namespace {

class NoTime : public Durations {
 public:
  double compute(const Program&, const gsel_instr&) const override { return 0; }
  ExchangeTime exchange(const Program&, const gsel_instr&, gsel_axis, uint64_t, uint64_t) const override { return {}; }
  ExchangeTime message(const Program&, int32_t, int64_t) const override { return {}; }
};

// The programs with a sample in every micro-batch.
std::vector<Program> with_samples(const Job& job) {
  std::vector<Program> programs;
  for (const Program* program : job.programs) {
    Program& copy = programs.emplace_back(*program);
    for (Microbatch& microbatch : copy.microbatches) microbatch.count = 1;
  }
  return programs;
}

class LaunchClock {
 public:
  explicit LaunchClock(const std::vector<Program>& programs) : programs_(programs) {
    Job job;
    for (const Program& program : programs) job.programs.push_back(&program);
    const NoTime durations;
    activities_ = activities_of(job, durations);
    add_validations();
    channels_.resize(activities_.channels.size());
    groups_.resize(activities_.group_size.size());
    ranks_.resize(programs.size());
    for (const Program& program : programs) {
      times_.emplace_back(program.step.size());
      coordinates_.push_back(program.mesh.coordinate(program.rank, GSEL_AXIS_PIPELINE));
    }
    for (size_t place = 0; place < programs.size(); ++place)
      for (const Activity& activity : activities_.of_rank[place])
        if (meets(activity))
          groups_[activity.with].coordinate = std::min(groups_[activity.with].coordinate, coordinates_[place]);
  }

  std::vector<std::vector<int64_t>> run() {
    while (!is_over()) {
      bool went_on = false;
      for (size_t place = 0; place < ranks_.size(); ++place)
        while (!is_over(place) && advance(place)) went_on = true;
      // Without bounds more messages are received before they are taken.
      if (!went_on && !std::exchange(is_unbounded_, true)) went_on = true;
      if (!went_on) refuse();
    }
    return std::move(times_);
  }

 private:
  struct Rank {
    size_t next = 0;       // activity
    int64_t time = 0;      // of the one before it
    int64_t meeting = -1;  // number of the meeting at which this rank has arrived
  };
  struct Group {
    int32_t coordinate = INT32_MAX;  // least pipeline coordinate of its ranks
    int32_t arrived = 0;             // at the next meeting
    int64_t latest = 0;              // arrival
    std::vector<int64_t> met;        // times of the meetings
  };
  struct Channel {
    std::vector<int64_t> sent, launched, taken;  // by message: time of SEND, that time's key, time of RECV
  };

  static bool meets(const Activity& a) { return a.kind == Activity::Kind::exchange || a.kind == Activity::Kind::post; }
  bool is_over(size_t place) const { return ranks_[place].next == activities_.of_rank[place].size(); }
  bool is_over() const {
    for (size_t place = 0; place < ranks_.size(); ++place)
      if (!is_over(place)) return false;
    return true;
  }

  // A step that starts over at POST_VALIDATE has no messages under way, so the ranks of a pipeline meet there.
  void add_validations() {
    std::map<int32_t, int32_t> group_of;  // by first rank of the pipeline
    for (size_t place = 0; place < programs_.size(); ++place) {
      const Program& program = programs_[place];
      const int32_t position = post_validate_position(program);
      if (position < 0) continue;
      const int32_t first = program.mesh.group(program.rank, GSEL_AXIS_PIPELINE).front();
      const auto [group, is_new] = group_of.try_emplace(first, static_cast<int32_t>(activities_.group_size.size()));
      if (is_new) activities_.group_size.push_back(0);
      ++activities_.group_size[group->second];
      Activity meeting;
      meeting.kind = Activity::Kind::exchange;
      meeting.position = position;
      meeting.with = group->second;
      std::vector<Activity>& all = activities_.of_rank[place];
      all.insert(std::ranges::find_if(all, [&](const Activity& a) { return a.position > position; }), meeting);
    }
  }

  // Calls at one time are on different ranks of a pipeline.
  int64_t key(int64_t time, int32_t coordinate) const {
    return time * programs_.front().mesh.size[GSEL_AXIS_PIPELINE] + coordinate;
  }

  // Ends the rank's next activity, or returns false where it waits for another rank.
  bool advance(size_t place) {
    Rank& rank = ranks_[place];
    const Activity& activity = activities_.of_rank[place][rank.next];
    int64_t launched = -1;
    switch (activity.kind) {
      case Activity::Kind::wait:
        break;
      case Activity::Kind::compute:
        ++rank.time;
        break;
      case Activity::Kind::exchange:
      case Activity::Kind::post:
        if (!meet(rank, groups_[activity.with], activities_.group_size[activity.with])) return false;
        launched = key(rank.time, groups_[activity.with].coordinate);
        break;
      case Activity::Kind::send:
        if (!send(rank, activity, coordinates_[place])) return false;
        break;
      case Activity::Kind::receive:
        if (!receive(rank, channels_[activity.with], launched)) return false;
        if (!instr_row(programs_[place].step[activity.position].kind).is_receive()) launched = -1;
        break;
    }
    times_[place][activity.position] = launched >= 0 ? launched : key(rank.time, coordinates_[place]);
    ++rank.next;
    return true;
  }

  bool meet(Rank& rank, Group& group, int32_t size) {
    if (rank.meeting < 0) {
      rank.meeting = static_cast<int64_t>(group.met.size());
      group.latest = std::max(group.latest, rank.time + 1);
      if (++group.arrived == size) {
        group.met.push_back(group.latest);
        group.arrived = 0;
      }
    }
    if (static_cast<int64_t>(group.met.size()) <= rank.meeting) return false;
    rank.time = group.met[rank.meeting];
    rank.meeting = -1;
    return true;
  }

  // As many messages may be sent and not taken as with receives that are posted ahead.
  bool send(Rank& rank, const Activity& activity, int32_t coordinate) {
    Channel& channel = channels_[activity.with];
    const int64_t most = 2 * int64_t{activities_.channels[activity.with].ahead};
    if (const auto before = static_cast<int64_t>(channel.sent.size()) - most; before >= 0 && !is_unbounded_) {
      if (static_cast<int64_t>(channel.taken.size()) <= before) return false;
      rank.time = std::max(rank.time, channel.taken[before]);
    }
    ++rank.time;
    channel.sent.push_back(rank.time);
    channel.launched.push_back(key(rank.time, coordinate));
    return true;
  }

  static bool receive(Rank& rank, Channel& channel, int64_t& launched) {
    const size_t number = channel.taken.size();
    if (channel.sent.size() <= number) return false;
    rank.time = std::max(rank.time, channel.sent[number]) + 1;
    launched = channel.launched[number];
    channel.taken.push_back(rank.time);
    return true;
  }

  [[noreturn]] void refuse() const {
    for (size_t place = 0; place < ranks_.size(); ++place)
      if (!is_over(place))
        fail(GSEL_ERR_UNSUPPORTED,
             "{}: the job's calls have no order in which every rank can launch them on its device; put collectives of "
             "several ranks in one order with their messages on all of these ranks, or join without an accelerator",
             where(programs_[place], false,
                   static_cast<size_t>(activities_.of_rank[place][ranks_[place].next].position)));
    fail(GSEL_ERR_INTERNAL, "the order of launching is known on every rank");
  }

  const std::vector<Program>& programs_;
  Activities activities_;
  std::vector<Channel> channels_;
  std::vector<Group> groups_;
  std::vector<Rank> ranks_;
  std::vector<int32_t> coordinates_;
  std::vector<std::vector<int64_t>> times_;
  bool is_unbounded_ = false;
};

}  // namespace

std::vector<std::vector<int64_t>> launch_times(const Job& job) {
  const std::vector<Program> programs = with_samples(job);
  return LaunchClock(programs).run();
}

}  // namespace gsel
