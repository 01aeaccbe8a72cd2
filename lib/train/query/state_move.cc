// train/query/state_move.cc: see state_move.h. Each rank knows the regions that every rank offers, finds the runs that
// it needs, and asks for them; answers come in the order of the requests, in rounds of bounded size.
#include "train/query/state_move.h"

#include <algorithm>
#include <bit>

#include "base/text.h"
#include "train/ranks/agree.h"

namespace gsel {
namespace {

constexpr int64_t kRoundElems = int64_t{1} << 21;  // from one rank to another
constexpr size_t kNumbers = 9;

std::vector<int64_t> to_list(const TrainingNumbers& numbers) {
  const double rate = numbers.learning_rate.value_or(-1);
  return {numbers.step,         numbers.updates,        std::bit_cast<int64_t>(numbers.loss_scale),
          numbers.good_steps,   numbers.overflows_left, std::bit_cast<int64_t>(rate),
          numbers.first_sample, numbers.seed,           numbers.revision};
}

TrainingNumbers from_list(const int64_t*& list) {
  TrainingNumbers numbers;
  numbers.step = list[0];
  numbers.updates = list[1];
  numbers.loss_scale = std::bit_cast<double>(list[2]);
  numbers.good_steps = list[3];
  numbers.overflows_left = list[4];
  if (const auto rate = std::bit_cast<double>(list[5]); rate >= 0) numbers.learning_rate = rate;
  numbers.first_sample = list[6];
  numbers.seed = list[7];
  numbers.revision = list[8];
  list += kNumbers;
  return numbers;
}

// A piece that a rank offers.
struct Offer {
  int32_t rank;
  int64_t piece;  // index there
  HeldState::Piece is;
};

// Elements of a piece that a rank offers, and where they go.
struct Request {
  int64_t piece, first, count;
  size_t held;    // index in held() of the receiver
  int64_t local;  // element of that piece
};

// Runs of elements of a held piece that nobody has given yet: ascending.
using Missing = std::vector<gsel_range>;

// Takes what the offered piece has of the missing elements.
void take_from(const Offer& offer, const Region& held, size_t index, Missing& missing, std::vector<Request>& requests) {
  Missing rest;
  size_t m = 0;
  SharedRuns runs(offer.is.region, held);
  for (auto run = runs.next(); run; run = runs.next()) {
    const int64_t begin = run->second_local, end = begin + run->count;
    for (; m < missing.size() && missing[m].end <= begin; ++m) rest.push_back(missing[m]);
    while (m < missing.size() && missing[m].begin < end) {
      const gsel_range both{std::max(begin, missing[m].begin), std::min(end, missing[m].end)};
      requests.push_back(
          {offer.piece, run->first_local + both.begin - begin, both.end - both.begin, index, both.begin});
      if (missing[m].begin < both.begin) rest.push_back({missing[m].begin, both.begin});
      if (missing[m].end > both.end) {
        missing[m].begin = both.end;
        break;
      }
      ++m;
    }
  }
  for (; m < missing.size(); ++m) rest.push_back(missing[m]);
  missing = std::move(rest);
}

class Mover {
 public:
  Mover(Communicator& comm, StateOffers& offers, StateDict& into) : comm_(comm), offers_(offers), into_(into) {}

  std::optional<MovedState> run(int64_t first_step) {
    std::vector<int64_t> moments;
    for (const HeldState& held : offers_.mine)
      moments.insert(moments.end(), {held.numbers.step, held.numbers.revision});
    std::vector<Moment> all;
    for (const auto& of_rank : gather_lists(comm_, moments))
      for (size_t i = 0; i + 1 < of_rank.size(); i += 2) all.emplace_back(of_rank[i], of_rank[i + 1]);
    std::ranges::sort(all, std::greater<>());
    all.erase(std::ranges::unique(all).begin(), all.end());
    if (!all.empty()) offers_.newest = all.front().first;
    for (const Moment& moment : all) {
      if (moment.first < first_step) break;
      gather(moment);
      std::string missing;
      const bool mine = plan(missing);
      if (all_succeed(comm_, mine)) {
        move();
        return MovedState{numbers_, bytes_moved_};
      }
      if (moment == all.front()) offers_.missing = missing;
    }
    return {};
  }

 private:
  using Moment = std::pair<int64_t, int64_t>;  // step, revision

