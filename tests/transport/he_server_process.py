"""A server of its own process: adds up sealed messages from standard input and hands the sealed sum back.

python he_server_process.py SERVER_FOLDER DIM CLIENTS [SECRET_KEY_TO_PLANT]
"""

import struct
import sys
from pathlib import Path

import torch

from fedsynth.transport.he import Homomorphic
from fedsynth.transport.keys import load_keys, load_server_keys
from fedsynth.transport.wire import Real


def main() -> None:
    torch.set_num_threads(1)
    folder, dim, clients = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    wire = Real(dim, reach=1.0)
    server = Homomorphic(keys=load_server_keys(folder)).fitted(wire, clients)
    total = server.zero(wire)
    planted = [Homomorphic(keys=load_keys(Path(path))).fitted(wire, clients) for path in sys.argv[4:]]
    for _ in range(clients):
        (length,) = struct.unpack("<I", sys.stdin.buffer.read(4))
        total = server.add(total, sys.stdin.buffer.read(length))
    for key_holder in planted:
        key_holder.open(wire, total)
    closed = server.close(total)
    sys.stdout.buffer.write(struct.pack("<I", len(closed)) + closed)
    sys.stdout.buffer.flush()
    sys.stdin.buffer.read()  # stays until it is told to go, with all that it holds


if __name__ == "__main__":
    main()
