"""A reader of snapshots, written from docs/snapshot-format.md alone; it shares no code with lockstep."""

import ctypes
import json
import math
import pathlib
import struct

import torch

DTYPES = {"F32": torch.float32, "F64": torch.float64, "F16": torch.float16, "BF16": torch.bfloat16,
          "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
          "U8": torch.uint8, "BOOL": torch.bool}
XXH3 = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
XXH3.argtypes, XXH3.restype = (ctypes.c_char_p, ctypes.c_size_t), ctypes.c_uint64


def require(digest, data, what):
    if f"{XXH3(bytes(data), len(data)):016x}" != digest:
        raise ValueError(f"{what} is damaged")


def read_file(path, listed):
    """Steps 2 and 4 of "Reading": {name: tensor}, checked."""
    data = path.read_bytes()
    length, = struct.unpack("<Q", data[:8])
    require(listed["header"], data[:8 + length], f"{path}, header")
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    if len(data) != listed["bytes"] or header.keys() != listed["tensors"].keys():
        raise ValueError(f"{path} is not the file that was written")
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        require(listed["tensors"][name], data[begin:end], f"{path}, {name}")
        flat = torch.frombuffer(bytearray(data[begin:end] or 8), dtype=DTYPES[entry["dtype"]])
        tensors[name] = flat[:math.prod(entry["shape"])].view(entry["shape"])
    return tensors


def read_snapshot(folder):
    """Returns (manifest, {section: {name: tensor}}, {(section, rank): {name: tensor}})."""
    text = (pathlib.Path(folder) / "manifest.json").read_bytes()
    require(text[-19:-3].decode(), text[:-29], "the manifest")
    manifest = json.loads(text)
    if (manifest["format"], manifest["schema"]) != ("lockstep snapshot", 1):
        raise ValueError("of another kind")
    shared, own, parts = {}, {}, {}
    for name, listed in manifest["files"].items():
        tensors, section = read_file(pathlib.Path(folder) / name, listed), listed["section"]
        if listed["role"] == "own":
            own[section, listed["rank"]] = tensors
        elif listed["role"] == "whole":
            shared.setdefault(section, {}).update(tensors)
        else:
            for tensor, place in listed["slices"].items():
                part = place["begin"], place["sizes"], tensors[tensor]
                parts.setdefault((section, tensor), []).append(part)
    for (section, name), pieces in parts.items():
        pieces.sort(key=lambda piece: piece[0])
        whole = torch.cat([piece for _, _, piece in pieces]).view(pieces[0][1])
        shared.setdefault(section, {})[name] = whole
    for section, names in manifest["tied"].items():
        shared[section].update({name: shared[section][stored] for name, stored in names.items()})
    return manifest, shared, own