  // What each rank offers of the moment: numbers, then pieces.
  void gather(const Moment& moment) {
    std::vector<int64_t> mine;
    pieces_.clear();
    for (size_t h = 0; h < offers_.mine.size(); ++h) {
      const HeldState& held = offers_.mine[h];
      if (Moment(held.numbers.step, held.numbers.revision) != moment) continue;
      if (mine.empty()) mine = to_list(held.numbers);
      for (size_t p = 0; p < held.pieces.size(); ++p) {
        pieces_.push_back({h, p});
        mine.push_back(held.pieces[p].tensor);
        put_region(mine, held.pieces[p].region);
      }
    }
    by_tensor_.assign(into_.tensors().size(), {});
    const auto lists = gather_lists(comm_, mine);
    for (int32_t rank = 0; rank < comm_.world_size(); ++rank) {
      const std::vector<int64_t>& list = lists[static_cast<size_t>(rank)];
      if (list.empty()) continue;
      const int64_t* at = list.data();
      numbers_ = from_list(at);
      for (int64_t piece = 0; at < list.data() + list.size(); ++piece) {
        const auto tensor = static_cast<size_t>(*at++);
        by_tensor_[tensor].push_back({rank, piece, {static_cast<int32_t>(tensor), take_region(at)}});
      }
    }
    // Itself first, then the ranks behind it, so that not all ask the same one.
    const auto distance = [this](const Offer& offer) {
      return (offer.rank - comm_.rank() + comm_.world_size()) % comm_.world_size();
    };
    for (std::vector<Offer>& offers : by_tensor_) std::ranges::stable_sort(offers, {}, distance);
  }

  // Whether the offers have all that this rank needs.
  bool plan(std::string& missing_text) {
    requests_.assign(static_cast<size_t>(comm_.world_size()), {});
    for (size_t p = 0; p < into_.held().size(); ++p) {
      const StatePiece& piece = into_.held()[p];
      Missing missing{{0, piece.region.count()}};
      if (piece.region.count() == 0) continue;
      for (const Offer& offer : by_tensor_[static_cast<size_t>(piece.tensor)]) {
        take_from(offer, piece.region, p, missing, requests_[static_cast<size_t>(offer.rank)]);
        if (missing.empty()) break;
      }
      if (missing.empty()) continue;
      missing_text = into_.tensors()[static_cast<size_t>(piece.tensor)].name;
      return false;
    }
    return true;
  }

  // Tells each rank what is asked of it, and moves it.
  void move() {
    const auto asked = exchange_requests();
    const size_t n = requests_.size();
    std::vector<Stream> give(n), get(n);
    int64_t longest = 0;
    for (size_t r = 0; r < n; ++r) {
      for (const Request& request : asked[r]) give[r].left += request.count;
      for (const Request& request : requests_[r]) get[r].left += request.count;
      longest = std::max(longest, give[r].left);
      if (r != static_cast<size_t>(comm_.rank())) bytes_moved_ += sizeof(float) * static_cast<uint64_t>(get[r].left);
    }
    std::vector<uint64_t> longest_of;
    for (const uint64_t of_rank : gather_numbers(comm_, {static_cast<uint64_t>(longest)}))
      longest_of.push_back(of_rank);
    const auto most = static_cast<int64_t>(*std::ranges::max_element(longest_of));
    into_.begin_writing();
    for (int64_t done = 0; done < most; done += kRoundElems) round(asked, give, get);
    into_.end_writing();
  }

  struct Stream {
    int64_t left = 0;
    size_t request = 0;
    int64_t inside = 0;  // elements of the request that are done
  };

  // Calls with pieces of requests, `count` elements in all.
  template <class Use>
  static void advance(const std::vector<Request>& requests, Stream& stream, int64_t count, Use&& use) {
    stream.left -= count;
    while (count > 0) {
      const Request& request = requests[stream.request];
      const int64_t some = std::min(count, request.count - stream.inside);
      use(request, stream.inside, some);
      count -= some;
      stream.inside += some;
      if (stream.inside < request.count) continue;
      ++stream.request;
      stream.inside = 0;
    }
  }

  void round(const std::vector<std::vector<Request>>& asked, std::vector<Stream>& give, std::vector<Stream>& get) {
    const size_t n = give.size();
    std::vector<uint64_t> send_counts(n), recv_counts(n);
    std::vector<float> send, recv;
    for (size_t r = 0; r < n; ++r) {
      send_counts[r] = static_cast<uint64_t>(std::min(give[r].left, kRoundElems));
      recv_counts[r] = static_cast<uint64_t>(std::min(get[r].left, kRoundElems));
      const size_t at = send.size();
      send.resize(at + send_counts[r]);
      float* to = send.data() + at;
      advance(asked[r], give[r], static_cast<int64_t>(send_counts[r]),
              [&](const Request& of, int64_t from, int64_t some) {
                const auto [held, piece] = pieces_[static_cast<size_t>(of.piece)];
                offers_.mine[held].read(piece, of.first + from, some, to);
                to += some;
              });
    }
    uint64_t total = 0;
    for (const uint64_t count : recv_counts) total += count;
    recv.resize(total);
    gsel_collective call = make_collective(GSEL_COLLECTIVE_ALLTOALLV, send.data(), recv.data(), 0, GSEL_F32, 0, 0);
    call.send_counts = send_counts.data();
    call.recv_counts = recv_counts.data();
    comm_.collective_on_host(call);
    const float* from_rank = recv.data();
    for (size_t r = 0; r < n; ++r)
      advance(requests_[r], get[r], static_cast<int64_t>(recv_counts[r]),
              [&](const Request& of, int64_t from, int64_t some) {
                into_.write(into_.held()[of.held].some(of.local + from, some), from_rank);
                from_rank += some;
              });
  }

