// program/simulate/simulate_job.cc: an event simulation; see simulate_job.h. A rank goes through its activities until
// it waits for something; whoever makes that happen lets it go on.
#include "program/simulate/simulate_job.h"

#include <algorithm>
#include <deque>

#include "base/error.h"
#include "program/simulate/activities.h"
#include "program/simulate/processors.h"

namespace gsel {
namespace {

constexpr double kNotYet = -1;

// A collective that several ranks come to.
struct Meeting {
  int32_t missing = 0, working = 0;
  double began = kNotYet, ended = kNotYet;
  ExchangeTime time{};
  int32_t group = -1;
  struct Member {
    int32_t rank, post;  // post: of the communication stream, or -1
  };
  std::vector<Member> members;
};

struct Message {
  double sent = kNotYet, asked = kNotYet, arrived = kNotYet;
  bool began = false;
  ExchangeTime time{};
};

// A collective on a rank's communication stream.
struct Post {
  int32_t activity = 0, meeting = -1;
  InstrTimes times{kNotYet, kNotYet};
  int32_t step = 0;
};

enum class Sleep : uint8_t { none, wakes, over };

struct Rank {
  int32_t step = 0;
  size_t next = 0;       // activity
  bool entered = false;  // it is at the next activity already, since `since`
  double since = 0;
  bool computing = false, computed = false;
  int32_t meeting = -1;  // that it is in
  std::vector<Post> posts;
  size_t n_begun = 0;              // of the posts: they run one behind the other
  std::vector<int32_t> under_way;  // post by bucket, or -1
  std::array<int32_t, kAxes> last_post{};
  std::vector<int64_t> n_met;  // by group: meetings so far
  double step_begin = 0;
  Sleep sleep = Sleep::none;
};

struct LaneState {
  std::deque<Message> messages;
  int64_t first = 0;  // number of messages.front()
  int64_t n_sent = 0, n_received = 0, n_asked = 0;
  int64_t per_step = 0;
};

// What a task or a delay is of.
struct Task {
  enum class Kind : uint8_t { compute, meeting, meeting_work, message, message_work, wake } kind;
  int32_t a = 0;
  int64_t b = 0;
};

class JobSimulator {
 public:
  JobSimulator(const Job& job, const Durations& durations, const Hosts& hosts, int32_t steps)
      : job_(job),
        activities_(activities_of(job, durations)),
        hosts_(hosts),
        wake_(durations.wake()),
        n_steps_(steps),
        delays_({}) {
    const size_t n = job.programs.size();
    int32_t n_hosts = 1;
    for (int32_t host : hosts.of_program) n_hosts = std::max(n_hosts, host + 1);
    for (int32_t i = 0; i < n_hosts; ++i)
      processors_.emplace_back(hosts.of_program.empty() ? std::vector<double>{} : hosts.throughput);
    ranks_.resize(n);
    lanes_.resize(activities_.lanes.size());
    meetings_of_.resize(activities_.group_size.size());
    out_.ranks.resize(n);
    for (size_t i = 0; i < n; ++i) {
      ranks_[i].under_way.assign(job.programs[i]->buckets.size(), -1);
      ranks_[i].last_post.fill(-1);
      ranks_[i].n_met.assign(activities_.group_size.size(), 0);
      out_.ranks[i].rank = job.programs[i]->rank;
      for (const Activity& o : activities_.of_rank[i])
        if (o.kind == Activity::Kind::receive) ++lanes_[static_cast<size_t>(o.with)].per_step;
    }
  }

  JobTimes run() {
    for (size_t i = 0; i < ranks_.size(); ++i) begin_step(static_cast<int32_t>(i));
    for (;;) {
      while (!awake_.empty()) {
        const int32_t rank = awake_.front();
        awake_.pop_front();
        proceed(rank);
      }
      if (!happen()) break;
    }
    for (size_t i = 0; i < ranks_.size(); ++i) check_ended(i);
    return finish();
  }

 private:
  // ---- time
  // ------------------------------------------------------------------------------------------------------------

