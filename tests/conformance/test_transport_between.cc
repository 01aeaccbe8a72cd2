// conformance/test_transport_between.cc: what any transport between hosts must do with bytes, asked through its table
// alone: order, sizes, tags, threads, late receivers, ends. Without an argument gloo with forked ranks; with the name
// of a transport the ranks that a launcher of MPI has started.
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "base/foreign.h"
#include "support/between.h"

namespace {

using between::Bytes;
using between::pattern;

const gsel_transport_v2* table;
gsel_comm* started_comm;  // of a rank that a launcher started
void* started_ctx;
rank_run started;

void as_ranks(int32_t n, rank_body body) {
  if (!started_comm) return as_processes(n, body, nullptr);
  body(&started);
  if (started.failure[0]) fail_msg("%s", started.failure);
}

// Every size to every rank and from every rank at once.
void exchanges_sizes(rank_run* run) {
  between::linked(run, *table, started_comm, started_ctx, [&](between::Rank& rank) {
    for (const size_t n : {0, 1, 7, 8, 4096, 65537, 1 << 20, 9000001}) {
      std::vector<Bytes> got;
      std::vector<gsel_posted*> posted;
      const Bytes mine = pattern(n, static_cast<unsigned>(run->rank));
      for (int32_t q = 0; q < run->world_size; ++q) {
        got.emplace_back(n + 1, 0xEE);
        if (q == run->rank) continue;
        posted.push_back(rank.recv(q, 3, got.back().data(), n));
        posted.push_back(rank.send(q, 3, mine.data(), n));
      }
      for (gsel_posted* one : posted) rank_check(run, rank.finish(one));
      for (int32_t q = 0; q < run->world_size; ++q) {
        const auto at = static_cast<size_t>(q);
        if (q == run->rank) continue;
        rank_check(run, got[at][n] == 0xEE);
        got[at].resize(n);
        rank_check(run, got[at] == pattern(n, static_cast<unsigned>(q)));
      }
    }
  });
}
void test_every_size_arrives_whole(void**) {
  as_ranks(3, exchanges_sizes);
}

// Under one tag in the order posted; tags in any order; receives posted before and after.
void keeps_order(rank_run* run) {
  between::linked(run, *table, started_comm, started_ctx, [&](between::Rank& rank) {
    constexpr uint32_t kTags = 5, kEach = 40;
    const int32_t peer = (run->rank + 1) % run->world_size,
                  source = (run->rank + run->world_size - 1) % run->world_size;
    std::vector<uint32_t> out(kTags * kEach), in(kTags * kEach, ~0u);
    std::vector<gsel_posted*> sends, recvs;
    for (uint32_t i = 0; i < out.size(); ++i) out[i] = 1000 + i;
    const auto receive = [&](uint32_t tag) {
      for (uint32_t i = 0; i < kEach; ++i)
        recvs.push_back(rank.recv(source, tag == 4 ? (1 << 24) - 1 : tag, &in[tag * kEach + i], 4));
    };
    receive(4), receive(2);
    for (uint32_t i = 0; i < kEach; ++i)
      for (uint32_t tag = 0; tag < kTags; ++tag)
        sends.push_back(rank.send(peer, tag == 4 ? (1 << 24) - 1 : tag, &out[tag * kEach + i], 4));
    receive(0), receive(3), receive(1);
    std::reverse(recvs.begin(), recvs.end());
    for (gsel_posted* one : recvs) rank_check(run, rank.finish(one));
    for (gsel_posted* one : sends) rank_check(run, rank.finish(one));
    rank_check(run, in == out);
  });
}
void test_one_tag_keeps_its_order_and_tags_do_not_mix(void**) {
  as_ranks(3, keeps_order);
}

// A test returns while the other rank is not there yet; a send needs no memory while it waits.
void waits_for_a_late_one(rank_run* run) {
  between::linked(run, *table, started_comm, started_ctx, [&](between::Rank& rank) {
    gsel_error* err = nullptr;
    if (run->rank > 1) return;
    const int32_t peer = 1 - run->rank;
    const size_t n = 32 << 20;
    Bytes memory = run->rank == 0 ? pattern(n, 5) : Bytes(n);
    Bytes word(1);
    if (run->rank == 0) {
      gsel_posted* posted = rank.send(peer, 1, memory.data(), n);
      gsel_posted* answer = rank.recv(peer, 2, word.data(), 1);
      int32_t done = 1;
      for (int i = 0; i < 100; ++i) rank_ok(run, table->test(posted, 0, &done, &err), err);
      rank_check(run, done == 0);
      rank_ok(run, table->test(posted, 0.05, &done, &err), err);
      rank_check(run, done == 0);
      rank_check(run, rank.finish(rank.send(peer, 7, word.data(), 0)));  // passes the one that waits
      rank_check(run, rank.finish(posted) && rank.finish(answer));
    } else {
      rank_check(run, rank.finish(rank.recv(peer, 7, word.data(), 0)));
      usleep(100000);
      rank_check(run, rank.finish(rank.recv(peer, 1, memory.data(), n)));
      rank_check(run, memory == pattern(n, 5));
      rank_check(run, rank.finish(rank.send(peer, 2, word.data(), 1)));
    }
  });
}
void test_a_send_waits_for_its_receiver(void**) {
  as_ranks(2, waits_for_a_late_one);
}

// More than 2 GiB, all of it in the same 4 MiB of memory.
void sends_more_than_2_gib(rank_run* run) {
  between::linked(run, *table, started_comm, started_ctx, [&](between::Rank& rank) {
    constexpr size_t kPage = 4 << 20, kPages = 520, kBytes = kPage * kPages + 12345;
    if (run->rank > 1) return;
    const int fd = memfd_create("gsel-between", MFD_CLOEXEC);
    rank_check(run, fd >= 0 && ftruncate(fd, kPage) == 0);
    auto* memory =
        static_cast<unsigned char*>(mmap(nullptr, kPage * (kPages + 1), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    rank_check(run, memory != MAP_FAILED);
    for (size_t i = 0; i <= kPages; ++i)
      rank_check(run,
                 mmap(memory + i * kPage, kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED);
    const Bytes sent = pattern(kPage, 9);
    if (run->rank == 0) {
      memcpy(memory, sent.data(), kPage);
      rank_check(run, rank.finish(rank.send(1, 0, memory, kBytes)));
    } else {
      rank_check(run, rank.finish(rank.recv(0, 0, memory, kBytes)));
      rank_check(run, memcmp(memory, sent.data(), kPage) == 0);
    }
    munmap(memory, kPage * (kPages + 1));
    close(fd);
  });
}
void test_more_than_2_gib_arrive(void**) {
  as_ranks(2, sends_more_than_2_gib);
}

// Threads with a tag each, in both directions.
void posts_from_threads(rank_run* run) {
  between::linked(run, *table, started_comm, started_ctx, [&](between::Rank& rank) {
    if (run->rank > 1) return;
    std::atomic<int> good{0};
    std::vector<std::thread> threads;
    for (uint32_t tag = 0; tag < 4; ++tag)
      threads.emplace_back([&, tag] {
        for (uint32_t i = 0; i < 50; ++i) {
          const size_t n = i * 997 % 40000;
          const Bytes out = pattern(n, 10 * tag + i);
          Bytes in(n);
          gsel_posted* from = rank.recv(1 - run->rank, tag, in.data(), n);
          gsel_posted* to = rank.send(1 - run->rank, tag, out.data(), n);
          if (rank.finish(from) && rank.finish(to) && in == out) ++good;
        }
      });
    for (std::thread& thread : threads) thread.join();
    rank_check(run, good == 200);
  });
}
void test_threads_post_and_test_at_the_same_time(void**) {
  as_ranks(2, posts_from_threads);
}

// Who waits comes back within milliseconds, and what was posted can be released then.
void aborts(rank_run* run) {
  between::linked(run, *table, started_comm, started_ctx, [&](between::Rank& rank) {
    Bytes in(1 << 20), out(64 << 20);
    if (run->rank > 1) return;
    gsel_posted* from = rank.recv(1 - run->rank, 1, in.data(), in.size());
    gsel_posted* to = rank.send(1 - run->rank, 2, out.data(), out.size());
    std::thread other([&] {
      usleep(100000);
      table->link_abort(rank.link, "enough");
    });
    gsel_status status = GSEL_OK;
    std::string text;
    rank_check(run, !rank.finish(from, &status, &text));
    other.join();
    rank_check(run, status == GSEL_ERR_ABORTED || status == GSEL_ERR_PEER);  // the other rank may have been quicker
    rank_check(run, !rank.finish(to, &status) && (status == GSEL_ERR_ABORTED || status == GSEL_ERR_PEER));
    table->release(from);
    table->release(to);
    gsel_error* err = nullptr;
    rank_check(run, !rank.send(1 - run->rank, 3, in.data(), 1, &err) && gsel_error_code(err) == GSEL_ERR_ABORTED);
    gsel_error_free(err);
  });
}
void test_an_abort_ends_who_waits(void**) {
  as_ranks(2, aborts);
}

int start_under_a_launcher(const char* name) {
  gsel_error* err = nullptr;
  char text[600];
  table = between::table_of(name);
  if (!table) return printf("%s was left out of this build\n", name), 77;
  if (gsel_comm_init(nullptr, &started_comm, &err) == GSEL_OK &&
      table->open(&gsel::host_services(), &started_ctx, &err) == GSEL_OK) {
    started.rank = gsel_comm_rank(started_comm), started.world_size = gsel_comm_world_size(started_comm);
    return 0;
  }
  gsel_error_format(err, text, sizeof text);
  return fprintf(stderr, "%s\n", text), 1;
}

}  // namespace

int main(int argc, char** argv) {
  const CMUnitTest tests[] = {
      cmocka_unit_test(test_every_size_arrives_whole),
      cmocka_unit_test(test_one_tag_keeps_its_order_and_tags_do_not_mix),
      cmocka_unit_test(test_a_send_waits_for_its_receiver),
      cmocka_unit_test(test_more_than_2_gib_arrive),
      cmocka_unit_test(test_threads_post_and_test_at_the_same_time),
      cmocka_unit_test(test_an_abort_ends_who_waits),
  };
  if (argc > 1) {
    if (const int status = start_under_a_launcher(argv[1])) return status;
    const int failed = cmocka_run_group_tests(tests, nullptr, nullptr);
    table->close(started_ctx);
    return failed;
  }
  table = between::table_of("gloo");
  if (!table) return puts("the transport gloo was left out of this build"), 77;
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
