"""interrupt.py CASE: Ctrl-C during a call that waits for the other rank: gsel run -n 2 -- python3 interrupt.py CASE
SIGINT goes to rank 0 while it waits, as from a terminal. Rank 1 comes after that, as a second communicator tells it.
Each rank prints what it got."""
import os
import signal
import sys
import threading
import time

import gsel
import numpy as np
import train_mlp
from ranks import caught

case, first = sys.argv[1], os.environ["RANK"] == "0"


def interrupt_when_waiting():
    """Sends SIGINT once the main thread waits in gsel."""
    def run():
        while sys._current_frames()[threading.main_thread().ident].f_code.co_name != "_wait":
            time.sleep(0.01)
        time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=run).start()


with gsel.Communicator() as told:
    comm, joining = told.dup(), gsel.unique_id()
    if case == "handler":  # one that does not raise, and makes a call of its own: the call goes on
        if first:
            signal.signal(signal.SIGINT, lambda *_: told.barrier())
            interrupt_when_waiting()
        else:
            told.barrier()
        print(comm.allreduce(1))
        sys.exit()
    with train_mlp.network() as model, gsel.Trainer(comm, model, gsel.Config(text="[train]\nbatch = 4\n")) as trainer:
        def step():
            for work in trainer.step():
                if work.kind == gsel.INPUT:
                    np.asarray(work.dst)[:] = 0
                else:
                    train_mlp.compute(work)

        def join():
            with gsel.Communicator(0, 2, joining, join_timeout=60):
                pass
        if first:
            interrupt_when_waiting()
            caught(KeyboardInterrupt, {"barrier": comm.barrier, "train": step, "join": join,
                                       "receive": lambda: comm.recv(bytearray(1), 1)}[case])
        told.barrier()  # what was interrupted is broken, and nothing else
        print("joins no more" if case == "join" else caught(gsel.AbortedError, comm.barrier))