  // The next thing that ends; false when nothing is under way.
  bool happen() {
    Processors* next = &delays_;
    double at = delays_.next_end();
    for (Processors& p : processors_)
      if (const double end = p.next_end(); end < at) {
        at = end;
        next = &p;
      }
    if (at == Processors::kNever) return false;
    now_ = at;
    const int32_t id = next->end(now_);
    const Task task = tasks_[static_cast<size_t>(id)];
    free_.push_back(id);
    end_task(task);
    return true;
  }

  int32_t make_task(Task task) {
    if (free_.empty()) {
      tasks_.push_back(task);
      return static_cast<int32_t>(tasks_.size()) - 1;
    }
    const int32_t id = free_.back();
    free_.pop_back();
    tasks_[static_cast<size_t>(id)] = task;
    return id;
  }

  void delay(double seconds, Task task) { delays_.begin(now_, seconds, make_task(task)); }
  void work(int32_t rank, double seconds, Task task) {
    const size_t host =
        hosts_.of_program.empty() ? 0 : static_cast<size_t>(hosts_.of_program[static_cast<size_t>(rank)]);
    processors_[host].begin(now_, seconds, make_task(task));
  }

  void end_task(const Task& task) {
    switch (task.kind) {
      case Task::Kind::compute:
        ranks_[static_cast<size_t>(task.a)].computing = false;
        ranks_[static_cast<size_t>(task.a)].computed = true;
        return wake(task.a);
      case Task::Kind::wake:
        ranks_[static_cast<size_t>(task.a)].sleep = Sleep::over;
        return wake(task.a);
      case Task::Kind::meeting:
        return begin_work(task.a);
      case Task::Kind::meeting_work:
        if (--meetings_[static_cast<size_t>(task.a)].working == 0) end_meeting(task.a);
        return;
      case Task::Kind::message: {
        const Message& m = message(task.a, task.b);
        const Task after{Task::Kind::message_work, task.a, task.b};
        if (m.time.work > 0) return work(activities_.lanes[static_cast<size_t>(task.a)].to, m.time.work, after);
        return end_task(after);
      }
      case Task::Kind::message_work:
        message(task.a, task.b).arrived = now_;
        begin_message(task.a, task.b + 1);
        wake(activities_.lanes[static_cast<size_t>(task.a)].to);
        wake(activities_.lanes[static_cast<size_t>(task.a)].from);
        return;
    }
  }

  void wake(int32_t rank) { awake_.push_back(rank); }

  // ---- a rank
  // ----------------------------------------------------------------------------------------------------------

  RankTimes& times(int32_t rank) { return out_.ranks[static_cast<size_t>(rank)]; }
  const std::vector<Activity>& activities(int32_t rank) const { return activities_.of_rank[static_cast<size_t>(rank)]; }

  void begin_step(int32_t rank) {
    Rank& r = ranks_[static_cast<size_t>(rank)];
    r.next = 0;
    r.entered = r.computed = false;
    r.step_begin = now_;
    RankTimes& t = times(rank);
    const int32_t number = t.rank;
    t = {};
    t.rank = number;
    t.begin = now_;
    t.instrs.assign(job_.programs[static_cast<size_t>(rank)]->step.size(), {kNotYet, kNotYet});
    // The first receives are asked for.
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
      if (activities_.lanes[lane].to != rank) continue;
      LaneState& l = lanes_[lane];
      const int64_t most = std::min<int64_t>(activities_.lanes[lane].ahead, l.per_step);
      while (l.n_asked < l.n_received + most) ask(static_cast<int32_t>(lane));
    }
    wake(rank);
  }

  void proceed(int32_t rank) {
    Rank& r = ranks_[static_cast<size_t>(rank)];
    const std::vector<Activity>& all = activities(rank);
    while (r.step < n_steps_ && r.next < all.size()) {
      if (!r.entered) {
        r.entered = true;
        r.since = now_;
        InstrTimes& instr = times(rank).instrs[static_cast<size_t>(all[r.next].position)];
        if (instr.begin < 0) instr.begin = now_;
      }
      if (r.sleep == Sleep::wakes) return;
      if (r.sleep == Sleep::none) {
        const double since = r.since;
        if (!perform(rank, r, all[r.next])) return;
        if (sleeps(rank, r, all[r.next], since)) return;
      }
      r.sleep = Sleep::none;
      times(rank).instrs[static_cast<size_t>(all[r.next].position)].end = now_;
      ++r.next;
      r.entered = false;
    }
    if (r.step < n_steps_ && settle(rank)) end_step(rank);
  }

