"""Reads the device code in programs and libraries: ELF sections, fatbin containers and their elements."""

import dataclasses
import mmap
import struct

CONTAINER = 0xBA55ED50  # the first word of a fatbin container
PTX, ELF = 1, 2
COMPRESSED = 0xF000  # flags of an element: its bytes are packed, by one of several programs


@dataclasses.dataclass(frozen=True)
class Element:
    """One piece of a fatbin container: the machine code or the PTX of one source file for one architecture."""
    kind: int
    architecture: int  # 75 for sm_75
    compressed: bool
    payload: bytes
    whole: bytes  # with its header

    def alone(self):
        """A fatbin that holds this element only; cuobjdump reads it as it reads a program."""
        return container([self])


def container(elements):
    """A fatbin that holds these elements."""
    body = b"".join(element.whole for element in elements)
    return struct.pack("<IHHQ", CONTAINER, 1, 16, len(body)) + body


def sections(file):
    """(name, offset, size) of the sections of a 64-bit ELF file that have bytes in it."""
    if file[:5] != b"\x7fELF\x02":
        return
    table, = struct.unpack_from("<Q", file, 40)
    size, count, names = struct.unpack_from("<HHH", file, 58)
    if count == 0:
        return
    strings, = struct.unpack_from("<Q", file, table + names * size + 24)
    for number in range(count):
        name, kind = struct.unpack_from("<II", file, table + number * size)
        offset, length = struct.unpack_from("<QQ", file, table + number * size + 24)
        text = file[strings + name:file.find(b"\0", strings + name)].decode()
        yield text, offset, 0 if kind == 8 else length


def kernels(cubin):
    """The names of the functions whose code a cubin holds."""
    return [name[len(".text."):] for name, _, _ in sections(cubin) if name.startswith(".text.")]


def containers(path):
    """The fatbin containers of a program or library, each as the list of its elements."""
    with open(path, "rb") as file:
        if file.read(4) != b"\x7fELF":
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as bytes_of_file:
            for name, offset, size in sections(bytes_of_file):
                if name == ".nv_fatbin":
                    yield from containers_in(bytes_of_file, offset, offset + size)


def containers_in(file, at, end):
    while at + 16 <= end:
        magic, _, header, size = struct.unpack_from("<IHHQ", file, at)
        if magic == CONTAINER:
            yield list(elements_in(file, at + header, at + header + size))
            at += header + size
        else:
            at += 8  # they are aligned to 8 bytes


def elements_in(file, at, end):
    while at < end:
        kind, _, header, size = struct.unpack_from("<HHIQ", file, at)
        architecture, = struct.unpack_from("<I", file, at + 28)
        flags, = struct.unpack_from("<Q", file, at + 40)
        payload = file[at + header:at + header + size]
        yield Element(kind, architecture, bool(flags & COMPRESSED), payload, file[at:at + header + size])
        at += header + size


def chosen(elements, architecture):
    """The element that a device of this compute capability would run, or None, by the rules of a driver: machine code
    for it or for an earlier one of the same major number, else the latest PTX that is not later than it."""
    fits = [e for e in elements if e.architecture <= architecture and
            (e.kind == PTX or e.kind == ELF and e.architecture // 10 == architecture // 10)]
    return max(fits, key=lambda e: (e.kind == ELF, e.architecture), default=None)
