// output.h: what the ranks write, passed on line by line with the rank before it. Reads and writes only what does not
// block, and stops reading when the reader of ours is slow. Does not know: processes.
#pragma once

#include <poll.h>

#include <string>
#include <vector>

namespace gsel::cli {

class TaggedOutput {
 public:
  TaggedOutput() = default;
  ~TaggedOutput();
  TaggedOutput(const TaggedOutput&) = delete;
  TaggedOutput& operator=(const TaggedOutput&) = delete;

  // A new pipe whose lines go to descriptor `to` (1 or 2) as "[rank] line". Returns the end to write to, which the
  // caller closes; -1 with errno on failure.
  int open(int rank, int to);

  // What to wait for, added to a poll; then what to do with its results.
  void add_to(std::vector<pollfd>& polls) const;
  void serve(const std::vector<pollfd>& polls);

  // Nothing more to read or write.
  bool finished() const;

 private:
  struct Source {
    int fd;
    int rank;
    int to;
    std::string partial;
  };
  void read_from(Source& source);
  void write_to(int to);
  void pass_on(Source& source, bool all);
  void close_sources(int to);

  std::vector<Source> sources_;
  std::string pending_[3];  // by descriptor
};

}  // namespace gsel::cli
