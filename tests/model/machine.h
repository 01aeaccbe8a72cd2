// model/machine.h: a small operational model of C++ atomics and the exhaustive search over it. Does not know the
// protocols; those are programs of protocols.h.
//
// Each atomic place keeps its messages in modification order. A thread has a view: the oldest message it may still read
// of each place, and a vector clock. A message carries a view too: the writer's when it was released, next to nothing
// when it was relaxed. An acquiring read takes that view over, a relaxed one keeps it for a later fence. A read takes
// any message that the view allows, so an old value stays readable until something says otherwise. seq_cst accesses
// share one view per place, seq_cst fences share one for all. Plain data has the vector clocks of its last write and
// reads; an access that these do not order is a data race, found in whichever order the two are explored.
//
// What it leaves out: a load passing a later store of its thread (load buffering), as RC11 does, and plain stores
// to one place by two threads, which no protocol here has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace model {

enum class Order : uint8_t { relaxed, acquire, release, seq_cst };
enum class Op : uint8_t { write, read, store, wait, load, add, barrier, futex_wait, futex_wake, jump, jump_below };

constexpr int kThreads = 3, kAtomics = 16, kData = 40, kMessages = 20, kRegisters = 2;

struct Instruction {
  Op op;
  Order order = Order::relaxed;
  uint8_t place = 0;
  uint8_t reg = 0;
  int value = 0;
  int target = 0;
};

// One thread's instructions.
class Thread {
 public:
  // Plain data: written; read, with the value it must have.
  void write(int data, int value) { put({Op::write, Order::relaxed, byte(data), 0, value}); }
  void read(int data, int expected) { put({Op::read, Order::relaxed, byte(data), 0, expected}); }
  void store(int place, int value, Order order) { put({Op::store, order, byte(place), 0, value}); }
  // Goes on once it reads at least `value`. Reads of less change nothing and are left out.
  void wait(int place, int value, Order order) { put({Op::wait, order, byte(place), 0, value}); }
  void load(int place, int reg, Order order) { put({Op::load, order, byte(place), byte(reg)}); }
  void add(int place, int value) { put({Op::add, Order::seq_cst, byte(place), 0, value}); }
  // Lets every other thread pass a seq_cst fence, each when it likes but before this ends; and passes two itself.
  void barrier_everywhere() { put({Op::barrier}); }
  // Sleeps if the place still has the value of the register, as the kernel sees it under its lock.
  void futex_wait(int place, int reg) { put({Op::futex_wait, Order::relaxed, byte(place), byte(reg)}); }
  void futex_wake(int place) { put({Op::futex_wake, Order::relaxed, byte(place)}); }
  int here() const { return static_cast<int>(code.size()); }
  int jump(int target = 0) { return put({Op::jump, Order::relaxed, 0, 0, 0, target}); }
  int jump_if_below(int reg, int value) { return put({Op::jump_below, Order::relaxed, 0, byte(reg), value}); }
  void land(int jump) { code[static_cast<size_t>(jump)].target = here(); }

  std::vector<Instruction> code;

 private:
  static uint8_t byte(int value) { return static_cast<uint8_t>(value); }
  int put(const Instruction& instruction) {
    code.push_back(instruction);
    return here() - 1;
  }
};

struct Program {
  std::vector<Thread> threads;
  // Every atomic place has one writer, no seq_cst access and no barrier: then a store commutes with all that other
  // threads can do, and one order of stores is enough.
  bool stores_commute = false;
  // Waits read the oldest message that will do, and no newer one. Enough where flags only grow and nothing branches on
  // what is read: a newer message of the same writer carries a larger view, and with a larger view a thread can do
  // nothing that it cannot do with a smaller one, races included.
  bool oldest_is_enough = false;
};

struct Verdict {
  std::string failure;             // empty: none in any execution
  std::vector<std::string> trace;  // of the first failure
  uint64_t states = 0;
};

Verdict explore(const Program& program);

}  // namespace model