  // The time of a message is until its receiver has it.
  static bool is_message(const Activity& a) {
    return a.kind == Activity::Kind::send || a.kind == Activity::Kind::receive;
  }

  // What was waited for has come; the rank hears of it once it is awake.
  bool sleeps(int32_t rank, Rank& r, const Activity& a, double since) {
    if (a.kind == Activity::Kind::compute || is_message(a) || wake_.takes <= 0 || now_ - since <= wake_.after)
      return false;
    r.sleep = Sleep::wakes;
    times(rank).exposed_s[static_cast<size_t>(a.axis)] += wake_.takes;
    delay(wake_.takes, {Task::Kind::wake, rank, 0});
    return true;
  }

  bool settle(int32_t rank) {
    for (size_t lane = 0; lane < lanes_.size(); ++lane) {
      if (activities_.lanes[lane].from != rank || activities_.lanes[lane].ahead == std::numeric_limits<int32_t>::max())
        continue;
      for (const Message& m : lanes_[lane].messages)
        if (m.sent >= 0 && m.arrived < 0) return false;
    }
    return true;
  }

  void end_step(int32_t rank) {
    Rank& r = ranks_[static_cast<size_t>(rank)];
    times(rank).end = now_;
    ends_.resize(static_cast<size_t>(n_steps_), 0);
    ends_[static_cast<size_t>(r.step)] = std::max(ends_[static_cast<size_t>(r.step)], now_);
    if (++r.step < n_steps_) begin_step(rank);
  }

  // True: it is done.
  bool perform(int32_t rank, Rank& r, const Activity& o) {
    switch (o.kind) {
      case Activity::Kind::compute:
        return compute(rank, r, o);
      case Activity::Kind::exchange:
        return exchange(rank, r, o);
      case Activity::Kind::post:
        return post(rank, r, o);
      case Activity::Kind::wait:
        return wait(rank, r, o);
      case Activity::Kind::send:
        return send(rank, o);
      case Activity::Kind::receive:
        return receive(rank, r, o);
    }
    return true;
  }

  bool compute(int32_t rank, Rank& r, const Activity& o) {
    if (o.seconds <= 0) return true;
    if (r.computed) {
      r.computed = false;
      times(rank).busy_s += now_ - r.since;
      if (o.is_step) times(rank).optimizer_s += now_ - r.since;
      return true;
    }
    if (!r.computing) {
      r.computing = true;
      work(rank, o.seconds, {Task::Kind::compute, rank, 0});
    }
    return false;
  }

  // Waiting since `since` for what could begin at `began`.
  void note_wait(int32_t rank, gsel_axis axis, double since, double began) {
    const double moving = std::max(since, std::min(began, now_));
    times(rank).idle_s[static_cast<size_t>(axis)] += moving - since;
    times(rank).exposed_s[static_cast<size_t>(axis)] += now_ - moving;
  }

  // ---- collectives
  // -----------------------------------------------------------------------------------------------------

  // A communicator takes one call at a time.
  bool is_drained(const Rank& r, gsel_axis axis) const {
    const int32_t last = r.last_post[static_cast<size_t>(axis)];
    return last < 0 || r.posts[static_cast<size_t>(last)].times.end >= 0;
  }

  double began(const Post& post) const { return meetings_[static_cast<size_t>(post.meeting)].began; }

