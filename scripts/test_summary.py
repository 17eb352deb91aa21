"""Says in the last lines of scripts/test how many tests ran, failed, were skipped and why, and how long the tests of each label
took. What failed tests printed last comes before that, so that it stands at the end of a long log.

  test_summary.py RESULTS-OF-JUNIT BUILD"""

import collections
import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree


def not_run_message(case):
    skipped = case.find("skipped")
    return skipped.get("message", "") if skipped is not None else ""


def is_skipped(case):
    """A test that said so itself; one that could not be started has failed."""
    return case.get("status") == "disabled" or not_run_message(case).startswith("SKIP_")


def reason(case):
    if not is_skipped(case):
        return not_run_message(case) or f"after {float(case.get('time')):.0f} s"
    lines = (case.findtext("system-out") or "").splitlines()
    said = [line for line in lines if line.strip() and not line.startswith("[")]
    return said[0] if said else case.get("status")  # what mpirun adds comes after it


LAST_LINES = 40


def print_output(case):
    lines = (case.findtext("system-out") or "").splitlines()
    print(f"--- {case.get('name')}, its last lines:")
    print("\n".join(lines[-LAST_LINES:]))


def labels_of_tests(build):
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True, text=True)
    return {test["name"]: value["value"] for test in json.loads(shown.stdout)["tests"]
            for value in test.get("properties", []) if value["name"] == "LABELS"}


def print_labels(cases, build):
    """A test with two labels counts for both."""
    labels, tests, seconds = labels_of_tests(build), collections.Counter(), collections.Counter()
    for case in cases:
        for label in labels.get(case.get("name"), []):
            tests[label] += 1
            seconds[label] += float(case.get("time"))
    for label, time in seconds.most_common():
        print(f"  {label:8} {tests[label]:5} tests {time:7.0f} s")


def main(path, build):
    cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    skipped = [case for case in cases if is_skipped(case)]
    failed = [case for case in cases if case.get("status") != "run" and case not in skipped]
    for case in failed:
        print_output(case)
    for word, group in (("skipped", skipped), ("failed", failed)):
        for case in group:
            print(f"  {word:7}  {case.get('name')}: {reason(case)}")
    print_labels(cases, build)
    seconds = sum(float(case.get("time")) for case in cases)
    print(f"{len(cases)} tests, {seconds:.0f} s of testing")
    passed = len(cases) - len(failed) - len(skipped)
    print(f"lockstep: {passed} passed, {len(failed)} failed, {len(skipped)} skipped")


main(*sys.argv[1:])
