// model/protocols.cc: see protocols.h.
#include "protocols.h"

namespace model {
namespace {

// Values tell call, chunk and rank, so that an old or a foreign one is noticed.
int value_of(int call, int chunk, int rank) {
  return 1 + (call * 8 + chunk) * 4 + rank;
}
constexpr int kResult = 128;

// Places of the staged protocols. Lines come first, two per rank.
struct Flags {
  int ranks;
  int line(int rank, int call) const { return rank * 2 + call % 2; }
  int staged(int rank) const { return 2 * ranks + rank; }
  int reduced(int rank) const { return 3 * ranks + rank; }
  int copied(int rank) const { return 4 * ranks + rank; }
  int block(int rank, int buffer, int slice) const { return (rank * 2 + buffer) * ranks + slice; }
};

void exchange_headers(Thread& me, const Flags& at, int rank, int call, Order post) {
  me.store(at.line(rank, call), call, post);
  for (int q = 0; q < at.ranks; ++q) me.wait(at.line(q, call), call, Order::acquire);
}

class StagedRank {
 public:
  StagedRank(const Staged& how, int rank) : how_(how), at_{how.ranks}, rank_(rank) {}

  Thread program() {
    for (const char kind : how_.calls) {
      ++call_;
      if (how_.begins_with_headers) exchange_headers(me_, at_, rank_, call_, how_.header);
      if (kind == 'g' || kind == 'b')
        run_copy(kind == 'g' ? how_.ranks : 1);
      else
        run_reduction(kind != 's', kind == 'a' || (kind == 'r' && rank_ == 0));
      base_ += how_.chunks;
    }
    return me_;
  }

 private:
  int buffer(int k) const { return k % how_.buffers; }
  int flag_of(int k) const { return base_ + k + 1; }

  void wait_for_copied(int k) {
    for (int q = 0; how_.waits_for_copied && k >= 2 && q < how_.ranks; ++q)
      me_.wait(at_.copied(q), flag_of(k - 2), how_.look_copied);
  }

  void run_reduction(bool fetched, bool fetches) {
    stage_slices(0);
    for (int k = 0; k < how_.chunks; ++k) {
      if (fetched) reduce(k, true);
      if (k + 1 < how_.chunks) stage_slices(k + 1);
      if (!how_.copied_comes_last) me_.store(at_.copied(rank_), flag_of(k), how_.copied);
      if (!fetched) reduce(k, false);
      if (fetches) fetch_slices(k);
      if (how_.copied_comes_last) me_.store(at_.copied(rank_), flag_of(k), how_.copied);
    }
  }
  void stage_slices(int k) {
    wait_for_copied(k);
    for (int q = 0; q < how_.ranks; ++q)
      if (q != rank_) me_.write(at_.block(rank_, buffer(k), q), value_of(call_, k, rank_));
    me_.store(at_.staged(rank_), flag_of(k), how_.staged);
  }
  void reduce(int k, bool fetched) {
    for (int q = 0; q < how_.ranks; ++q) me_.wait(at_.staged(q), flag_of(k), how_.look_staged);
    for (int q = 0; q < how_.ranks; ++q)
      if (q != rank_) me_.read(at_.block(q, buffer(k), rank_), value_of(call_, k, q));
    if (!fetched) return;
    me_.write(at_.block(rank_, buffer(k), rank_), kResult + value_of(call_, k, rank_));
    me_.store(at_.reduced(rank_), flag_of(k), how_.reduced);
  }
  void fetch_slices(int k) {
    for (int i = 0; i < how_.ranks; ++i) {
      const int q = (rank_ + i) % how_.ranks;
      if (how_.waits_for_reduced) me_.wait(at_.reduced(q), flag_of(k), how_.look_reduced);
      me_.read(at_.block(q, buffer(k), q), kResult + value_of(call_, k, q));
    }
  }

  void run_copy(int writers) {
    stage_whole(0, writers);
    for (int k = 0; k < how_.chunks; ++k) {
      if (k + 1 < how_.chunks) stage_whole(k + 1, writers);
      if (!how_.copied_comes_last) me_.store(at_.copied(rank_), flag_of(k), how_.copied);
      for (int i = 1; i < how_.ranks; ++i) fetch_whole(k, (rank_ + i) % how_.ranks, writers);
      if (how_.copied_comes_last) me_.store(at_.copied(rank_), flag_of(k), how_.copied);
    }
  }
  void stage_whole(int k, int writers) {
    if (rank_ >= writers) return;
    wait_for_copied(k);
    for (int slice = 0; slice < how_.ranks; ++slice)
      me_.write(at_.block(rank_, buffer(k), slice), value_of(call_, k, rank_));
    me_.store(at_.staged(rank_), flag_of(k), how_.staged);
  }
  void fetch_whole(int k, int q, int writers) {
    if (q >= writers) return;
    me_.wait(at_.staged(q), flag_of(k), how_.look_staged);
    for (int slice = 0; slice < how_.ranks; ++slice) me_.read(at_.block(q, buffer(k), slice), value_of(call_, k, q));
  }