  bool exchange(int32_t rank, Rank& r, const Activity& o) {
    if (r.meeting < 0) {
      if (!is_drained(r, o.axis)) return false;
      if (const int32_t last = r.last_post[static_cast<size_t>(o.axis)]; now_ > r.since && last >= 0) {
        note_wait(rank, o.axis, r.since, began(r.posts[static_cast<size_t>(last)]));
        r.since = now_;
      }
      r.meeting = come(rank, r, o, -1);
    }
    const Meeting& m = meetings_[static_cast<size_t>(r.meeting)];
    if (m.ended < 0) return false;
    note_wait(rank, o.axis, r.since, m.began);
    r.meeting = -1;
    return true;
  }

  int32_t come(int32_t rank, Rank& r, const Activity& o, int32_t post) {
    const auto group = static_cast<size_t>(o.with);
    const auto number = static_cast<size_t>(r.n_met[group]++);
    std::vector<int32_t>& of_group = meetings_of_[group];
    while (of_group.size() <= number) {
      of_group.push_back(static_cast<int32_t>(meetings_.size()));
      Meeting& fresh = meetings_.emplace_back();
      fresh.missing = activities_.group_size[group];
      fresh.group = o.with;
    }
    const int32_t id = of_group[number];
    Meeting& m = meetings_[static_cast<size_t>(id)];
    m.members.push_back({rank, post});
    m.time.wire = std::max(m.time.wire, o.time.wire);
    m.time.work = std::max(m.time.work, o.time.work);
    if (--m.missing == 0) {
      m.began = now_;
      if (m.time.wire > 0)
        delay(m.time.wire, {Task::Kind::meeting, id, 0});
      else
        begin_work(id);
    }
    return id;
  }

  void begin_work(int32_t id) {
    Meeting& m = meetings_[static_cast<size_t>(id)];
    if (m.time.work <= 0) return end_meeting(id);
    m.working = static_cast<int32_t>(m.members.size());
    for (const Meeting::Member& member : m.members) work(member.rank, m.time.work, {Task::Kind::meeting_work, id, 0});
  }

  void end_meeting(int32_t id) {
    Meeting& m = meetings_[static_cast<size_t>(id)];
    m.ended = now_;
    for (const Meeting::Member& member : m.members) {
      if (member.post >= 0) end_post(member.rank, member.post, m.began);
      wake(member.rank);
    }
    m.members = {};
  }

  bool post(int32_t rank, Rank& r, const Activity& o) {
    r.posts.push_back({static_cast<int32_t>(r.next), -1, {kNotYet, kNotYet}, r.step});
    const auto id = static_cast<int32_t>(r.posts.size()) - 1;
    r.under_way[static_cast<size_t>(o.bucket)] = id;
    r.last_post[static_cast<size_t>(o.axis)] = id;
    begin_posts(rank, r);
    return true;
  }

  // The stream goes on where the one before has ended.
  void begin_posts(int32_t rank, Rank& r) {
    if (r.n_begun == r.posts.size()) return;
    if (r.n_begun > 0 && r.posts[r.n_begun - 1].times.end < 0) return;
    const auto id = static_cast<int32_t>(r.n_begun++);
    const Activity& o = activities(rank)[static_cast<size_t>(r.posts[static_cast<size_t>(id)].activity)];
    r.posts[static_cast<size_t>(id)].times.begin = now_;
    const int32_t meeting = come(rank, r, o, id);
    r.posts[static_cast<size_t>(id)].meeting = meeting;
  }

  void end_post(int32_t rank, int32_t id, double began) {
    Rank& r = ranks_[static_cast<size_t>(rank)];
    Post& p = r.posts[static_cast<size_t>(id)];
    p.times.end = now_;
    if (p.step == r.step) {
      const int32_t position = activities(rank)[static_cast<size_t>(p.activity)].position;
      times(rank).asynchronous.push_back({position, {began, now_}});
    }
    begin_posts(rank, r);
  }

  bool wait(int32_t rank, Rank& r, const Activity& o) {
    int32_t& id = r.under_way[static_cast<size_t>(o.bucket)];
    if (id < 0) return true;
    const Post& p = r.posts[static_cast<size_t>(id)];
    if (p.times.end < 0) return false;
    if (p.times.end > r.since) note_wait(rank, o.axis, r.since, began(p));
    id = -1;
    return true;
  }

  // ---- messages
  // --------------------------------------------------------------------------------------------------------

