// model/machine.cc: see machine.h.
#include "machine.h"

#include <unordered_set>

#include "state.h"

namespace model {
namespace {

constexpr uint64_t kMostStates = 40'000'000;
constexpr size_t kMostInstructions = 255;  // of a thread

class Search {
 public:
  explicit Search(const Program& program) : program_(program), threads_(static_cast<int>(program.threads.size())) {}

  Verdict run() {
    for (const Thread& thread : program_.threads)
      if (thread.code.size() > kMostInstructions) fail("program too long");
    State state;
    std::memset(static_cast<void*>(&state), 0, sizeof state);
    for (Place& place : state.place) place.count = 1;  // zero, seen by all
    for (int t = 0; t < kThreads; ++t) {
      state.thread[t].asleep = kAwake;
      state.thread[t].now.clock[t] = 1;
    }
    visit(state);
    verdict_.states = seen_.size();
    if (!verdict_.failure.empty()) verdict_.trace = trace_;
    return verdict_;
  }

 private:
  const Instruction* next(const State& state, int t) const {
    const auto& code = program_.threads[static_cast<size_t>(t)].code;
    const size_t pc = state.thread[t].pc;
    return pc < code.size() ? &code[pc] : nullptr;
  }

  void fail(std::string what) { verdict_.failure = std::move(what); }
  bool failed() const { return !verdict_.failure.empty(); }
  static std::string who(int t) { return "thread " + std::to_string(t); }

  void note(int t, const Instruction& i, int seen) {
    static const char* const names[] = {"write",   "read",       "store",      "wait", "load",      "add",
                                        "barrier", "futex wait", "futex wake", "jump", "jump below"};
    trace_.push_back(who(t) + ": " + names[static_cast<int>(i.op)] + " place " + std::to_string(i.place) + " value " +
                     std::to_string(seen));
  }

  // Everything that commutes with what the others can do is done at once.
  void run_ahead(State& state) {
    for (bool moved = true; moved && !failed();) {
      moved = false;
      for (int t = 0; t < threads_ && !failed(); ++t)
        while (const Instruction* i = next(state, t)) {
          if (!commutes(*i)) break;
          apply_alone(state, t, *i);
          moved = true;
          if (failed()) return;
        }
    }
  }
  bool commutes(const Instruction& i) const {
    if (i.op == Op::jump || i.op == Op::jump_below) return true;
    if (!program_.stores_commute) return false;
    return i.op == Op::write || i.op == Op::read || i.op == Op::store;
  }

  void visit(State state) {
    run_ahead(state);
    if (failed()) return;
    forget(state);
    if (!seen_.insert(hash_of(state)).second) return;
    if (seen_.size() > kMostStates) return fail("too many states");
    const size_t depth = trace_.size();
    bool all_done = true, any_move = false;
    for (int t = 0; t < threads_; ++t) {
      if (state.thread[t].fence_owed) {
        any_move = true;
        State after = state;
        after.thread[t].fence_owed = 0;
        fence(after, t);
        if (descend(after, depth)) return;
      }
      const Instruction* i = next(state, t);
      all_done = all_done && !i;
      if (!i || state.thread[t].asleep != kAwake) continue;
      if (move(state, t, *i, depth, any_move)) return;
    }
    if (!all_done && !any_move) fail(stuck(state));
  }

  // True: stop, a failure was found.
  bool descend(const State& after, size_t depth) {
    if (!failed()) visit(after);
    if (failed()) return true;
    trace_.resize(depth);
    return false;
  }

  bool move(const State& state, int t, const Instruction& i, size_t depth, bool& any_move) {
    if (i.op == Op::wait || i.op == Op::load || i.op == Op::futex_wait) {
      const Place& place = state.place[i.place];
      const uint8_t oldest = oldest_readable(state, t, i);
      for (int stamp = oldest; stamp < place.first + place.count; ++stamp) {
        const int value = place.message[stamp - place.first].value;
        if (i.op == Op::wait && value < i.value) continue;
        any_move = true;
        State after = state;
        note(t, i, value);
        look(after, t, i, stamp);
        if (descend(after, depth)) return true;
        if (i.op == Op::wait && program_.oldest_is_enough) return false;
      }
      return false;
    }
    if (i.op == Op::barrier && state.thread[t].barrier_open && owed(state, t)) return false;
    any_move = true;
    State after = state;
    apply_alone(after, t, i);
    return descend(after, depth);
  }

  static uint8_t asks(int t) { return static_cast<uint8_t>(1 << t); }
  bool owed(const State& state, int t) const {
    for (int other = 0; other < threads_; ++other)
      if (state.thread[other].fence_owed & asks(t)) return true;
    return false;
  }

  static uint8_t oldest_readable(const State& state, int t, const Instruction& i) {
    uint8_t oldest = std::max(state.thread[t].now.stamp[i.place], state.place[i.place].first);
    if (i.op == Op::futex_wait) oldest = std::max(oldest, state.lock[i.place]);
    if (i.order == Order::seq_cst) oldest = std::max(oldest, state.sc[i.place]);
    return oldest;
  }

