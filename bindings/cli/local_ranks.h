// local_ranks.h: ranks on this host, as processes. Each rank is a process group, so a signal to it also reaches the
// processes that it started. Does not know the ranks' environments, or when a job ends.
#pragma once

#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "descendants.h"
#include "endings.h"
#include "job.h"
#include "output.h"
#include "ranks.h"

namespace gsel::cli {

struct LocalJob {
  std::string job = {};                                     // GSEL_JOB of the ranks
  std::vector<std::string> program = {};                    // with its arguments
  std::vector<std::vector<std::string>> environments = {};  // one per rank, NAME=VALUE
  std::vector<Place> places = {};                           // one per rank; empty: anywhere
  int64_t first_rank = 0;                                   // of this host
  int64_t world_size = 0;                                   // of all hosts
  std::shared_ptr<const void> held = {};                    // kept until the ranks have ended: their devices
};

// The standard streams of the ranks.
struct Streams {
  int input = 0;                             // of rank 0; a terminal is not passed on
  RankPipes::Take take = {};                 // gets the ranks' output; empty: they write to our descriptors
  std::function<bool(int to)> is_full = {};  // its buffer is full: do not read from the ranks yet
};

class LocalRanks : public Ranks {
 public:
  LocalRanks(LocalJob job, Streams streams);

  std::vector<int32_t> numbers() const override;
  std::string place_of(int32_t) const override { return {}; }
  std::string host_of(int32_t) const override { return {}; }
  void start() override;
  void send(int signal) override;
  void add_to(std::vector<pollfd>& polls) override;
  void serve(const std::vector<pollfd>& polls) override;
  std::vector<RankEvent> take_events() override;
  bool is_finished() const override;
  // Stream `to` of the ranks has no reader any more.
  void close_output(int to) { pipes_.close_all(to); }

 private:
  struct Running {
    int32_t rank;
    pid_t pid;
  };
  int input_of(int32_t rank) const;
  bool start_one(size_t index);
  RankEvent not_started(int32_t rank, pid_t pid, int error) const;

  LocalJob job_;
  Streams streams_;
  Descendants descendants_;
  Endings endings_;
  RankPipes pipes_;
  sigset_t signals_{};  // the ranks' signal mask: ours when this object was made
  std::vector<Running> running_;
  std::vector<RankEvent> events_;  // not yet taken
  bool has_ended_ = false;         // all ranks have ended, and so have the processes they left
};

// Prints the ranks' output with the rank before each line if `tags` is set; else the ranks write to our descriptors.
class PrintedRanks : public LocalRanks {
 public:
  PrintedRanks(LocalJob job, bool tags);
  void add_to(std::vector<pollfd>& polls) override;
  void serve(const std::vector<pollfd>& polls) override;
  bool is_finished() const override { return LocalRanks::is_finished() && printer_->finished(); }

 private:
  PrintedRanks(LocalJob job, std::shared_ptr<Printer> printer, bool tags);
  std::shared_ptr<Printer> printer_;
};

}  // namespace gsel::cli
