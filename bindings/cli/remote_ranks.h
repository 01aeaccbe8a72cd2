// remote_ranks.h: ranks on several hosts, through an agent on each host: all hosts are connected and ready before a
// rank starts. Does not know when the job ends.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "descendants.h"
#include "host_job.h"
#include "host_list.h"
#include "output.h"
#include "ranks.h"
#include "recordings.h"
#include "remote_host.h"

namespace gsel::cli {

struct RemoteJob {
  HostList hosts = {};
  RemoteShell shell = {};
  HostJob job = {};               // of each host, except its ranks
  std::string rendezvous = {};    // empty: chosen here
  std::string trace_folder = {};  // for recordings that ranks leave on their hosts
  bool tag_output = false;
};

class RemoteRanks : public Ranks {
 public:
  explicit RemoteRanks(RemoteJob job);
  ~RemoteRanks() override;

  // Connects to all hosts and prepares them; refuses with the first one that fails.
  void connect();

  std::vector<int32_t> numbers() const override;
  std::string place_of(int32_t rank) const override { return " on " + host_of(rank); }
  std::string host_of(int32_t rank) const override { return job_.hosts.name_of(rank); }
  void start() override;
  void send(int signal) override;
  void add_to(std::vector<pollfd>& polls) override;
  void serve(const std::vector<pollfd>& polls) override;
  std::vector<RankEvent> take_events() override;
  bool is_finished() const override;
  int patience_ms() const override;

 private:
  using Clock = std::chrono::steady_clock;
  using State = RemoteHost::State;

  void await(State state, const std::function<void(RemoteHost&, const Frame&)>& on_frame);
  void reap();
  void on_frame(RemoteHost& host, const Frame& frame);
  void lose(RemoteHost& host);
  void keep(const RemoteHost& host, const std::string& name, const std::string& content);
  void end_recording(RemoteHost& host);
  void forward_stderr(RemoteHost& host);
  bool reads() const;
  bool wants_input() const;
  void read_input();

  RemoteJob job_;
  Descendants descendants_;
  Printer printer_;
  std::vector<std::unique_ptr<RemoteHost>> hosts_;
  std::vector<RankEvent> events_;
  Recordings recordings_;
  bool keeps_recordings_ = true;  // until writing one fails
  bool is_closed_[3] = {};        // the agents know that the stream has no reader
  bool has_input_;
  size_t input_sent_ = 0, input_taken_ = 0;
  std::optional<Clock::time_point> killed_, failed_;
};

}  // namespace gsel::cli
