"""Writes the data files of one kind to a folder, as Python programs write them.

  write_samples.py KIND FOLDER
"""

import csv
import io
import pathlib
import sys
import tarfile

kind, folder = sys.argv[1], pathlib.Path(sys.argv[2])


def pixels(height, width, channels=3):
    """A smooth picture: neighbours differ little, as JPEG likes it."""
    import numpy as np
    y, x, c = np.meshgrid(np.arange(height), np.arange(width), np.arange(channels), indexing="ij")
    return ((5 * y + 3 * x * (c + 1) + 40 * c) % 200 + (x * y) % 7).astype(np.uint8)


def images():
    import numpy as np
    from PIL import Image
    (folder / "cat").mkdir()
    (folder / "dog").mkdir()
    (folder / "notes.txt").write_text("no class")
    (folder / "cat" / "notes.txt").write_text("no image")
    Image.fromarray(pixels(20, 30)).save(folder / "cat" / "a.png")
    Image.fromarray(pixels(33, 17)).save(folder / "cat" / "b.JPG", quality=90)
    Image.fromarray(pixels(16, 16, 1)[:, :, 0]).save(folder / "dog" / "grey.jpeg", quality=95)
    rgba = np.dstack([pixels(12, 14), np.full((12, 14), 77, np.uint8)])
    Image.fromarray(rgba, "RGBA").save(folder / "dog" / "rgba.png")
    palette = Image.fromarray(pixels(9, 11)).quantize(50)
    palette.save(folder / "dog" / "spotted.png")
    for path in [*folder.glob("*/*.png"), *folder.glob("*/*.JPG"), *folder.glob("*/*.jpeg")]:
        for mode, name in (("RGB", "rgb"), ("L", "grey")):
            image = Image.open(path)
            array = np.asarray(image.convert("RGB").convert(mode))
            array = array[None] if mode == "L" else array.transpose(2, 0, 1)
            np.save(folder / f"{path.stem}.{name}.npy", np.ascontiguousarray(array))
    ImageCmyk = Image.fromarray(pixels(8, 8, 4), "CMYK")
    ImageCmyk.save(folder / "cmyk.jpg")
    Image.fromarray((pixels(8, 8, 1)[:, :, 0].astype(np.uint16) * 257)).save(folder / "wide.png")


def arrays():
    import numpy as np
    values = np.arange(24).reshape(4, 3, 2)
    for name in ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
                 "float16", "float32", "float64", "complex64", "complex128"):
        np.save(folder / f"{name}.npy", (values % 2 if name == "bool" else values).astype(name))
    np.save(folder / "fortran.npy", np.asfortranarray(values.astype(np.float32)))
    np.save(folder / "vector.npy", np.arange(5, dtype=np.float32))
    np.save(folder / "empty.npy", np.zeros((0, 3), np.float32))
    np.save(folder / "scalar.npy", np.float32(3))
    np.save(folder / "big.npy", values.astype(">f4"))
    np.save(folder / "objects.npy", np.array([{}, []], dtype=object), allow_pickle=True)
    np.save(folder / "fields.npy", np.zeros(3, dtype=[("a", "<f4"), ("b", "<i4")]))
    for version in ((2, 0), (3, 0)):
        with open(folder / f"version{version[0]}.npy", "wb") as file:
            np.lib.format.write_array(file, values.astype(np.float32), version=version)
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }\n"
    (folder / "unaligned.npy").write_bytes(
        b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
        + np.array([1.5, -2.0]).tobytes())


def tables():
    rows = [["name", "x", "y", "note"],
            ["first", "1", "-2.5", "plain"],
            ["second, with comma", "2", "1e3", 'says "hello"'],
            ["third", " 3 ", "inf", "two\nlines\r\nthree"],
            ["", "-4", "0.1", ""]]
    for name, options in (("a.csv", {}), ("unix.csv", {"lineterminator": "\n"}),
                          ("all.csv", {"quoting": csv.QUOTE_ALL}), ("a.tsv", {"delimiter": "\t"})):
        with open(folder / name, "w", newline="", encoding="utf-8") as file:
            csv.writer(file, **options).writerows(rows)
    (folder / "marked.csv").write_bytes(b"\xef\xbb\xbfa,b\n1,2\n\n3,4")


def tokens():
    import numpy as np
    np.arange(100, 121, dtype="<u2").tofile(folder / "a.bin")
    np.arange(7, dtype="<u2").tofile(folder / "b.bin")
    np.array([5, 70000, 4_000_000_000, 1], dtype="<u4").tofile(folder / "wide.bin")


def tars():
    deep = "d" * 90 + "/" + "e" * 120 + "/0003"
    for name, form in (("gnu", tarfile.GNU_FORMAT), ("pax", tarfile.PAX_FORMAT)):
        with tarfile.open(folder / f"{name}.tar", "w", format=form) as tar:
            def add(path, data):
                entry = tarfile.TarInfo(path)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
            folder_entry = tarfile.TarInfo("train")
            folder_entry.type = tarfile.DIRTYPE
            tar.addfile(folder_entry)
            add("train/0001.jpg", bytes(range(256)) * 5)
            add("train/._0001.jpg", b"of macOS")
            add(".hidden", b"")
            add("train/0001.cls", b"7")
            add("train/0002.seg.PNG", b"mask")
            add("train/0002.cls", b"")
            link = tarfile.TarInfo("train/0002.link")
            link.type, link.linkname = tarfile.SYMTYPE, "0002.cls"
            tar.addfile(link)
            add(deep + ".txt", b"deep" * 1000)
            add("\u00fcber/4.v1.txt", "\u00e4".encode())
    with tarfile.open(folder / "packed.tar.gz", "w:gz") as tar:
        tar.add(folder / "gnu.tar", "0.tar")
    with tarfile.open(folder / "twice.tar", "w") as tar:
        for _ in range(2):
            tar.add(folder / "gnu.tar", "0001.bin")
    with tarfile.open(folder / "nodot.tar", "w") as tar:
        tar.add(folder / "gnu.tar", "a.b/README")
    with tarfile.open(folder / "none.tar", "w"):
        pass


def safetensors():
    import numpy as np
    from safetensors.numpy import save_file
    save_file({"x": np.arange(12, dtype=np.float32).reshape(4, 3),
               "y": np.arange(4, dtype=np.int64), "short": np.arange(3, dtype=np.int64),
               "scalar": np.array(1, np.float32)}, folder / "a.safetensors")


globals()[kind]()