  const Staged& how_;
  Flags at_;
  int rank_, call_ = 0, base_ = 0;
  Thread me_;
};

}  // namespace

Program header_lines(const Header& how) {
  Program program;
  program.stores_commute = true;
  const auto line = [&](int rank, int call) { return rank * 2 + call % how.parities; };
  const auto payload = [&](int rank, int call) { return 2 * how.ranks + line(rank, call); };
  for (int r = 0; r < how.ranks; ++r) {
    Thread me;
    for (int call = 1; call <= how.calls; ++call) {
      me.write(line(r, call), 200);  // the fingerprint: alike on all
      me.write(payload(r, call), value_of(call, 0, r));
      me.store(line(r, call), call, how.post);
      for (int q = 0; q < how.ranks; ++q) {
        if (how.waits_for_all || q == (r + 1) % how.ranks) me.wait(line(q, call), call, how.look);
        me.read(line(q, call), 200);
      }
      for (int q = 0; q < how.ranks; ++q) me.read(payload(q, call), value_of(call, 0, q));
    }
    program.threads.push_back(me);
  }
  return program;
}

Program staged_calls(const Staged& how) {
  Program program;
  program.stores_commute = true;
  for (int r = 0; r < how.ranks; ++r) program.threads.push_back(StagedRank(how, r).program());
  return program;
}

Program channel_ring(const Ring& how) {
  const int taken = how.lines;  // sequences come first
  Thread sender, receiver;
  for (int n = 0; n < how.messages; ++n) {
    const int line = n % how.lines, slot = how.lines + line;
    if (n >= how.lines && how.waits_for_taken) sender.wait(taken, n + 1 - how.lines, how.look_taken);
    sender.write(line, value_of(0, n, 0));
    sender.write(slot, value_of(0, n, 1));
    sender.store(line, n + 1, how.sequence);
    receiver.wait(line, n + 1, how.look_sequence);
    receiver.read(line, value_of(0, n, 0));
    receiver.read(slot, value_of(0, n, 1));
    receiver.store(taken, n + 1, how.taken);
  }
  Program program;
  program.threads = {sender, receiver};
  program.stores_commute = true;
  return program;
}

Program offers_set_aside(const Offers& how) {
  enum { first_line, taken = 2, first_offer, routes = 0, buffers = 2 };
  Thread sender, receiver;
  for (int round = 0; round < how.rounds; ++round) {
    const int open = 2 * round + 1;
    for (int i = 0; i < 2; ++i) {
      const int n = 2 * round + i;
      if (round > 0) sender.wait(taken, n - 1, Order::acquire);
      if (round > 0 && how.waits_for_end) sender.wait(first_offer + i, open - 1, how.look_ended);
      sender.write(buffers + i, value_of(0, n, 0));
      sender.store(first_offer + i, open, Order::relaxed);
      sender.write(routes + i, value_of(0, n, 1));
      sender.store(first_line + i, n + 1, how.sequence);
      receiver.wait(first_line + i, n + 1, how.look_sequence);
      receiver.read(routes + i, value_of(0, n, 1));
      receiver.store(taken, n + 1, Order::release);
    }
    for (const int i : {1, 0}) {
      receiver.read(buffers + i, value_of(0, 2 * round + i, 0));
      receiver.store(first_offer + i, open + 1, how.ended);
    }
  }
  Program program;
  program.threads = {sender, receiver};
  return program;
}

Sleep symmetric_sleep() {
  Sleep how;
  how.asymmetric = how.barrier = false;
  how.post = how.look_sleepers = Order::seq_cst;
  return how;
}

Program sleep_and_wake(const Sleep& how) {
  enum { flag, sleepers, word };
  Program program;
  Thread poster;
  for (int n = 1; n <= how.posts; ++n) {
    poster.write(n, 100 + n);
    if (how.looks_behind_the_post) poster.store(flag, n, how.post);
    poster.load(sleepers, 0, how.look_sleepers);
    if (!how.looks_behind_the_post) poster.store(flag, n, how.post);
    const int nobody = poster.jump_if_below(0, 1);
    if (how.bumps_the_word) poster.add(word, 1);
    poster.futex_wake(word);
    poster.land(nobody);
  }
  program.threads.push_back(poster);
  for (int s = 0; s < how.sleepers; ++s) {
    Thread me;
    for (int n = 1; n <= how.posts; ++n) {
      const int again = me.here();
      me.load(flag, 0, Order::acquire);
      const int sleeps = me.jump_if_below(0, n);
      const int reached = me.jump();
      me.land(sleeps);
      me.add(sleepers, 1);
      if (how.word_before_the_flag) me.load(word, 1, Order::seq_cst);
      if (how.barrier) me.barrier_everywhere();
      int still_below = -1, skip = -1;
      if (how.looks_again) {
        me.load(flag, 0, Order::seq_cst);
        still_below = me.jump_if_below(0, n);
        skip = me.jump();
        me.land(still_below);
      }
      if (!how.word_before_the_flag) me.load(word, 1, Order::seq_cst);
      me.futex_wait(word, 1);
      if (skip >= 0) me.land(skip);
      me.add(sleepers, -1);
      me.jump(again);
      me.land(reached);
      me.read(n, 100 + n);
    }
    program.threads.push_back(me);
  }
  return program;
}

Program sleep_and_break(const Break& how) {
  enum { broken, sleepers, word };
  Program program;
  Thread breaker;
  breaker.write(0, 7);  // why
  breaker.store(broken, 1, Order::seq_cst);
  breaker.add(word, 1);
  breaker.futex_wake(word);
  program.threads.push_back(breaker);
  for (int s = 0; s < how.sleepers; ++s) {
    Thread me;
    const int again = me.here();
    me.load(broken, 0, Order::acquire);
    const int sleeps = me.jump_if_below(0, 1);
    const int seen = me.jump();
    me.land(sleeps);
    me.add(sleepers, 1);
    me.load(word, 1, Order::seq_cst);
    int skip = -1;
    if (how.looks_again) {
      me.load(broken, 0, Order::acquire);
      const int still_whole = me.jump_if_below(0, 1);
      skip = me.jump();
      me.land(still_whole);
    }
    me.futex_wait(word, 1);
    if (skip >= 0) me.land(skip);
    me.add(sleepers, -1);
    me.jump(again);
    me.land(seen);
    me.read(0, 7);
    program.threads.push_back(me);
  }
  return program;
}

Program read_and_taken_back(const TakenBack& how) {
  enum { broken, buffer };
  constexpr int kOld = 0, kNew = 1, kNever = 0;
  Thread breaker, owner, reader;
  breaker.store(broken, 1, Order::seq_cst);
  owner.wait(broken, 1, Order::acquire);
  owner.store(buffer, kNew, how.take_back);
  if (!how.looks_behind_the_read) reader.load(broken, 1, how.look);
  reader.load(buffer, 0, how.read);
  if (how.looks_behind_the_read) reader.load(broken, 1, how.look);
  const int whole = reader.jump_if_below(1, 1);
  const int gives_up = reader.jump();
  reader.land(whole);
  const int good = reader.jump_if_below(0, kOld + 1);
  reader.read(kNever, 1);  // nobody writes it
  reader.land(good);
  reader.land(gives_up);
  Program program;
  program.threads = {breaker, owner, reader};
  return program;
}

Program touched_and_taken_back(const Touch& how) {
  enum { broken, touching, posted };
  enum { buffer };
  Thread owner, other;
  owner.write(buffer, 5);
  owner.store(posted, 1, Order::release);
  owner.store(broken, 1, how.mark_broken);
  const int again = owner.here();
  owner.load(touching, 0, how.look_touching);
  const int nobody = owner.jump_if_below(0, 1);
  owner.jump(again);
  owner.land(nobody);
  owner.write(buffer, 6);

  other.wait(posted, 1, Order::acquire);
  if (!how.looks_behind_the_touch) other.load(broken, 0, how.look);
  other.store(touching, 1, how.touch);
  if (how.looks_behind_the_touch) other.load(broken, 0, how.look);
  const int whole = other.jump_if_below(0, 1);
  const int gives_up = other.jump();
  other.land(whole);
  other.read(buffer, 5);
  other.land(gives_up);
  other.store(touching, 0, how.stop);
  Program program;
  program.threads = {owner, other};
  return program;
}

}  // namespace model
