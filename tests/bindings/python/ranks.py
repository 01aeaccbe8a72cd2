"""ranks.py: ranks as threads of one process, for tests. Threads make their calls themselves, without a helper."""
import itertools
import os
import threading

import gsel

numbers = itertools.count()


def ranks(n, function, **options):
    """function(comm) on n ranks; returns what it returned on each, or raises what the first that failed raised."""
    meeting, results, failures = f"{os.getpid()} {next(numbers)}", [None] * n, [None] * n

    def run(rank):
        try:
            with gsel.Communicator(rank, n, meeting, join_timeout=20, **options) as comm:
                results[rank] = function(comm)
        except BaseException as error:
            failures[rank] = error
    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in failures:
        if failure is not None:
            raise failure
    return results


def caught(kind, function, *args, **named):
    """The error of that class that the call raises."""
    try:
        got = function(*args, **named)
    except kind as error:
        return error
    raise AssertionError(f"expected {kind}, got {got!r}")
