"""Every rank adds its number to a sum: gsel run -n 4 -- python3 allreduce.py"""
import array

import gsel

with gsel.Communicator() as comm:
    ones = array.array("f", [1] * 8)  # a NumPy array or a PyTorch tensor goes as well
    comm.allreduce(ones)
    print(f"{comm.size} ranks: sum of ranks {comm.allreduce(comm.rank)}, of ones {ones[0]:g}")
