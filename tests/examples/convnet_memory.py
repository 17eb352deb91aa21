"""Example 05 with and without checkpoints: the same loss, and at most 70 % of the memory.

convnet_memory.py PROGRAM
"""

import json
import pathlib
import subprocess
import sys
import tempfile

MOST = 0.7


def result_of(*arguments):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "result.json"
        subprocess.run([sys.argv[1], "--epochs", "1", "--batch-size", "32", "--out", str(out),
                        *arguments], check=True, stdout=subprocess.DEVNULL)
        return json.loads(out.read_text())


plain, checkpointed = result_of("--plain"), result_of()
peak = "peak activations, MiB"
ratio = checkpointed[peak] / plain[peak]
print(f"{checkpointed[peak]:.1f} of {plain[peak]:.1f} MiB: {ratio:.0%}; losses {plain['loss']}, "
      f"{checkpointed['loss']}")
if checkpointed["loss"] != plain["loss"]:
    sys.exit("the losses differ")
if ratio > MOST:
    sys.exit(f"the peak is {ratio:.0%} of the plain one, more than {MOST:.0%}")
