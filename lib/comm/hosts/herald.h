// comm/hosts/herald.h: tells what breaks a communicator from host to host, and notices when a host is gone. Runs in the
// first rank of each host, on two threads: one waits until the ranks of this host are broken and tells those with which
// it has lines, the other hears what they tell and breaks the ranks of this host, which is told on. A host that is
// silent is lost once another one finds the same (inquiry.h). Does not know the calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/os.h"
#include "comm/hosts/inquiry.h"
#include "comm/hosts/lines.h"
#include "comm/hosts/roster.h"
#include "comm/interface/control.h"

namespace gsel::hosts {

class Herald {
 public:
  // local: the control of the ranks of this host. silence_ns: after so long without a word a host is taken for lost.
  // wake: an eventfd that can be read once the communicator is broken.
  Herald(const Roster& roster, Control& local, std::vector<std::optional<Line>>& lines, int64_t silence_ns,
         const os::Fd& wake);
  ~Herald();  // says that this rank leaves
  Herald(const Herald&) = delete;
  Herald& operator=(const Herald&) = delete;
  // The doors of all ranks are known. Once.
  void begin_inquiries(const Heritage& heritage, const Secret& secret);

 private:
  enum class Say : uint32_t { beat = 1, broken, leaves };
  struct Notice {
    Say say;
    gsel_status code;
    int32_t about;
    uint32_t bytes;  // of text, which follows
  };
  void tell();
  void tell_all(const Notice& notice, const std::string& text) noexcept;
  void tell_what_broke() noexcept;
  void hear();
  void hear(size_t host);
  void suspect(size_t host);
  void judge(const Inquiries::Found& found);
  void lose(size_t host, const std::string& how) noexcept;

  const Roster& roster_;
  Control& local_;
  std::vector<std::optional<Line>>& lines_;
  const int64_t silence_ns_;
  const os::Fd& wake_;
  os::Fd stop_;
  std::atomic<bool> stopping_{false};
  bool told_ = false;  // what broke; the telling thread's
  struct Heard {
    int64_t last_ns;
    bool has_left;
    bool is_suspected = false;
  };
  std::vector<Heard> heard_;  // by host; the hearing thread's
  std::atomic<bool> inquires_{false};
  std::optional<Inquiries> inquiries_;  // the hearing thread's, once the word above is set
  std::thread telling_, hearing_;
};

constexpr double kDefaultSilence = 5;  // in seconds,
constexpr int64_t kBeats = 5;          // and in that time, over each line both ways
// After so long without a word a host is taken for lost: GSEL_HOST_TIMEOUT, which is in seconds. That of
// rank 0 counts for all.
int64_t host_timeout_ns();

}  // namespace gsel::hosts