  Message& message(int32_t lane, int64_t number) {
    LaneState& l = lanes_[static_cast<size_t>(lane)];
    while (l.first + static_cast<int64_t>(l.messages.size()) <= number) l.messages.emplace_back();
    return l.messages[static_cast<size_t>(number - l.first)];
  }

  void ask(int32_t lane) {
    LaneState& l = lanes_[static_cast<size_t>(lane)];
    const int64_t number = l.n_asked++;
    message(lane, number).asked = now_;
    begin_message(lane, number);
  }

  // One behind the other.
  bool is_first_under_way(int32_t lane, int64_t number) {
    return number == lanes_[static_cast<size_t>(lane)].first || message(lane, number - 1).arrived >= 0;
  }

  void begin_message(int32_t lane, int64_t number) {
    Message& m = message(lane, number);
    if (m.sent < 0 || m.asked < 0 || m.began || !is_first_under_way(lane, number)) return;
    m.began = true;
    const Task task{Task::Kind::message, lane, number};
    if (m.time.wire > 0)
      delay(m.time.wire, task);
    else
      end_task(task);
  }

  // Once the one so many before it has left.
  bool send(int32_t rank, const Activity& o) {
    LaneState& l = lanes_[static_cast<size_t>(o.with)];
    const int64_t before = l.n_sent - activities_.lanes[static_cast<size_t>(o.with)].ahead;
    Rank& r = ranks_[static_cast<size_t>(rank)];
    if (before >= l.first && message(o.with, before).arrived < 0) return false;
    if (now_ > r.since) note_wait(rank, o.axis, r.since, now_);
    const int64_t number = l.n_sent++;
    Message& m = message(o.with, number);
    m.sent = now_;
    m.time = o.time;
    begin_message(o.with, number);
    return true;
  }

  bool receive(int32_t rank, Rank& r, const Activity& o) {
    LaneState& l = lanes_[static_cast<size_t>(o.with)];
    const Message& m = message(o.with, l.n_received);
    if (m.arrived < 0) return false;
    if (m.arrived > r.since) note_wait(rank, o.axis, r.since, std::max(m.sent, m.asked));
    ++l.n_received;
    while (!l.messages.empty() && l.messages.front().arrived >= 0 && l.first < l.n_received) {
      l.messages.pop_front();
      ++l.first;
    }
    // Another one may come in its place, of those that are in this step.
    if (l.n_asked < (r.step + 1) * l.per_step) ask(o.with);
    return true;
  }

  // ---- the result
  // ------------------------------------------------------------------------------------------------------

  void check_ended(size_t i) const {
    if (ranks_[i].step == n_steps_) return;
    const Program& program = *job_.programs[i];
    const std::vector<Activity>& all = activities_.of_rank[i];
    const size_t at = ranks_[i].next;
    fail(GSEL_ERR_PROGRAM, "{}: the rank waits for ever",
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
      for (InstrTimes& i : t.instrs) {  // what takes no time stands where it is come to
        i = i.begin < 0 ? InstrTimes{before, before} : InstrTimes{i.begin - first, std::max(i.end, i.begin) - first};
        before = i.end;
      }
      for (RankTimes::Asynchronous& a : t.asynchronous) a.times = {a.times.begin - first, a.times.end - first};
    }
    out_.makespan = last - first;
    out_.period = n_steps_ > 1 ? ends_[ends_.size() - 1] - ends_[ends_.size() - 2] : out_.makespan;
    return std::move(out_);
  }

  const Job& job_;
  const Activities activities_;
  const Hosts& hosts_;
  const Durations::Wake wake_;
  const int32_t n_steps_;
  double now_ = 0;
  Processors delays_;  // what no processor works at
  std::vector<Processors> processors_;
  std::vector<Task> tasks_;
  std::vector<int32_t> free_;  // of the tasks
  std::vector<Rank> ranks_;
  std::vector<LaneState> lanes_;
  std::deque<Meeting> meetings_;
  std::vector<std::vector<int32_t>> meetings_of_;  // by group, in order
  std::deque<int32_t> awake_;
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
