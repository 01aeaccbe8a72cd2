// fake/cuda/shim.h: what nvcc gives kernels.cu, for a host compiler. The threads of a block are contexts of one thread
// of the host, which changes between them at barriers and nowhere else: at each barrier the last thread comes first,
// and at the first one in every other block, so that whoever reads what another thread has not written yet, for want of
// a barrier, gets something else in one block or the next.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif

struct FakeIndex {
  unsigned x = 0, y = 0, z = 0;
};
inline thread_local FakeIndex blockIdx, threadIdx, gridDim, blockDim;

namespace fake_cuda {

// A stack that begins in a function without arguments, which never returns.
#if defined(__x86_64__)
// What swapcontext does, less its two calls of the system: a block has many barriers. Weak, since several files have
// it.
asm(R"(
  .text
  .weak fake_cuda_switch
  .hidden fake_cuda_switch
  .type fake_cuda_switch, @function
fake_cuda_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
  .size fake_cuda_switch, .-fake_cuda_switch
)");
extern "C" void fake_cuda_switch(void** from, void* to);

class Place {
 public:
  Place() = default;
  Place(char* stack, size_t bytes, void (*begin)()) {
    auto** top = reinterpret_cast<void**>((reinterpret_cast<uintptr_t>(stack) + bytes) & ~uintptr_t{15});
    memset(top - 8, 0, 8 * sizeof(void*));  // six registers, where to begin, and nowhere to return to
    top[-2] = reinterpret_cast<void*>(begin);
    at_ = top - 8;
  }
  void go_to(Place& other) { fake_cuda_switch(&at_, other.at_); }

 private:
  void* at_ = nullptr;
};
#else
class Place {
 public:
  Place() = default;
  Place(char* stack, size_t bytes, void (*begin)()) {
    getcontext(&at_);
    at_.uc_stack.ss_sp = stack;
    at_.uc_stack.ss_size = bytes;
    at_.uc_link = nullptr;
    makecontext(&at_, begin, 0);
  }
  void go_to(Place& other) { swapcontext(&at_, &other.at_); }

 private:
  ucontext_t at_{};
};
#endif

class Block {
 public:
  // body() in each of so many threads, all of which meet at the same barriers.
  static void run(unsigned threads, const std::function<void()>& body) {
    static thread_local std::unique_ptr<char[]> stacks;
    static thread_local unsigned n_stacks;
    static thread_local bool begins_forward = false;
    if (n_stacks < threads) stacks.reset(new char[threads * kStack]), n_stacks = threads;
    Block block(threads, body, stacks.get());
    the_block_ = &block;
    begins_forward = !begins_forward;
    for (bool is_forward = begins_forward; block.left_ > 0; is_forward = !is_forward)
      for (unsigned i = 0; i < threads; ++i) block.go_on(is_forward ? i : threads - 1 - i);
    the_block_ = nullptr;
  }
  static void wait_for_all() { the_block_->threads_[threadIdx.x].place.go_to(the_block_->outside_); }

 private:
  static constexpr size_t kStack = 16 * 1024;
  struct Thread {
    Place place;
    bool is_done = false;
  };

  Block(unsigned threads, const std::function<void()>& body, char* stacks) : body_(body), left_(threads) {
    for (unsigned i = 0; i < threads; ++i) threads_.push_back({Place(stacks + i * kStack, kStack, begin)});
  }
  static void begin() {
    the_block_->body_();
    the_block_->threads_[threadIdx.x].is_done = true;
    --the_block_->left_;
    wait_for_all();
  }
  void go_on(unsigned i) {
    if (threads_[i].is_done) return;
    threadIdx.x = i;
    outside_.go_to(threads_[i].place);
  }

  static inline thread_local Block* the_block_ = nullptr;
  std::vector<Thread> threads_;
  const std::function<void()>& body_;
  unsigned left_;
  Place outside_;
};

}  // namespace fake_cuda

#define __global__
#define __device__
#define __shared__ static thread_local
#define __constant__ static
#define __launch_bounds__(threads)
inline void __syncthreads() {
  fake_cuda::Block::wait_for_all();
}
