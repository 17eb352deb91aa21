"""Says in the last lines of scripts/test how many tests ran, which failed, which were skipped and why."""

import sys
import xml.etree.ElementTree as ElementTree


def reason(case):
    skipped = case.find("skipped")
    message = skipped.get("message", "") if skipped is not None else ""
    output = (case.findtext("system-out") or "").strip().splitlines()
    said = [line for line in output if line and not line.startswith("[")]
    return said[-1] if said else message or case.get("status")


def main(path):
    cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    by_status = {}
    for case in cases:
        by_status.setdefault(case.get("status"), []).append(case)
    passed = by_status.pop("run", [])
    failed = by_status.pop("fail", [])
    skipped = [case for group in by_status.values() for case in group]
    for case in failed:
        print(f"  failed   {case.get('name')}")
    for case in skipped:
        print(f"  skipped  {case.get('name')}: {reason(case)}")
    seconds = sum(float(case.get("time")) for case in cases)
    print(f"{len(cases)} tests, {seconds:.0f} s of testing")
    print(f"lockstep: {len(passed)} passed, {len(failed)} failed, {len(skipped)} skipped")


main(sys.argv[1])
