// model/protocols.h: the flags of lib/comm/shm as programs of the machine, each with the ways to break it. A field says
// which order the code uses, and where; a mutant changes one field. Does not know how programs are searched.
#pragma once

#include "machine.h"

namespace model {

// link.cc, exchange_headers: fingerprint and payload are plain, then the line's sequence is posted; who has waited for
// all of a call's lines reads them.
struct Header {
  int ranks = 3, calls = 3;
  int parities = 2;             // arena.h: RankBlock::line[2]
  Order post = Order::release;  // signals.h: Signals::post, asymmetric
  Order look = Order::acquire;  // signals.h: Signals::wait
  bool waits_for_all = true;
};
Program header_lines(const Header& how);

// staged.cc: large calls one after the other, of a letter each. reduce_staged, a block of staging memory per slice: a
// is an allreduce, r a reduce to rank 0, s a reduce_scatter. copy_staged, one block for all: g is an allgather, b a
// broadcast of rank 0.
struct Staged {
  int ranks = 3, chunks = 3;
  std::string calls = "aa";
  int buffers = 2;
  Order header = Order::release;
  Order staged = Order::release, reduced = Order::release, copied = Order::release;
  Order look_staged = Order::acquire, look_reduced = Order::acquire, look_copied = Order::acquire;
  bool waits_for_copied = true;
  bool waits_for_reduced = true;
  bool copied_comes_last = true;
  bool begins_with_headers = true;
};
Program staged_calls(const Staged& how);

// channel.cc: a ring of lines from one rank to another, each reused once the receiver has taken it.
struct Ring {
  int messages = 6, lines = 2;
  Order sequence = Order::release, taken = Order::release;
  Order look_sequence = Order::acquire, look_taken = Order::acquire;
  bool waits_for_taken = true;
};
Program channel_ring(const Ring& how);

// sending.cc and receiving.cc: what is offered stays with its sender, of whose lines the receiver takes two before it
// reads the data of the second, then of the first, and tells the end of each; a place is offered again behind its end.
struct Offers {
  int rounds = 3;
  Order sequence = Order::release, ended = Order::release;
  Order look_sequence = Order::acquire, look_ended = Order::acquire;
  bool waits_for_end = true;
};
Program offers_set_aside(const Offers& how);

// signals.h: Signals::post, and signals.cc: sleep_until_woken. One rank posts twice, the others sleep for it. The sleep is not
// bounded here as it is there: a lost wake-up leaves the program stuck.
struct Sleep {
  int sleepers = 1, posts = 2;
  bool asymmetric = true;       // arena.h: ArenaHeader::asymmetric
  Order post = Order::release;  // asymmetric; else seq_cst
  Order look_sleepers = Order::relaxed;
  bool barrier = true;  // os::pass_barriers_everywhere
  bool looks_behind_the_post = true;
  bool bumps_the_word = true;
  bool word_before_the_flag = true;
  bool looks_again = true;  // at the flag, once counted as a sleeper
};
Sleep symmetric_sleep();
Program sleep_and_wake(const Sleep& how);

// breaking.cc: Breaking::mark, and whoever leaves: the word is bumped whether anybody sleeps or not.
struct Break {
  int sleepers = 2;
  bool looks_again = true;  // at the state of the communicator, once the word is read
};
Program sleep_and_break(const Break& how);

// direct.cc, single_copy.cc: a rank reads a peer's buffer in place while the communicator breaks; the peer hears of
// that and takes its buffer back. Its writes and the other's reads race, and what was read then must not count: buffers
// are atomic here, and the reader gives up or has the old value.
struct TakenBack {
  Order take_back = Order::release;  // take_back_buffers: the fence before the caller has its buffer again
  Order read = Order::acquire;       // throw_if_taken_back: the fence behind the reads
  Order look = Order::acquire;       // and its look
  bool looks_behind_the_read = true;
};
Program read_and_taken_back(const TakenBack& how);

// direct.cc: Collectives::Touching and take_back_buffers: who works in a peer's buffer says so and then looks whether the
// communicator is broken; who takes it back breaks it and then waits until nobody works in it.
struct Touch {
  Order touch = Order::seq_cst, look = Order::seq_cst;
  Order stop = Order::release;
  Order mark_broken = Order::seq_cst, look_touching = Order::seq_cst;
  bool looks_behind_the_touch = true;
};
Program touched_and_taken_back(const Touch& how);

}  // namespace model
