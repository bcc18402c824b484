"""Write the kernel's answers to requests for all disciplines, then for each named device's classes.

python3 capture.py FILE [DEV...]
"""

import socket
import struct
import sys
from pathlib import Path

GET_QDISC, GET_CLASS, REQUEST_DUMP, ERROR, DONE = 38, 42, 0x301, 2, 3


def answer(kind, device):
    """Yield the pieces of one list."""
    asked = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    asked.send(struct.pack("=IHHIIBxxxiIII", 36, kind, REQUEST_DUMP, 1, 0, 0, device, 0, 0, 0))
    ended = False
    while not ended:
        data = asked.recv(1 << 16)
        yield data
        at = 0
        while at + 16 <= len(data):
            length, message = struct.unpack_from("=IH", data, at)
            ended |= message in (ERROR, DONE)
            at += (length + 3) & ~3


with Path(sys.argv[1]).open("wb") as out:
    for kind, device in [(GET_QDISC, 0), *((GET_CLASS, socket.if_nametoindex(name)) for name in sys.argv[2:])]:
        out.writelines(answer(kind, device))
