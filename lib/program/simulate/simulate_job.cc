// program/simulate/simulate_job.cc: an event simulation; see simulate_job.h. A rank runs its activities until it has to
// wait; the event that it waits for wakes it. Interactions of ranks are in exchanges.h, times in agenda.h.
#include "program/simulate/simulate_job.h"

#include <algorithm>
#include <deque>

#include "base/error.h"
#include "program/simulate/exchanges.h"
#include "program/words/words.h"

namespace gsel {
namespace {

constexpr double kNotYet = -1;
using TaskKind = SimulatedTask::Kind;

// A collective on a rank's communication stream.
struct Post {
  size_t activity = 0;
  int32_t meeting = -1, step = 0;
  bool ended = false;
};

enum class Sleep : uint8_t { none, wakes, over };

struct Rank {
  int32_t step = 0;
  size_t next = 0;       // activity
  bool entered = false;  // the next activity has been waiting since `since`
  double since = 0;
  bool computing = false, computed = false;
  int32_t meeting = -1;  // current meeting, or -1
  Sleep sleep = Sleep::none;
  std::vector<Post> posts;
  size_t n_begun = 0;              // of the posts, which run in order
  std::vector<int32_t> under_way;  // post by bucket, or -1
  std::array<int32_t, kAxes> last_post{};
};

class JobSimulator {
 public:
  JobSimulator(const Job& job, const Durations& durations, const Hosts& hosts, int32_t steps)
      : job_(job),
        activities_(activities_of(job, durations)),
        wake_(durations.wake()),
        n_steps_(steps),
        agenda_(hosts),
        meetings_(activities_, agenda_, [this](const Meeting& m) { end_meeting(m); }),
        messages_(activities_, agenda_, awake_),
        ranks_(job.programs.size()),
        ends_(static_cast<size_t>(steps)) {
    out_.ranks.resize(ranks_.size());
    for (size_t i = 0; i < ranks_.size(); ++i) {
      ranks_[i].under_way.assign(job.programs[i]->buckets.size(), -1);
      ranks_[i].last_post.fill(-1);
    }
  }

  JobTimes run() {
    for (size_t i = 0; i < ranks_.size(); ++i) begin_step(static_cast<int32_t>(i));
    for (SimulatedTask ended{};; end_task(ended)) {
      while (!awake_.empty()) {
        const int32_t place = awake_.front();
        awake_.pop_front();
        proceed(place);
      }
      if (!agenda_.next(ended)) break;
    }
    for (size_t i = 0; i < ranks_.size(); ++i) check_ended(i);
    return finish();
  }

 private:
  void end_task(const SimulatedTask& task) {
    switch (task.kind) {
      case TaskKind::compute:
        rank(task.of).computing = false;
        rank(task.of).computed = true;
        return awake_.push_back(task.of);
      case TaskKind::wake:
        rank(task.of).sleep = Sleep::over;
        return awake_.push_back(task.of);
      case TaskKind::meeting:
        return meetings_.end_wire(task.of);
      case TaskKind::meeting_work:
        return meetings_.end_work(task.of);
      case TaskKind::message:
        return messages_.end_wire(task.of, task.number);
      case TaskKind::message_work:
        return messages_.end_work(task.of, task.number);
    }
  }

  Rank& rank(int32_t place) { return ranks_[static_cast<size_t>(place)]; }
  RankTimes& times(int32_t place) { return out_.ranks[static_cast<size_t>(place)]; }
  const std::vector<Activity>& activities(int32_t place) const {
    return activities_.of_rank[static_cast<size_t>(place)];
  }

  // ---- a rank's step ----

  void begin_step(int32_t place) {
    Rank& r = rank(place);
    r.next = 0;
    r.entered = r.computed = false;
    const Program& program = *job_.programs[static_cast<size_t>(place)];
    RankTimes& t = times(place);
    t = {};
    t.rank = program.rank;
    t.begin = agenda_.now();
    t.instrs.assign(program.step.size(), {kNotYet, kNotYet});
    messages_.begin_step(place);
    awake_.push_back(place);
  }

