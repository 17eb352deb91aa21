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
    odd = folder / ".odd"
    odd.mkdir()
    Image.fromarray(pixels(40, 56, 4), "CMYK").save(odd / "cmyk.jpg")
    Image.fromarray(pixels(40, 56)).save(odd / "plain.jpg")
    jpeg = (odd / "plain.jpg").read_bytes()
    jfif, sos = jpeg.index(b"JFIF\0"), jpeg.index(b"\xff\xda")
    data = sos + 2 + int.from_bytes(jpeg[sos + 2:sos + 4], "big")
    (odd / "extraneous_bytes.jpg").write_bytes(jpeg[:-2] + bytes(258) + jpeg[-2:])
    (odd / "jfif_2_01.jpg").write_bytes(jpeg[:jfif + 5] + b"\2\1" + jpeg[jfif + 7:])
    (odd / "scan_parameters.jpg").write_bytes(jpeg[:data - 3] + bytes(3) + jpeg[data:])
    (odd / "bytes_behind_the_end.jpg").write_bytes(jpeg + b"more")
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
                          ("all.csv", {"quoting": csv.QUOTE_ALL}), ("a.tsv", {"delimiter": "\t"}),
                          ("mac.csv", {"lineterminator": "\r"})):
        with open(folder / name, "w", newline="", encoding="utf-8") as file:
            csv.writer(file, **options).writerows(rows)
    (folder / "marked.csv").write_bytes(b"\xef\xbb\xbfa,b\n1,2\n\n3,4")


def odd_tables():
    """N.csv: letters, separators, quotes and line ends by chance. N.rows: what csv.reader makes of it, where it takes it
    and all rows are equally long: fields between \\x1f, rows between \\x1e."""
    import random
    random.seed(7)
    for n in range(600):
        text = "".join(random.choices(["a", "b", ",", '"', "\n", "\r", "\r\n", '""'], k=random.randint(1, 14)))
        (folder / f"{n}.csv").write_bytes(text.encode())
        try:
            rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
        except csv.Error:
            continue
        if rows and len({len(row) for row in rows}) == 1:
            (folder / f"{n}.rows").write_bytes("\x1e".join("\x1f".join(row) for row in rows).encode())


def formats():
    """Files of other formats, by the name that an error gives them."""
    import zipfile
    import numpy as np
    table = "a,b\n1,2\n" * 10
    np.savez(folder / "numpy.savez (.npz)", np.arange(8))
    np.save(folder / "numpy.save (.npy)", np.arange(8))
    for path in folder.glob("*.np[yz]"):
        path.rename(folder / path.stem if path.stem.endswith(")") else path)
    for name, member in (("torch.save", "archive/data.pkl"), ("Excel (.xlsx)", "[Content_Types].xml"),
                         ("zip", "readme.txt")):
        with zipfile.ZipFile(folder / name, "w") as archive:
            archive.writestr(member, bytes(100))
    (folder / "pickle").write_bytes(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03." + bytes(99))
    for name, encoding in (("text in UTF-16", "utf-16-le"), ("text in UTF-16 (Excel", "utf-16"), ("text in UTF-32", "utf-32")):
        (folder / name).write_bytes(table.encode(encoding))
    (folder / "HDF5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(99))
    (folder / "NetCDF").write_bytes(b"CDF\x01" + bytes(99))
    (folder / "MATLAB").write_bytes(b"MATLAB 5.0 MAT-file, Platform: GLNXA64".ljust(124) + b"\0\1IM" + bytes(99))
    (folder / "Parquet").write_bytes(b"PAR1\x15" + bytes(99))
    (folder / "Git LFS").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")


def pillow():
    """What Pillow makes of the JPEG images in the folder."""
    import numpy as np
    from PIL import Image
    for path in folder.glob("*.jpg"):
        array = np.asarray(Image.open(path).convert("RGB")).transpose(2, 0, 1)
        np.save(f"{path}.npy", np.ascontiguousarray(array))


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


def noisy(count):
    """Bytes that gzip makes half as long."""
    import numpy as np
    return (np.random.default_rng(1).integers(0, 16, count, dtype=np.uint8)).tobytes()


def idx(kind, count):
    return bytes((0, 0, kind, 1)) + count.to_bytes(4, "big")


def add_to(tar, name, data):
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))


def sizes(multiples=(1, 2)):
    """Files, and the same with twice the content."""
    import gzip
    import numpy as np
    from PIL import Image
    for k in multiples:
        count = k * (2 << 20)
        (folder / f"pixels.{k}.idx.gz").write_bytes(gzip.compress(idx(8, count) + noisy(count), 1))
        (folder / f"numbers.{k}.idx").write_bytes(idx(13, count // 4) + noisy(count))
        (folder / f"{k}.cifar").write_bytes(noisy(3073 * 500 * k).translate(bytes(i % 10 for i in range(256))))
        (folder / f"rows.{k}.csv").write_text("a,b,c\n" + "1.25,-7,31\n" * (k * 20_000))
        (folder / f"short.{k}.csv").write_text("a\n" + "1\n" * (k * 125_000))
        (folder / f"columns.{k}.csv").write_text(
            ",".join(f"c{i}" for i in range(k * 5000)) + "\n" + ",".join(["1"] * (k * 5000)))
        (folder / f"quotes.{k}.csv").write_text('a\n"' + '""' * (k << 18) + '"\n')
        (folder / f"{k}.txt").write_text("the cat sat on a mat of a hat\n" * (k * 15_000))
        np.save(folder / f"bool.{k}.npy", np.frombuffer(noisy(count), np.uint8) > 7)
        image = Image.fromarray(np.resize(pixels(64, 2048), (256 * k, 2048, 3)))
        image.save(folder / f"{k}.png", compress_level=1)
        image.save(folder / f"{k}.jpg")
        image.save(folder / f"progressive.{k}.jpg", progressive=True)
        for name, form in (("samples", "{}.bin"), ("extensions", "a.{}")):
            with tarfile.open(folder / f"{name}.{k}.tar", "w") as tar:
                for i in range(k * 1250):
                    add_to(tar, form.format(i), b"12345678")


def large():
    sizes((8,))


def bombs():
    import gzip
    import struct
    import zlib
    from PIL import Image
    zeros = gzip.compress(bytes(64 << 20), 9)
    (folder / "zeros.gz").write_bytes(zeros * 4)
    (folder / "zeros.idx.gz").write_bytes(gzip.compress(idx(8, 64 << 22)) + zeros * 4)
    (folder / "five.idx.gz").write_bytes(gzip.compress(idx(8, 5) + noisy(40 << 20), 1))
    packed = io.BytesIO()
    Image.new("L", (512, 512), 128).save(packed, "JPEG", progressive=True)
    image = packed.getvalue()
    last = image.rfind(b"\xff\xda")
    (folder / "scans.jpg").write_bytes(image[:-2] + image[last:-2] * 100 + image[-2:])

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    texts = [chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(7_000_000), 9))] * 20
    (folder / "texts.png").write_bytes(b"".join((
        b"\x89PNG\r\n\x1a\n", chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0)), *texts,
        chunk(b"IDAT", zlib.compress(bytes(9) * 8)), chunk(b"IEND", b""))))


def safetensors():
    import numpy as np
    from safetensors.numpy import save_file
    save_file({"x": np.arange(12, dtype=np.float32).reshape(4, 3),
               "y": np.arange(4, dtype=np.int64), "short": np.arange(3, dtype=np.int64),
               "scalar": np.array(1, np.float32)}, folder / "a.safetensors")


globals()[kind]()
