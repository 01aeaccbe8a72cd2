// bench_gloo.cc: Gloo in the harness of gsel's peers: forked ranks that meet in a directory of their own and talk TCP
// over the loopback interface, the only transport Gloo has between processes of one host, or on the two of BENCH_HOSTS
// (common/forked.h).
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "common/forked.h"
#include "common/harness.h"

namespace {

std::shared_ptr<gloo::rendezvous::Context> context;
char directory[] = "/tmp/bench-gloo-XXXXXX";

void join(int*, char***, int wanted, int* rank, int* ranks) {
  if (!mkdtemp(directory)) bench_fail("no directory under /tmp");
  forked_join(wanted, rank, ranks);
  gloo::transport::tcp::attr attr;
  attr.iface = forked_enter_host(*rank, *ranks) ? "eth0" : "lo";
  gloo::rendezvous::FileStore store(directory);
  context = std::make_shared<gloo::rendezvous::Context>(*rank, *ranks);
  auto device = gloo::transport::tcp::CreateDevice(attr);
  context->connectFullMesh(store, device);
  forked_barrier();
  if (*rank == 0) std::filesystem::remove_all(directory);
}

void leave() {
  forked_barrier();
  context.reset();
  forked_leave();
}

float* allreduce(const bench_call* c) {
  gloo::AllreduceOptions options(context);
  options.setOutput(c->data, c->count);
  options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
  gloo::allreduce(options);
  return c->data;
}

// An object of Gloo's older kind: made once per size, since making it connects buffers.
float* reduce_scatter(const bench_call* c) {
  using ReduceScatter = gloo::ReduceScatterHalvingDoubling<float>;
  static std::unique_ptr<ReduceScatter> algorithm;
  static size_t made_for = 0;
  if (made_for != c->count) {
    algorithm.reset();
    algorithm = std::make_unique<ReduceScatter>(context, std::vector<float*>{c->data}, static_cast<int>(c->count),
                                                std::vector<int>(c->ranks, static_cast<int>(c->part)));
    made_for = c->count;
  }
  algorithm->run();
  return c->data;
}

float* allgather(const bench_call* c) {
  gloo::AllgatherOptions options(context);
  options.setOutput(c->data, c->count);  // the rank's own input lies in its place there
  gloo::allgather(options);
  return c->data;
}

float* alltoall(const bench_call* c) {
  gloo::AlltoallOptions options(context);
  options.setInput(const_cast<float*>(c->source), c->count);
  options.setOutput(c->data, c->count);
  gloo::alltoall(options);
  return c->data;
}

float* reduce(const bench_call* c) {
  gloo::ReduceOptions options(context);
  options.setOutput(c->data, c->count);
  options.setRoot(0);
  options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
  gloo::reduce(options);
  return c->rank == 0 ? c->data : nullptr;
}

float* gather_parts(const bench_call* c) {
  gloo::GatherOptions options(context);
  options.setInput(c->data + static_cast<size_t>(c->rank) * c->part, c->part);
  if (c->rank == 0) options.setOutput(const_cast<float*>(c->source), c->count);
  options.setRoot(0);
  gloo::gather(options);
  return c->rank == 0 ? const_cast<float*>(c->source) : nullptr;
}

float* broadcast(const bench_call* c) {
  gloo::BroadcastOptions options(context);
  options.setOutput(c->data, c->count);
  options.setRoot(0);
  gloo::broadcast(options);
  return c->data;
}

float* sendrecv(const bench_call* c) {
  const int other = c->rank ^ 1;
  auto buffer = context->createUnboundBuffer(c->data, c->count * sizeof(float));
  const auto send = [&] {
    buffer->send(other, 1);
    buffer->waitSend();
  };
  if (c->rank % 2 == 0) send();
  buffer->recv(other, 1);
  buffer->waitRecv();
  if (c->rank % 2 == 1) send();
  return c->data;
}

float* barrier(const bench_call* c) {
  gloo::BarrierOptions options(context);
  gloo::barrier(options);
  return c->data;
}

}  // namespace

int main(int argc, char** argv) {
  static const bench_operation operations[] = {
      {"allreduce", allreduce}, {"reduce_scatter", reduce_scatter},
      {"allgather", allgather}, {"alltoall", alltoall},
      {"broadcast", broadcast}, {"reduce", reduce},
      {"gather", gather_parts}, {"sendrecv", sendrecv},
      {"barrier", barrier},     {nullptr, nullptr},
  };
  static const bench_peer peer = {join, forked_gather, leave, nullptr, operations};
  return bench_main(&peer, argc, argv);
}