  void proceed(int32_t place) {
    Rank& r = rank(place);
    const std::vector<Activity>& all = activities(place);
    while (r.step < n_steps_ && r.next < all.size()) {
      InstrTimes& instr = times(place).instrs[static_cast<size_t>(all[r.next].position)];
      if (!r.entered) {
        r.entered = true;
        r.since = agenda_.now();
        if (instr.begin < 0) instr.begin = r.since;
      }
      if (r.sleep == Sleep::wakes) return;
      if (r.sleep == Sleep::none) {
        const double since = r.since;
        if (!perform(place, r, all[r.next]) || sleeps(place, r, all[r.next], since)) return;
      }
      r.sleep = Sleep::none;
      instr.end = agenda_.now();
      ++r.next;
      r.entered = false;
    }
    if (r.step < n_steps_ && messages_.all_left(place)) end_step(place);
  }

  void end_step(int32_t place) {
    Rank& r = rank(place);
    times(place).end = agenda_.now();
    double& end = ends_[static_cast<size_t>(r.step)];
    end = std::max(end, agenda_.now());
    if (++r.step < n_steps_) begin_step(place);
  }

  // Whether the rank slept while it waited and so resumes late. Only for collectives: a message's time already ends
  // when its receiver has it.
  bool sleeps(int32_t place, Rank& r, const Activity& a, double since) {
    const bool meets = a.kind == Activity::Kind::exchange || a.kind == Activity::Kind::wait;
    if (!meets || wake_.takes <= 0 || agenda_.now() - since <= wake_.after) return false;
    r.sleep = Sleep::wakes;
    times(place).exposed_s[static_cast<size_t>(a.axis)] += wake_.takes;
    agenda_.delay(wake_.takes, {TaskKind::wake, place, 0});
    return true;
  }

  // True: the activity is done.
  bool perform(int32_t place, Rank& r, const Activity& a) {
    switch (a.kind) {
      case Activity::Kind::compute:
        return compute(place, r, a);
      case Activity::Kind::exchange:
        return exchange(place, r, a);
      case Activity::Kind::post:
        return post(place, r, a);
      case Activity::Kind::wait:
        return wait(place, r, a);
      case Activity::Kind::send:
        return send(place, r, a);
      case Activity::Kind::receive:
        return receive(place, r, a);
    }
    return true;
  }

  bool compute(int32_t place, Rank& r, const Activity& a) {
    if (a.seconds <= 0) return true;
    if (r.computed) {
      r.computed = false;
      times(place).busy_s += agenda_.now() - r.since;
      if (a.is_step) times(place).optimizer_s += agenda_.now() - r.since;
      return true;
    }
    if (!r.computing) {
      r.computing = true;
      agenda_.work(place, a.seconds, {TaskKind::compute, place, 0});
    }
    return false;
  }

  // Records a wait from `since` until now for something that could begin at `began`.
  void note_wait(int32_t place, gsel_axis axis, double since, double began) {
    const double moving = std::max(since, std::min(began, agenda_.now()));
    times(place).idle_s[static_cast<size_t>(axis)] += moving - since;
    times(place).exposed_s[static_cast<size_t>(axis)] += agenda_.now() - moving;
  }

  bool send(int32_t place, const Rank& r, const Activity& a) {
    if (!messages_.send(a)) return false;
    if (agenda_.now() > r.since) note_wait(place, a.axis, r.since, agenda_.now());
    return true;
  }

  bool receive(int32_t place, const Rank& r, const Activity& a) {
    double began = 0;
    if (!messages_.receive(a, r.step + 1, began)) return false;
    if (agenda_.now() > r.since) note_wait(place, a.axis, r.since, began);
    return true;
  }

  // ---- collectives ----

  bool exchange(int32_t place, Rank& r, const Activity& a) {
    if (r.meeting < 0) {
      // A communicator takes one call at a time.
      const int32_t last = r.last_post[static_cast<size_t>(a.axis)];
      if (last >= 0 && !r.posts[static_cast<size_t>(last)].ended) return false;
      if (agenda_.now() > r.since && last >= 0) {
        note_wait(place, a.axis, r.since, meetings_[r.posts[static_cast<size_t>(last)].meeting].began);
        r.since = agenda_.now();
      }
      r.meeting = meetings_.arrive(place, a, -1);
    }
    const Meeting& m = meetings_[r.meeting];
    if (m.ended < 0) return false;
    note_wait(place, a.axis, r.since, m.began);
    r.meeting = -1;
    return true;
  }

  bool post(int32_t place, Rank& r, const Activity& a) {
    const auto id = static_cast<int32_t>(r.posts.size());
    r.posts.push_back({r.next, -1, r.step, false});
    r.under_way[static_cast<size_t>(a.bucket)] = id;
    r.last_post[static_cast<size_t>(a.axis)] = id;
    begin_posts(place);
    return true;
  }

