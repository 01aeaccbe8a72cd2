#!/usr/bin/env python3
"""table.py SAMPLES ROUNDS DELAY_ROUNDS LOADS DATE PEER...: the samples of run.sh (delay in ms, peer, operation, ranks, bytes,
median us) as tables: the median over the rounds, its spread, and how many times each gsel's peers take."""
import collections
import os
import statistics
import sys

path, rounds, delay_rounds, loads, date, *peers = sys.argv[1:]
own = [peer for peer in peers if peer.startswith("gsel")]
others = [peer for peer in peers if peer not in own]
cells = collections.defaultdict(list)
for line in open(path, encoding="utf-8"):
    delay, peer, operation, ranks, size, median = line.split()
    cells[int(delay), operation, int(ranks), int(size), peer].append(float(median))


def number(us):
    """Three digits, in the unit of the table."""
    return f"{us:.0f}" if us >= 100 else f"{us:.3g}"


def show_table(delay, operations):
    """Rows of these operations, and how often the better gsel is behind a peer."""
    behind = collections.Counter()
    print("| operation | ranks | bytes | " + " | ".join(peers) + " | " + " | ".join(f"{p} / gsel" for p in others) + " |")
    print("|---|--:|--:|" + "--:|" * (len(peers) + len(others)))
    keys = [key for key in dict.fromkeys(key[:4] for key in cells) if key[0] == delay and key[1] in operations]
    for key in sorted(keys, key=lambda k: (operations.index(k[1]), k[2], k[3])):
        row, medians = [], {}
        for peer in peers:
            values = cells.get((*key, peer))
            if not values:
                row.append("-")
                continue
            medians[peer] = statistics.median(values)
            row.append(f"{number(medians[peer])} ({number(min(values))} to {number(max(values))})")
        best = min((medians[p] for p in own if p in medians), default=None)
        for peer in others:
            row.append(f"{medians[peer] / best:.2f}" if best and peer in medians else "-")
            if best and peer in medians:
                behind[peer] += medians[peer] < best
        print(f"| {key[1]} | {key[2]} | {key[3]} | " + " | ".join(row) + " |")
    text = ", ".join(f"{peer} {behind[peer]}" for peer in others)
    print(f"\nRows in which a peer is faster than the better gsel, of {len(keys)}: {text}.\n")


print("# Ranks on two hosts, beside peers\n")
print("Two hosts of one machine, namespaces with a cable between them, with one and two ranks each, so that all ranks and the")
print(f"threads of the transports share its {os.cpu_count()} cores. Microseconds a call, f32: the median of {rounds} interleaved rounds'")
print("medians (least to most). The last columns: a peer's time divided by that of the better gsel, above 1 where gsel is ahead.")
print("Open MPI yields while it waits; openmpi is flat, openmpi-han has its hierarchy. PCCL is pypccl 1.0.0, which has no other")
print("collective than allreduce and asks its master at each call.")
print(f"`make bench-hosts` writes this; on {date}, with a load average of {loads} around it.\n")
show_table(0, ["allreduce"])
rest = [o for o in dict.fromkeys(key[1] for key in cells) if o != "allreduce"]
if rest:
    print("## Other operations\n")
    show_table(0, rest)
for delay in sorted({key[0] for key in cells} - {0}):
    print(f"## With {delay} ms of delay\n")
    print(f"Each packet takes {delay} ms in either direction, so that an answer takes {2 * delay} ms; median of {delay_rounds} rounds.\n")
    show_table(delay, ["allreduce"])
