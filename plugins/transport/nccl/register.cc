// plugins/transport/nccl/register.cc: registers memory with a link, so that NCCL reads and writes it in place. NCCL's
// kernels for symmetric memory compute the address in another rank's window from their own, so a window must lie alike
// on all ranks: in allocations of one size, at one offset, made and released in one order. Ranks exchange what each can
// do before they register, and what came of it afterwards: a registration may succeed and give no window.
#include <gsel/log.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "link.h"

namespace gsel_nccl {
namespace {

enum Way : uint32_t { kNone, kRegistration, kWindow };
// Why a rank has no window.
enum Why : uint32_t { kFine, kNoFunction, kOtherMemory, kSecondWindow, kUnaligned, kNoWindow, kPlainWindow };

// What a rank can do.
struct Offer {
  uint32_t way;  // the best
  uint32_t why;  // not a window
  uint64_t allocation, offset, released;
};

struct Agreed {
  Way way;
  std::string why;  // not a window
};

template <class T>
std::vector<T> exchange(const gsel_link& link, const T& own) {
  std::vector<T> all(static_cast<size_t>(link.world_size));
  must([&](gsel_error** err) { return link.control->exchange(link.control->ctx, &own, all.data(), sizeof own, err); });
  return all;
}

std::string text_of(uint32_t why, size_t rank) {
  const std::string of_rank = " of rank " + std::to_string(rank);
  switch (why) {
    case kNoFunction:
      return kUsesWindows ? "NCCL registers memory from 2.19 on, and in windows from 2.27 on"
                          : "gsel uses no windows of " GSEL_NCCL;
    case kOtherMemory:
      return "the memory" + of_rank + " is not from gsel_mem_alloc";
    case kSecondWindow:
      return "another window" + of_rank + " is in the same allocation";
    case kUnaligned:
      return "the memory" + of_rank + " does not begin at a multiple of 4096 bytes in its allocation";
    case kNoWindow:
      return GSEL_NCCL " registered the memory" + of_rank +
             " and gave no window, as with NCCL_WIN_ENABLE=0 or "
             "NCCL_CUMEM_ENABLE=0, or where GPUs do not reach each other's memory";
    default:
      return GSEL_NCCL " gave rank " + std::to_string(rank) +
             " a registration in place of a window, as where GPUs do not "
             "reach each other's memory";
  }
}

bool is_in(const Allocation& allocation, const void* memory) {
  return reinterpret_cast<uintptr_t>(memory) - allocation.begin < allocation.bytes;
}

Offer offer_of(gsel_link& link, const void* memory) {
  const Library& nccl = *link.nccl;
  const std::lock_guard inside(link.inside);
  const Allocation allocation = allocation_of(memory);
  Offer offer{nccl.ncclCommRegister && nccl.ncclCommDeregister ? kRegistration : kNone, kFine, allocation.bytes,
              allocation.bytes ? reinterpret_cast<uintptr_t>(memory) - allocation.begin : 0, link.released};
  if (!uses_windows(nccl))
    offer.why = kNoFunction;
  else if (allocation.bytes == 0)
    offer.why = kOtherMemory;
  else if (std::ranges::any_of(link.windows,
                               [&](const gsel_window& w) { return w.window && is_in(allocation, w.memory); }))
    offer.why = kSecondWindow;
  else if (offer.offset % kWindowAlignment != 0)
    offer.why = kUnaligned;
  else
    offer.way = kWindow;
  return offer;
}

Agreed agree(const gsel_link& link, const Offer& own) {
  const std::vector<Offer> all = exchange(link, own);
  const Offer& first = all[0];
  uint32_t way = kWindow;
  std::string why, differs;
  for (size_t q = 0; q < all.size(); ++q) {
    const Offer& one = all[q];
    if ((one.allocation == 0) != (first.allocation == 0))
      return {kNone, "the memory of some ranks is from gsel_mem_alloc, and that of others is not"};
    way = std::min(way, one.way);
    if (why.empty() && one.way != kWindow) why = text_of(one.why, q);
    if (one.allocation != first.allocation) differs = "allocations differ in size";
    if (one.offset != first.offset) differs = "the memory lies at another offset of its allocation";
    if (one.released != first.released) differs = "other windows have been released";
    if (why.empty() && !differs.empty()) why = differs + " on rank " + std::to_string(q) + " and on rank 0";
  }
  if (way == kWindow && !why.empty()) way = own.way == kWindow && link.nccl->ncclCommRegister ? kRegistration : kNone;
  return {static_cast<Way>(way), why};
}

// The locks of a call of NCCL with the link.
struct Entered {
  explicit Entered(gsel_link& link) : launching(*link.launching), inside(link.inside) {
    if (link.aborting) fail(GSEL_ERR_ABORTED, GSEL_NCCL_PLUGIN ": the communicator was ended");
  }
  std::lock_guard<std::mutex> launching, inside;
};

std::string text_of(uint64_t bytes) {
  return "registering " + std::to_string(bytes) + " bytes";
}

// Where it has no symmetric memory, NCCL 2.28 gives out its registration of the memory as a window.
bool is_registration(gsel_link& link, const gsel_window& made) {
  const Library& nccl = *link.nccl;
  void* same = nullptr;
  if (!nccl.ncclCommRegister || !nccl.ncclCommDeregister) return false;
  if (nccl.ncclCommRegister(link.comm, made.memory, made.bytes, &same) != kSuccess || !same) return false;
  nccl.ncclCommDeregister(link.comm, same);
  return same == made.window;
}

// Waits for the other ranks in NCCL. If it throws, they may still wait there, so the communicator must break.
void make_window(gsel_link& link, gsel_window& made) try {
  const Library& nccl = *link.nccl;
  const std::string what = text_of(made.bytes) + " in a window";
  {
    const Entered entered(link);
    check(nccl, nccl.ncclCommWindowRegister(link.comm, made.memory, made.bytes, &made.window, kSymmetric), what,
          link.comm);
  }
  gsel_link* const self = &link;
  settle({&self, 1}, what, link.timeout_s);
} catch (const Failure& failure) {
  fail(failure.status == GSEL_ERR_ARG ? GSEL_ERR_DEVICE : failure.status, failure.text);
}

// true: all ranks have a window.
bool makes_window(gsel_link& link, gsel_window& made, std::string& why) {
  make_window(link, made);
  uint32_t own = kFine;
  {
    const Entered entered(link);
    own = !made.window ? kNoWindow : is_registration(link, made) ? kPlainWindow : kFine;
  }
  const std::vector<uint32_t> all = exchange(link, own);
  const auto without = std::ranges::find_if(all, [](uint32_t one) { return one != kFine; });
  if (without == all.end()) return true;
  why = text_of(*without, static_cast<size_t>(without - all.begin()));
  const Entered entered(link);
  deregister(link, made);
  return false;
}

// Local in NCCL. An error of one rank is thrown on all. true: all have a registration.
bool makes_registration(gsel_link& link, gsel_window& made, std::string& why) {
  const Library& nccl = *link.nccl;
  struct Result {
    int result, has;
  } own{};
  {
    const Entered entered(link);
    own.result = nccl.ncclCommRegister(link.comm, made.memory, made.bytes, &made.registration);
    own.has = made.registration != nullptr;
  }
  const std::vector<Result> all = exchange(link, own);
  const auto has_failed = [](const Result& one) { return one.result != kSuccess && one.result != kInProgress; };
  const auto refused = std::ranges::find_if(all, has_failed);
  const auto without = std::ranges::find(all, 0, &Result::has);
  if (without == all.end()) return true;
  const Entered entered(link);
  deregister(link, made);
  if (refused != all.end())
    check(nccl, refused->result, text_of(made.bytes) + " on rank " + std::to_string(refused - all.begin()), link.comm);
  why = GSEL_NCCL " did not register that of rank " + std::to_string(without - all.begin()) +
        ", as with NCCL_LOCAL_REGISTER=0";
  return false;
}

void note(gsel_link& link, Way way, uint64_t bytes, const std::string& why) {
  const std::string text = way == kWindow ? std::string("registered memory is in symmetric windows")
                           : way == kRegistration
                               ? "registered memory is in no window, but registered by ncclCommRegister: " + why
                               : "memory is not registered with " GSEL_NCCL ": " + why;
  link.host->log(GSEL_LOG_INFO, GSEL_NCCL_PLUGIN, (text_of(bytes) + ": " + text).c_str());
  const std::string whole = link.transport->order.note + "; " + text;
  if (link.notes.back() != whole) link.notes.push_back(whole);
}

}  // namespace

// The list's element outlives a failure, since NCCL's own thread may write to it until the communicator has ended.
gsel_window* register_memory(gsel_link& link, void* memory, uint64_t bytes) {
  Agreed agreed = agree(link, offer_of(link, memory));
  gsel_window* made = nullptr;
  {
    const Entered entered(link);
    made = &link.windows.emplace_back(gsel_window{memory, bytes, ++link.registrations});
  }
  if (agreed.way == kWindow && !makes_window(link, *made, agreed.why)) agreed.way = kRegistration;
  if (agreed.way == kRegistration && !makes_registration(link, *made, agreed.why)) agreed.way = kNone;
  note(link, agreed.way, bytes, agreed.why);
  if (agreed.way != kNone) return made;
  const Entered entered(link);
  link.windows.pop_back();
  return nullptr;
}

void release_window(gsel_link& link, gsel_window* window) {
  constexpr uint64_t kSpread = 0x9e3779b97f4a7c15u;
  const uint64_t spread = window->number * kSpread;
  if (window->window) link.released += (spread ^ spread >> 32) * kSpread;
  deregister(link, *window);
  link.windows.remove_if([window](const gsel_window& own) { return &own == window; });
}

void deregister(gsel_link& link, gsel_window& window) {
  if (window.window) link.nccl->ncclCommWindowDeregister(link.comm, window.window);
  if (window.registration) link.nccl->ncclCommDeregister(link.comm, window.registration);
  window.window = window.registration = nullptr;
}

}  // namespace gsel_nccl
