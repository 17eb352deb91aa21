"""The test programs of a build tree: how ctest starts them, which tests they have, what comes of running these."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

SECONDS = 150  # for one run of the tests of one break


def end(process):
    """mpiexec ends its ranks when it is asked to; returns what was printed."""
    for request in (signal.SIGTERM, signal.SIGKILL):
        os.killpg(process.pid, request)
        try:
            return process.communicate(timeout=10)[0]
        except subprocess.TimeoutExpired:
            continue
    return ""


class Programs:
    """How ctest starts the test programs."""

    def __init__(self, build):
        self.build = build
        self.made_break = ""
        self.read()

    def read(self):
        build = self.build
        shown = subprocess.run(["ctest", "--test-dir", str(build), "--show-only=json-v1"],
                               capture_output=True, text=True, check=False)
        if shown.returncode != 0:
            sys.exit(f"{build} is no configured tree: run scripts/test, or give --build DIR")
        self.entries, self.known = {}, {}
        for test in json.loads(shown.stdout)["tests"]:
            command = test.get("command")
            if not command:
                continue
            places = [i for i, word in enumerate(command) if word.startswith(str(build) + "/")]
            if not places:
                continue
            program = pathlib.Path(command[places[0]])
            environment = {}
            for each in test.get("properties", []):
                if each["name"] == "ENVIRONMENT":
                    environment = dict(line.split("=", 1) for line in each["value"])
            start = [word for word in command if not word.startswith("--gtest_filter")]
            self.entries[test["name"]] = (start, environment, program)
            names = [word.split("=", 1)[1] for word in command
                     if word.startswith("--gtest_filter=") and "-" not in word.split("=", 1)[1]]
            if names and len(command) < 6 and test["name"].endswith(names[0]):
                self.entries[program.name] = ([str(program)], environment, program)
                self.known.setdefault(program.name, set()).update(names)

    def target(self, entry):
        """A program of unit tests that was never built is not among the entries."""
        return self.entries[entry][2].name if entry in self.entries else entry

    def tests_of(self, entry):
        """Names of the tests, or None where the program is not there."""
        if entry not in self.entries or not self.entries[entry][2].is_file():
            return None
        if entry not in self.known:
            _, environment, program = self.entries[entry]
            shown = subprocess.run(
                [str(program), "--gtest_list_tests"], capture_output=True, text=True, check=False,
                env={**os.environ, **environment, "LOCKSTEP_TEST_RANKS": "1"}, timeout=120)
            names, suite = set(), ""
            for line in shown.stdout.splitlines():
                if line.startswith("  "):
                    names.add(suite + line.split("#")[0].strip())
                elif line.rstrip().endswith("."):
                    suite = line.strip()
            self.known[entry] = names
        return self.known[entry]

    def run(self, entry, names, seconds=SECONDS):
        """Text, exit code (None where it hung) of these tests."""
        start, environment, _ = self.entries[entry]
        command = [*start, "--gtest_filter=" + ":".join(names), "--gtest_fail_fast=0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", start_new_session=True, cwd=self.build,
                              env={**os.environ, **environment,
                                   "LOCKSTEP_BREAK": self.made_break}) as process:
            try:
                text, _ = process.communicate(timeout=seconds)
                return text, process.returncode
            except subprocess.TimeoutExpired:
                return end(process), None
            except BaseException:
                end(process)
                raise

    def compile(self, entries):
        targets = sorted({self.target(entry) for entry in entries})
        built = subprocess.run(["cmake", "--build", str(self.build), "--target", *targets],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               check=False)
        return built.stdout if built.returncode != 0 else None


def failed_in(text):
    return set(re.findall(r"^\[  FAILED  \] (\w+\.\w+)", text, re.M))


def how_each_fails(programs, entry, names):
    """Together first; what did not fail there is run alone, since a crash ends the others."""
    found = {}
    if len(names) > 1:
        text, _ = programs.run(entry, names)
        found = {name: "fails" for name in names if name in failed_in(text)}
    for name in names:
        if name in found:
            continue
        text, code = programs.run(entry, [name])
        if name in failed_in(text):
            found[name] = "fails"
        elif code is None:
            found[name] = f"hangs; cut after {SECONDS} s"
        elif code != 0:
            found[name] = "ends the program"
        else:
            found[name] = "PASSES"
    return found
