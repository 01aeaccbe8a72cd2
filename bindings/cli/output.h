// output.h: what ranks write, line by line: read from their pipes, and written to our own descriptors with the rank
// before each line. Reads and writes only what does not block, and stops reading where the reader is slow. Does not
// know: processes.
#pragma once

#include <poll.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace gsel::cli {

// Pipes that ranks write to.
class RankPipes {
 public:
  // Gets whole lines of a rank, at the end and where a line is too long also what has no newline. `to`: 1 or 2.
  using Take = std::function<void(int rank, int to, std::string_view lines)>;
  explicit RankPipes(Take take) : take_(std::move(take)) {}
  ~RankPipes();
  RankPipes(const RankPipes&) = delete;
  RankPipes& operator=(const RankPipes&) = delete;

  // A new pipe. Returns the end to write to, which the caller closes; -1 with errno on failure.
  int open(int rank, int to);

  // What to wait for, added to a poll, without the pipes of `is_full` descriptors; then what to do with its results.
  void add_to(std::vector<pollfd>& polls, const std::function<bool(int to)>& is_full) const;
  void serve(const std::vector<pollfd>& polls);

  // Nobody reads them any more: the ranks get the broken pipe that they would have had without us.
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

  // Each line as "[rank] line" with tags; what has no newline at its end gets one.
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
