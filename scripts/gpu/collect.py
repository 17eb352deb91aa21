"""What a pack for GPU machines holds beside its programs (scripts/pack_gpu).

collect.py tests BUILD TREE        puts the programs of `ctest -L gpu` into TREE, and how ctest starts them into TREE/tests.json
collect.py made-from GLIBC TREE    what the pack was made from, into TREE/pack.json
"""

import datetime
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import place

FILTER = "--gtest_filter="
OVER_NCCL = ("runtime", "step", "trainer")  # libraries whose programs of one rank make a Runtime


def properties_of(test):
    return {entry["name"]: entry["value"] for entry in test["properties"]}


def environment_of(test):
    return dict(variable.split("=", 1) for variable in properties_of(test).get("ENVIRONMENT", []))


def left_out(arguments):
    """The patterns of a filter that only leaves tests out; None of another filter."""
    filters = [word[len(FILTER):] for word in arguments if word.startswith(FILTER)]
    if any(text and not text.startswith("-") for text in filters):
        return None
    return [pattern for text in filters for pattern in text[1:].split(":") if pattern]


def start_of(test, build):
    """The index of the program in the command of a test, or None."""
    command = test.get("command") or []
    return next((k for k, word in enumerate(command)
                 if build in pathlib.Path(word).parents and os.access(word, os.X_OK)), None)


def on_one_rank(test, hosts, build):
    """`test` of several ranks over NCCL as a test of one rank, where the same tests run on one rank of the host; else None."""
    host = hosts.get(test["name"].rsplit(".", 1)[0] + ".np1")
    first = host and start_of(host, build)
    patterns = left_out(test["arguments"]), left_out(host["command"][first + 1:]) if first is not None else None
    if None in patterns:
        return None
    without = [FILTER + "-" + ":".join(sum(patterns, []))] if any(patterns) else []
    return {**test, "name": test["name"].replace(".nccl", ".nccl.np1"), "ranks": 1, "launched": True,
            "arguments": [word for word in test["arguments"] if not word.startswith(FILTER)] + without,
            "environment": {**test["environment"], "LOCKSTEP_TEST_RANKS": "1"}}


def collect(build, tree):
    listed = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True,
                            text=True).stdout
    every = {test["name"]: test for test in json.loads(listed)["tests"]}
    tests = []
    for test in every.values():
        if "gpu" not in properties_of(test).get("LABELS", []):
            continue
        first, environment = start_of(test, build), environment_of(test)
        if first is None:
            sys.exit(f"pack_gpu: {test['name']} has no program in {build}: build lockstep_gpu_tests")
        program = pathlib.Path("build") / pathlib.Path(test["command"][first]).relative_to(build)
        (tree / program.parent).mkdir(parents=True, exist_ok=True)
        shutil.copy(test["command"][first], tree / program)
        ranks = environment.get("LOCKSTEP_TEST_RANKS") or "1"
        tests.append({"name": test["name"], "ranks": int(ranks), "launched": first > 0, "environment": environment,
                      "program": str(program), "arguments": test["command"][first + 1:],
                      "seconds": properties_of(test).get("TIMEOUT", 300)})
    if not tests:
        sys.exit(f"pack_gpu: {build} has no tests of the label gpu")
    alone = [{**test, "name": test["name"] + ".nccl", "environment": {**test["environment"], "LOCKSTEP_TRANSPORT": "nccl"}}
             for test in tests if test["ranks"] == 1 and test["name"].split(".")[0] in OVER_NCCL
             and test["environment"].get("LOCKSTEP_TRANSPORT") != "nccl"]
    fewer = [on_one_rank(test, every, build) for test in tests
             if test["ranks"] > 1 and test["environment"].get("LOCKSTEP_TRANSPORT") == "nccl"]
    return tests + alone + [test for test in fewer if test]


def made_from(glibc):
    """Which sources, when, with what."""
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    git = subprocess.run(["git", "-C", root, "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True,
                         text=True, check=False)
    project = re.search(r"project\(lockstep VERSION (\S+)", (root / "CMakeLists.txt").read_text(encoding="utf-8"))
    return {"lockstep": project.group(1), "commit": git.stdout.strip() or "unknown",
            "packed": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
            "torch": place.torch_version(place.own_torch()), "glibc": glibc}


def main():
    what, source, tree = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    if what == "tests":
        found = collect(pathlib.Path(source).resolve(), tree)
    else:
        found = made_from(source)
    (tree / f"{'tests' if what == 'tests' else 'pack'}.json").write_text(json.dumps(found, indent=1), encoding="ascii")


if __name__ == "__main__":
    main()
