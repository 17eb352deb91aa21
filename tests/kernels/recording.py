"""Reads what kernels_launches recorded: launches with the memory before and after, and the names of their kernels."""

import json
import re
import subprocess


ELEMENTS = ("none", "fp32", "fp16", "bf16")  # amp/cuda/element_pack.h


def short_names(mangled):
    """The kernels' names without namespaces and parameters: compilers mangle nameless namespaces differently."""
    shown = subprocess.run(["c++filt"], input="\n".join(mangled), capture_output=True, text=True, check=True)
    names = []
    for text in shown.stdout.splitlines():
        text = re.sub(r"\((?:\w+::)*Element\)(\d)", lambda found: ELEMENTS[int(found[1])], text)
        text = re.sub(r"\(anonymous namespace\)::|lockstep::amp::(cuda::)?|^void ", "", text).split("(")[0]
        text = text.replace(" >", ">")
        names.append(text.replace("AdamFamilyUpdate<true>", "AdamWUpdate")
                     .replace("AdamFamilyUpdate<false>", "AdamUpdate"))
    return names


class Launch:
    """`case`, `elements`, `kernel` (short name), `blocks`, `threads`, `base`, `arrays`: [(place, bytes, type)],
    `parameters`: bytes, `before` and `after`: bytes."""

    def __init__(self, line, names, file):
        data = json.loads(line)
        self.case, self.elements, self.kernel = data["case"], data["elements"], names[data["kernel"]]
        self.blocks, self.threads = data["blocks"], data["threads"]
        self.base, self.arrays = data["base"], data["arrays"]
        self.parameters = b""
        for alignment, value in data["arguments"]:
            self.parameters += bytes(-len(self.parameters) % alignment) + bytes.fromhex(value)
        self.before = file.read(data["used"])
        self.after = file.read(data["used"])


def launches(program, path):
    """The program's launches in their order, recorded at `path`."""
    subprocess.run([program, path], check=True)
    symbols = subprocess.run(["nm", program], capture_output=True, text=True, check=True).stdout
    places = {name: int(place, 16) for place, _, name in
              (line.split() for line in symbols.splitlines() if len(line.split()) == 3)}
    origin = places["lockstep_recording_origin"]
    names = dict(zip((place - origin for place in places.values()), short_names(list(places))))
    with open(path, "rb") as file:
        while line := file.readline():
            yield Launch(line, names, file)