  // Begins the next collective of the stream once the one before has ended.
  void begin_posts(int32_t place) {
    Rank& r = rank(place);
    if (r.n_begun == r.posts.size() || (r.n_begun > 0 && !r.posts[r.n_begun - 1].ended)) return;
    const size_t id = r.n_begun++;
    const int32_t meeting = meetings_.arrive(place, activities(place)[r.posts[id].activity], static_cast<int32_t>(id));
    r.posts[id].meeting = meeting;
  }

  void end_post(int32_t place, int32_t id, const Meeting& meeting) {
    Rank& r = rank(place);
    Post& p = r.posts[static_cast<size_t>(id)];
    p.ended = true;
    if (p.step == r.step)
      times(place).asynchronous.push_back({activities(place)[p.activity].position, {meeting.began, meeting.ended}});
    begin_posts(place);
  }

  void end_meeting(const Meeting& meeting) {
    const std::vector<Meeting::Member> members = meeting.members;  // a copy: others may come to the next meeting
    for (const Meeting::Member& member : members) {
      if (member.post >= 0) end_post(member.place, member.post, meeting);
      awake_.push_back(member.place);
    }
  }

  bool wait(int32_t place, Rank& r, const Activity& a) {
    int32_t& id = r.under_way[static_cast<size_t>(a.bucket)];
    if (id < 0) return true;
    const Post& p = r.posts[static_cast<size_t>(id)];
    if (!p.ended) return false;
    const Meeting& m = meetings_[p.meeting];
    if (m.ended > r.since) note_wait(place, a.axis, r.since, m.began);
    id = -1;
    return true;
  }

  // ---- the result ----

  void check_ended(size_t i) const {
    if (ranks_[i].step == n_steps_) return;
    const Program& program = *job_.programs[i];
    const std::vector<Activity>& all = activities_.of_rank[i];
    const size_t at = ranks_[i].next;
    fail(GSEL_ERR_PROGRAM, "{}: the rank never goes on; the programs deadlock",
         at < all.size() ? where(program, false, static_cast<size_t>(all[at].position))
                         : fmt::format("rank {}, end of the step", program.rank));
  }

  JobTimes finish() {
    double first = Processors::kNever, last = 0;
    for (const RankTimes& t : out_.ranks) {
      first = std::min(first, t.begin);
      last = std::max(last, t.end);
    }
    for (RankTimes& t : out_.ranks) {
      t.begin -= first;
      t.end -= first;
      double before = t.begin;
      for (InstrTimes& i : t.instrs) {  // an instruction without activities is at its predecessor's end
        i = i.begin < 0 ? InstrTimes{before, before} : InstrTimes{i.begin - first, std::max(i.end, i.begin) - first};
        before = i.end;
      }
      for (RankTimes::Asynchronous& a : t.asynchronous) a.times = {a.times.begin - first, a.times.end - first};
    }
    out_.makespan = last - first;
    out_.period = n_steps_ > 1 ? ends_.back() - ends_[ends_.size() - 2] : out_.makespan;
    return std::move(out_);
  }

  const Job& job_;
  const Activities activities_;
  const Durations::Wake wake_;
  const int32_t n_steps_;
  std::deque<int32_t> awake_;  // places of ranks that may go on
  Agenda agenda_;
  Meetings meetings_;
  MessageChannels messages_;
  std::vector<Rank> ranks_;
  std::vector<double> ends_;  // of the steps
  JobTimes out_;
};

double mean_share(const JobTimes& job, double (*seconds)(const RankTimes&)) {
  double sum = 0;
  for (const RankTimes& t : job.ranks) sum += seconds(t);
  return job.period > 0 ? sum / static_cast<double>(job.ranks.size()) / job.period : 0;
}

}  // namespace

double JobTimes::busy() const {
  return mean_share(*this, [](const RankTimes& t) { return t.busy_s; });
}

double JobTimes::exposed() const {
  return mean_share(*this, [](const RankTimes& t) {
    double sum = 0;
    for (double seconds : t.exposed_s) sum += seconds;
    return sum;
  });
}

JobTimes simulate(const Job& job, const Durations& durations, const Hosts& hosts, int32_t steps) {
  return JobSimulator(job, durations, hosts, std::max(steps, 1)).run();
}

}  // namespace gsel
