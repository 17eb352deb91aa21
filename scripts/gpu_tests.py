"""The tests of a pack for GPU machines (scripts/pack_gpu).

gpu_tests.py collect BUILD TREE         puts the programs of `ctest -L gpu`, and how ctest starts them, into TREE
gpu_tests.py run TREE MPIRUN [REGEX]    runs those whose name has REGEX in it, as ctest would; 0 if none failed
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

SKIPPED = 77  # tests/gpu_tests.h


def environment_of(test):
    found = [entry["value"] for entry in test["properties"] if entry["name"] == "ENVIRONMENT"]
    return dict(variable.split("=", 1) for value in found for variable in value)


def collect(build, tree):
    build, tree = pathlib.Path(build).resolve(), pathlib.Path(tree)
    listed = subprocess.run(["ctest", "--test-dir", build, "-L", "gpu", "--show-only=json-v1"],
                            check=True, capture_output=True, text=True).stdout
    tests = []
    for test in json.loads(listed)["tests"]:
        command = test.get("command")
        place = next((k for k, word in enumerate(command or [])
                      if build in pathlib.Path(word).parents and os.access(word, os.X_OK)), None)
        if place is None:
            sys.exit(f"gpu_tests: {test['name']} has no program in {build}: build lockstep_gpu_tests")
        environment = environment_of(test)
        program = pathlib.Path("build") / pathlib.Path(command[place]).relative_to(build)
        (tree / program.parent).mkdir(parents=True, exist_ok=True)
        shutil.copy(command[place], tree / program)
        tests.append({"name": test["name"], "ranks": int(environment.get("LOCKSTEP_TEST_RANKS") or 1),
                      "environment": environment, "program": str(program), "arguments": command[place + 1:]})
    (tree / "tests.json").write_text(json.dumps(tests, indent=1), encoding="ascii")


def run(tree, mpirun, wanted=""):
    tree = pathlib.Path(tree)
    ends = {}
    for test in json.loads((tree / "tests.json").read_text(encoding="ascii")):
        if not re.search(wanted, test["name"]):
            continue
        start = [] if test["ranks"] == 1 else [
            mpirun, "--oversubscribe", "--bind-to", "none", "-n", str(test["ranks"])]
        print(f"== {test['name']}", flush=True)
        code = subprocess.run([*start, tree / test["program"], *test["arguments"]],
                              env={**os.environ, **test["environment"]}, check=False).returncode
        ends[test["name"]] = {0: "passed", SKIPPED: "skipped"}.get(code, f"FAILED, code {code}")
    print("\n".join(f"{name}: {end}" for name, end in ends.items()))
    return any(end.startswith("FAILED") for end in ends.values()) or not ends


if __name__ == "__main__":
    sys.exit({"collect": collect, "run": run}[sys.argv[1]](*sys.argv[2:]))
