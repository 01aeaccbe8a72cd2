"""Tells which devices a spec selects and why, as a server would log it: devices.py [SPEC [RECORDED_MACHINE]]"""
import sys

import gsel

try:
    selection = gsel.resolve(*sys.argv[1:2], inventory=sys.argv[2] if len(sys.argv) > 2 else None)
except gsel.NoDevicesError as error:
    sys.exit(f"{error}; the model will run on the CPU")
except gsel.Error as error:
    sys.exit(f"{error.file}, column {error.column}: {error}")
print(selection, end="")
for candidate in selection.dict()["candidates"]:
    print(f"device {candidate['index']}: {candidate['reason']}")