  // By rank: what it asks of this one.
  std::vector<std::vector<Request>> exchange_requests() {
    const size_t n = requests_.size();
    std::vector<uint64_t> send_counts(n), recv_counts(n);
    std::vector<int64_t> send;
    for (size_t r = 0; r < n; ++r) {
      for (const Request& request : requests_[r])
        send.insert(send.end(), {request.piece, request.first, request.count});
      send_counts[r] = 3 * requests_[r].size();
    }
    comm_.collective_on_host(
        make_collective(GSEL_COLLECTIVE_ALLTOALL, send_counts.data(), recv_counts.data(), 1, GSEL_U64, 0, 0));
    uint64_t total = 0;
    for (const uint64_t count : recv_counts) total += count;
    std::vector<int64_t> recv(total);
    gsel_collective call = make_collective(GSEL_COLLECTIVE_ALLTOALLV, send.data(), recv.data(), 0, GSEL_I64, 0, 0);
    call.send_counts = send_counts.data();
    call.recv_counts = recv_counts.data();
    comm_.collective_on_host(call);
    std::vector<std::vector<Request>> asked(n);
    const int64_t* at = recv.data();
    for (size_t r = 0; r < n; ++r)
      for (uint64_t i = 0; i < recv_counts[r]; i += 3, at += 3) asked[r].push_back({at[0], at[1], at[2], 0, 0});
    return asked;
  }

  Communicator& comm_;
  StateOffers& offers_;
  StateDict& into_;
  TrainingNumbers numbers_;
  std::vector<std::pair<size_t, size_t>> pieces_;  // of this rank's offers: which state, which of its pieces
  std::vector<std::vector<Offer>> by_tensor_;
  std::vector<std::vector<Request>> requests_;  // by rank
  uint64_t bytes_moved_ = 0;
};

}  // namespace

void put_region(std::vector<int64_t>& numbers, const Region& region) {
  numbers.push_back(static_cast<int64_t>(region.shape().size()));
  for (size_t d = 0; d < region.shape().size(); ++d) {
    numbers.push_back(region.shape()[d]);
    numbers.push_back(static_cast<int64_t>(region.intervals(d).size()));
    for (const gsel_range& interval : region.intervals(d))
      numbers.insert(numbers.end(), {interval.begin, interval.end});
  }
  numbers.insert(numbers.end(), {region.range().begin, region.range().end});
}

Region take_region(const int64_t*& numbers) {
  const auto n_dims = static_cast<size_t>(*numbers++);
  std::vector<int64_t> shape;
  std::vector<Region::Intervals> intervals;
  for (size_t d = 0; d < n_dims; ++d) {
    shape.push_back(*numbers++);
    Region::Intervals& of_dim = intervals.emplace_back();
    for (int64_t n = *numbers++; n > 0; --n, numbers += 2) of_dim.push_back({numbers[0], numbers[1]});
  }
  const gsel_range range{numbers[0], numbers[1]};
  numbers += 2;
  return {std::move(shape), std::move(intervals), range};
}

std::vector<std::vector<int64_t>> gather_lists(Communicator& comm, const std::vector<int64_t>& mine) {
  const std::vector<uint64_t> counts = gather_numbers(comm, {mine.size()});
  uint64_t total = 0;
  for (const uint64_t count : counts) total += count;
  std::vector<int64_t> all(total);
  gsel_collective call = make_collective(GSEL_COLLECTIVE_ALLGATHERV, mine.data(), all.data(), 0, GSEL_I64, 0, 0);
  call.recv_counts = counts.data();
  comm.collective_on_host(call);
  std::vector<std::vector<int64_t>> lists;
  auto at = all.begin();
  for (const uint64_t count : counts) {
    lists.emplace_back(at, at + static_cast<int64_t>(count));
    at += static_cast<int64_t>(count);
  }
  return lists;
}

HeldState held_state(StateDict& dict, const TrainingNumbers& numbers) {
  HeldState held{numbers, {}, {}};
  std::vector<size_t> indices;
  for (size_t p = 0; p < dict.held().size(); ++p) {
    const StatePiece& piece = dict.held()[p];
    if (piece.is_rounded || piece.region.count() == 0) continue;
    held.pieces.push_back({piece.tensor, piece.region});
    indices.push_back(p);
  }
  held.read = [&dict, indices](size_t piece, int64_t first, int64_t count, float* dst) {
    dict.read(dict.held()[indices[piece]].some(first, count), dst);
  };
  return held;
}

std::optional<MovedState> move_state(Communicator& comm, StateOffers& offers, StateDict& into, int64_t first_step) {
  return Mover(comm, offers, into).run(first_step);
}

}  // namespace gsel