  // A read of the message with this stamp.
  static void look(State& state, int t, const Instruction& i, int stamp) {
    ThreadState& me = state.thread[t];
    const Place& place = state.place[i.place];
    const Message& message = place.message[stamp - place.first];
    ++me.pc;
    if (i.op == Op::futex_wait) {
      join_stamps(me.now.stamp, state.lock);
      me.now.stamp[i.place] = std::max(me.now.stamp[i.place], static_cast<uint8_t>(stamp));
      join_stamps(state.lock, me.now.stamp);
      if (message.value == me.reg[i.reg]) me.asleep = i.place;
      return;
    }
    me.now.stamp[i.place] = std::max(me.now.stamp[i.place], static_cast<uint8_t>(stamp));
    me.acquired.join(message.view);
    if (i.order != Order::relaxed) me.now.join(message.view);
    if (i.order == Order::seq_cst) state.sc[i.place] = std::max(state.sc[i.place], static_cast<uint8_t>(stamp));
    if (i.op == Op::load) me.reg[i.reg] = message.value;
  }

  // Instructions with one outcome.
  void apply_alone(State& state, int t, const Instruction& i) {
    ThreadState& me = state.thread[t];
    if (i.op == Op::barrier && !me.barrier_open) {
      fence(state, t);
      me.barrier_open = 1;
      for (int other = 0; other < threads_; ++other)
        if (other != t) state.thread[other].fence_owed |= asks(t);
      return;
    }
    ++me.pc;
    switch (i.op) {
      case Op::write:
      case Op::read:
        note(t, i, i.value);
        return touch(state, t, i);
      case Op::store:
        note(t, i, i.value);
        return append(state, t, i, static_cast<uint8_t>(i.value), nullptr);
      case Op::add: {
        Place& place = state.place[i.place];
        const Message last = place.message[place.count - 1];  // an update reads what it follows
        me.now.join(last.view);
        note(t, i, last.value + i.value);
        return append(state, t, i, static_cast<uint8_t>(last.value + i.value), &last.view);
      }
      case Op::barrier:
        me.barrier_open = 0;
        return fence(state, t);
      case Op::futex_wake:
        note(t, i, 0);
        join_stamps(me.now.stamp, state.lock);
        join_stamps(state.lock, me.now.stamp);
        for (int other = 0; other < threads_; ++other)
          if (state.thread[other].asleep == i.place) state.thread[other].asleep = kAwake;
        return;
      case Op::jump:
        me.pc = static_cast<uint8_t>(i.target);
        return;
      case Op::jump_below:
        if (me.reg[i.reg] < i.value) me.pc = static_cast<uint8_t>(i.target);
        return;
      default:
        return;
    }
  }

  void append(State& state, int t, const Instruction& i, uint8_t value, const View* sequence) {
    ThreadState& me = state.thread[t];
    Place& place = state.place[i.place];
    if (place.count == kMessages) return fail("too many messages");
    const auto stamp = static_cast<uint8_t>(place.first + place.count);
    me.now.stamp[i.place] = stamp;
    Message& message = place.message[place.count++];
    message.value = value;
    const bool releases = i.order == Order::release || i.order == Order::seq_cst;
    message.view = releases ? me.now : me.released;
    message.view.stamp[i.place] = stamp;
    if (sequence) message.view.join(*sequence);
    if (i.order == Order::seq_cst) state.sc[i.place] = stamp;
    if (releases) ++me.now.clock[t];
  }

  void touch(State& state, int t, const Instruction& i) {
    ThreadState& me = state.thread[t];
    Data& data = state.data[i.place];
    const std::string what = who(t) + (i.op == Op::write ? " writes" : " reads") + " data " + std::to_string(i.place);
    if (data.written > me.now.clock[data.writer])
      return fail("data race: " + what + ", written by thread " + std::to_string(data.writer));
    if (i.op == Op::read) {
      data.reads[t] = me.now.clock[t];
      if (data.value != i.value)
        fail(what + " and finds " + std::to_string(data.value) + ", expected " + std::to_string(i.value));
      return;
    }
    for (int other = 0; other < threads_; ++other)
      if (data.reads[other] > me.now.clock[other])
        return fail("data race: " + what + ", read by thread " + std::to_string(other));
    data = {static_cast<uint8_t>(i.value), static_cast<uint8_t>(t), me.now.clock[t], {}};
  }

  // seq_cst.
  static void fence(State& state, int t) {
    ThreadState& me = state.thread[t];
    me.now.join(me.acquired);
    join_stamps(me.now.stamp, state.sc);
    join_stamps(state.sc, me.now.stamp);
    me.released = me.now;
    ++me.now.clock[t];
  }

  // Drops messages that nobody can read any more.
  void forget(State& state) const {
    for (int p = 0; p < kAtomics; ++p) {
      Place& place = state.place[p];
      uint8_t oldest = 255;
      for (int t = 0; t < threads_; ++t)
        if (next(state, t)) oldest = std::min(oldest, state.thread[t].now.stamp[p]);
      const int gone = std::min<int>(oldest, place.first + place.count - 1) - place.first;
      if (gone <= 0) continue;
      std::memmove(place.message, place.message + gone, static_cast<size_t>(place.count - gone) * sizeof(Message));
      place.first = static_cast<uint8_t>(place.first + gone);
      place.count = static_cast<uint8_t>(place.count - gone);
    }
  }

  std::string stuck(const State& state) const {
    std::string text = "stuck:";
    for (int t = 0; t < threads_; ++t)
      if (const Instruction* i = next(state, t))
        text += " " + who(t) + (state.thread[t].asleep != kAwake ? " sleeps on place " : " waits for place ") +
                std::to_string(state.thread[t].asleep != kAwake ? state.thread[t].asleep : i->place) + ";";
    return text;
  }

  const Program& program_;
  int threads_;
  Verdict verdict_;
  std::vector<std::string> trace_;
  std::unordered_set<Hash128, Low> seen_;
};

}  // namespace

Verdict explore(const Program& program) {
  return Search(program).run();
}

}  // namespace model
