#!/usr/bin/env python3
"""table.py SAMPLES ROUNDS PEER...: the samples of run.sh (peer, operation, ranks, bytes, median us, p99 us) as a table: the
median over the rounds, its spread, and how many times gsel's best each peer takes."""
import collections
import os
import statistics
import sys

samples, rounds, *peers = sys.argv[1:]
cells = collections.defaultdict(list)
for line in open(samples, encoding="utf-8"):
    peer, operation, ranks, size, median, _ = line.split()
    cells[int(ranks), operation, int(size), peer].append(float(median))

print("# Ranks on two hosts, beside peers\n")
print("Two network namespaces of one machine with a cable between them, so that all ranks and the threads of the")
print(f"transports share its {os.cpu_count()} cores; {rounds} rounds, interleaved; microseconds a call, median of the rounds'")
print("medians (least to most). Open MPI yields while it waits. The last column: the best peer divided by the better gsel.")
print("`make bench-hosts` writes this.\n")
own = [peer for peer in peers if peer.startswith("gsel")]
others = [peer for peer in peers if peer not in own]
print("| ranks | operation | bytes | " + " | ".join(peers) + " | ratio |")
print("|--:|---|--:|" + "--:|" * (len(peers) + 1))
for ranks, operation, size in sorted(dict.fromkeys(key[:3] for key in cells)):
    row, medians = [], {}
    for peer in peers:
        values = cells.get((ranks, operation, size, peer))
        if not values:
            row.append("-")
            continue
        medians[peer] = statistics.median(values)
        row.append(f"{medians[peer]:.0f} ({min(values):.0f} to {max(values):.0f})")
    best = [min((medians[p] for p in group if p in medians), default=None) for group in (own, others)]
    ratio = f"{best[1] / best[0]:.2f}" if all(best) else "-"
    print(f"| {ranks} | {operation} | {size} | " + " | ".join(row) + f" | {ratio} |")
