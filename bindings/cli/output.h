// output.h: the output of ranks, line by line: read from their pipes, and written to our own descriptors with the rank
// before each line. Never blocks, and stops reading when its own reader is slow. Does not know processes.
#pragma once

#include <poll.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace gsel::cli {

// Pipes for the output of ranks.
class RankPipes {
 public:
  // Gets whole lines of a rank; at the end of the output, or if a line is too long, also text without a newline. `to`:
  // 1 or 2.
  using Take = std::function<void(int rank, int to, std::string_view lines)>;
  explicit RankPipes(Take take) : take_(std::move(take)) {}
  ~RankPipes();
  RankPipes(const RankPipes&) = delete;
  RankPipes& operator=(const RankPipes&) = delete;

  // Opens a pipe. Returns the write end, which the caller closes; -1 with errno on failure.
  int open(int rank, int to);

  // Adds descriptors to a poll, except pipes for which `is_full`; then handles the results.
  void add_to(std::vector<pollfd>& polls, const std::function<bool(int to)>& is_full) const;
  void serve(const std::vector<pollfd>& polls);

  // Stream `to` has no reader any more: closes the pipes, so that the ranks get a broken pipe as they would without us.
  void close_all(int to);
  bool finished() const { return sources_.empty(); }

 private:
  struct Source {
    int fd;
    int rank;
    int to;
    std::string partial;
  };
  void read_from(Source& source);
  void pass_on(Source& source, bool all);

  Take take_;
  std::vector<Source> sources_;
};

// Our own descriptors 1 and 2.
class Printer {
 public:
  explicit Printer(bool tags) : tags_(tags) {}

  // Prints each line, as "[rank] line" with tags; adds a newline at the end if missing.
  void add(int rank, int to, std::string_view lines);
  bool is_full(int to) const;
  bool is_broken(int to) const { return broken_[to]; }  // has no reader

  void add_to(std::vector<pollfd>& polls) const;
  void serve(const std::vector<pollfd>& polls);
  bool finished() const { return pending_[1].empty() && pending_[2].empty(); }

 private:
  void write_to(int to);

  bool tags_;
  bool broken_[3] = {};
  std::string pending_[3];  // by descriptor
};

}  // namespace gsel::cli
