#!/usr/bin/env python3
"""Remove the source lines from a BPF object's type information; quell's loader does not pass them to the kernel.

    tools/slim_btf.py OBJECT

Removes the line records from `.BTF.ext`, and from `.BTF` the strings that only they refer to
(Documentation/bpf/btf.rst). Needs llvm-objcopy-22.
"""

from __future__ import annotations

import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

# Bytes that follow a type's header, by the kind of the type: for each of its `vlen` records (RECORD), or once per type
# (ONCE). The records of the kinds in NAMED begin with a name.
RECORD = {4: 12, 5: 12, 6: 8, 13: 8, 15: 12, 19: 12}
ONCE = {1: 4, 3: 12, 14: 4, 17: 4}
NAMED = {4, 5, 6, 13, 19}


class Strings:
    """The strings of `old` that are still referred to, collected in `new`."""

    def __init__(self, old: bytes) -> None:
        self.old, self.new, self.places = old, bytearray(b"\0"), {b"": 0}

    def move(self, words: bytearray, at: int) -> None:
        """Set the word at offset `at` to the new place of its string."""
        (before,) = struct.unpack_from("<I", words, at)
        text = self.old[before : self.old.index(b"\0", before)]
        if text not in self.places:
            self.places[text] = len(self.new)
            self.new += text + b"\0"
        struct.pack_into("<I", words, at, self.places[text])


def types(btf: bytes, strings: Strings, begin: int, length: int) -> bytearray:
    """Return the types with the new places of their names."""
    words, at = bytearray(btf[begin : begin + length]), 0
    while at < len(words):
        (info,) = struct.unpack_from("<I", words, at + 4)
        kind, count = info >> 24 & 0x1F, info & 0xFFFF
        strings.move(words, at)
        at += 12
        for _ in range(count if kind in RECORD else 0):
            if kind in NAMED:
                strings.move(words, at)
            at += RECORD[kind]
        at += ONCE.get(kind, 0)
    return words


def records(part: bytes, strings: Strings, named: tuple[int, ...]) -> bytearray:
    """Return a part of .BTF.ext with new places of its sections' names and of the words at `named` in each record."""
    words, at = bytearray(part), 4
    (size,) = struct.unpack_from("<I", words, 0)
    while at < len(words):
        (count,) = struct.unpack_from("<I", words, at + 4)
        strings.move(words, at)
        at += 8
        for _ in range(count):
            for place in named:
                strings.move(words, at + place)
            at += size
    return words


def slim(btf: bytes, ext: bytes) -> tuple[bytes, bytes]:
    """Return both sections without line records."""
    magic, version, flags, header, type_at, type_len, text_at, text_len = struct.unpack_from("<HBBIIIII", btf)
    strings = Strings(btf[header + text_at : header + text_at + text_len])
    kept = types(btf, strings, header + type_at, type_len)
    head, function_at, function_len, _, _, access_at, access_len = struct.unpack_from("<IIIIIII", ext, 4)
    functions = records(ext[head + function_at :][:function_len], strings, ())
    accesses = records(ext[head + access_at :][:access_len], strings, (8,))
    lines = struct.pack("<I", 16)
    ends = len(functions), len(functions) + len(lines)
    front = struct.pack("<IIIIIII", 32, 0, ends[0], ends[0], len(lines), ends[1], len(accesses))
    head_of_types = struct.pack("<HBBIIIII", magic, version, flags, 24, 0, type_len, type_len, len(strings.new))
    return head_of_types + kept + strings.new, ext[:4] + front + functions + lines + accesses


def main() -> None:
    """Rewrite the object."""
    path = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        files = {name: Path(folder, re.sub(r"\W", "", name)) for name in (".BTF", ".BTF.ext")}
        dump = [f"--dump-section={name}={file}" for name, file in files.items()]
        subprocess.run(["llvm-objcopy-22", *dump, path, f"{folder}/unchanged"], check=True)
        for file, section in zip(files.values(), slim(*(file.read_bytes() for file in files.values())), strict=True):
            file.write_bytes(section)
        update = [f"--update-section={name}={file}" for name, file in files.items()]
        subprocess.run(["llvm-objcopy-22", *update, path], check=True)


if __name__ == "__main__":
    main()
