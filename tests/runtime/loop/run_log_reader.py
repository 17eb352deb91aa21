"""Reads the log of a run that had 5 updates and was resumed after update 3 until update 4.

run_log_reader.py FOLDER              exit code 1 if a file does not hold what RunLog's header says
run_log_reader.py --figures FOLDER    the same for texts, histograms and images

The event files are read twice: frame by frame, with each check sum computed here, and by TensorBoard
where it is installed.
"""

import csv
import json
import math
import pathlib
import struct
import sys

EXPECTED = {1: 0.625, 2: 0.625, 3: 0.625, 4: 0.5}  # validation/loss


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frames(path):
    data = path.read_bytes()
    while data:
        (length,), (check,) = struct.unpack("<Q", data[:8]), struct.unpack("<I", data[8:12])
        assert masked(data[:8]) == check, f"{path}: check sum of a length"
        content, (check,) = data[12:12 + length], struct.unpack("<I", data[12 + length:16 + length])
        assert len(content) == length and masked(content) == check, f"{path}: check sum of a record"
        yield content
        data = data[16 + length:]


def varint(data):
    value = shift = at = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, data[at:]


def fields(data):
    """(number, value) of each field of a protocol buffer."""
    while data:
        key, data = varint(data)
        if key & 7 == 0:
            value, data = varint(data)
        elif key & 7 == 2:
            length, data = varint(data)
            value, data = data[:length], data[length:]
        else:
            size, form = (8, "<d") if key & 7 == 1 else (4, "<f")
            (value,), data = struct.unpack(form, data[:size]), data[size:]
        yield key >> 3, value


def scalars_by_frame(folder):
    """name -> update -> value, as TensorBoard reads it: a session that starts drops later updates."""
    found = {}
    for path in sorted(folder.glob("events.out.tfevents.*")):
        for number, frame in enumerate(frames(path)):
            event = dict(fields(frame))
            assert event[1] > 1.6e9, "wall time"
            if number == 0:
                assert event[3] == b"brain.Event:2"
            elif 7 in event:
                assert dict(fields(event[7]))[1] == 1, "SessionLog.START"
                for values in found.values():
                    for update in [update for update in values if update >= event[2]]:
                        del values[update]
            else:
                for _, summary in fields(event[5]):
                    value = dict(fields(summary))
                    found.setdefault(value[1].decode(), {})[event[2]] = value[2]
    return found


def scalars_by_tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    return {name: {event.step: event.value for event in accumulator.Scalars(name)}
            for name in accumulator.Tags()["scalars"]}


def check_scalars(found, how):
    assert found["validation/loss"] == EXPECTED, (how, found)
    assert set(found["loss"]) == set(EXPECTED), (how, found)
    assert {"learning_rate", "loss_scale", "skipped_updates", "gradient_norm"} <= set(found), (how, found)
    assert found["loss_scale"] == {update: 1.0 for update in EXPECTED}, (how, found)


def figures_by_frame(folder):
    """name -> the fields of its Summary.Value."""
    found = {}
    for path in folder.glob("events.out.tfevents.*"):
        for frame in frames(path):
            event = dict(fields(frame))
            for _, summary in fields(event.get(5, b"")):
                value = dict(fields(summary))
                found[value.pop(1).decode()] = value
                assert event[2] == 1, "the update"
    return found


def doubles(packed):
    return struct.unpack(f"<{len(packed) // 8}d", packed)


def check_figures(folder):
    found = figures_by_frame(folder)
    tensor = dict(fields(found["sample"][8]))
    assert (tensor[1], tensor[8]) == (7, b"two\nlines"), tensor
    assert dict(fields(dict(fields(found["sample"][9]))[1]))[1] == b"text"

    values = dict(fields(found["values"][5]))
    assert [values[n] for n in (1, 2, 3, 4)] == [0, 126, 127, 126 * 127 / 2], values
    limits, counts = doubles(values[6]), doubles(values[7])
    assert len(limits) == len(counts) == 64 and sum(counts) == 127 and limits[-1] == 126, values
    assert all(a < b for a, b in zip(limits, limits[1:])) and set(counts) <= {1, 2, 3}, values
    equal = dict(fields(found["equal"][5]))
    assert doubles(equal[6]) == (1,) and doubles(equal[7]) == (3,), equal
    assert found["none"][5] == b""

    for name, height, width, color in (("picture", 2, 5, bytes([128, 0, 255])), ("grey", 4, 3, bytes([7, 7, 7]))):
        image = dict(fields(found[name][4]))
        assert (image[1], image[2], image[3]) == (height, width, 3), image
        data = image[4]
        kind, size, _, start, _, seen_width, seen_height, _, bits = struct.unpack("<2sIIIIiiHH", data[:30])
        assert (kind, size, seen_width, seen_height, bits) == (b"BM", len(data), width, height, 24), data
        stride = (3 * width + 3) // 4 * 4
        assert len(data) == start + stride * height
        for row in range(height):
            assert data[start + row * stride:][:3 * width] == color * width, data


def check_figures_by_tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    accumulator = EventAccumulator(str(folder))
    accumulator.Reload()
    tags = accumulator.Tags()
    assert tags["histograms"] == ["values", "equal", "none"] and tags["images"] == ["picture", "grey"], tags
    assert tags["tensors"] == ["sample"], tags


def main():
    if sys.argv[1] == "--figures":
        folder = pathlib.Path(sys.argv[2])
        check_figures(folder)
        try:
            check_figures_by_tensorboard(folder)
        except ModuleNotFoundError as missing:
            print(f"tensorboard is not installed ({missing.name}): the event files are checked frame by frame only")
        return
    folder = pathlib.Path(sys.argv[1])
    assert masked(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF

    rows = [json.loads(line, parse_constant=lambda word: sys.exit(f"{word} is no JSON"))
            for line in (folder / "log.jsonl").read_text().splitlines()]
    by_json = {}
    for row in rows:
        assert row["time"] > 1.6e9
        for name, value in row.items():
            by_json.setdefault(name, {})[row["update"]] = value
    check_scalars(by_json, "JSONL")

    by_csv = {}
    with open(folder / "log.csv", newline="") as file:
        for row in csv.DictReader(file):
            by_csv.setdefault(row["name"], {})[int(row["update"])] = float(row["value"])
    check_scalars(by_csv, "CSV")
    assert by_csv["loss"] == by_json["loss"]

    by_frame = scalars_by_frame(folder)
    check_scalars(by_frame, "frames")
    for update, loss in by_json["loss"].items():
        assert math.isclose(by_frame["loss"][update], loss, rel_tol=1e-6)

    try:
        by_tensorboard = scalars_by_tensorboard(folder)
    except ModuleNotFoundError as missing:
        print(f"tensorboard is not installed ({missing.name}): the event files are checked frame by frame only")
        return
    check_scalars(by_tensorboard, "TensorBoard")
    assert by_tensorboard == by_frame


main()
