"""Says in the last lines of scripts/test how many tests ran, failed, were skipped and why. What failed tests printed last comes
before that, so that it stands at the end of a long log."""

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


def main(path):
    cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    skipped = [case for case in cases if is_skipped(case)]
    failed = [case for case in cases if case.get("status") != "run" and case not in skipped]
    for case in failed:
        print_output(case)
    for word, group in (("skipped", skipped), ("failed", failed)):
        for case in group:
            print(f"  {word:7}  {case.get('name')}: {reason(case)}")
    seconds = sum(float(case.get("time")) for case in cases)
    print(f"{len(cases)} tests, {seconds:.0f} s of testing")
    passed = len(cases) - len(failed) - len(skipped)
    print(f"lockstep: {passed} passed, {len(failed)} failed, {len(skipped)} skipped")


main(sys.argv[1])
