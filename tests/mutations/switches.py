"""Puts several breaks of one source into it at once, each behind a switch, so that the source is compiled once.

A break whose texts are whole statements, conditions or checks can be switched: its new text stands beside the old one and counts
where the environment variable LOCKSTEP_BREAK has its name. Any other one is made by itself.
"""

import re

VARIABLE = "LOCKSTEP_BREAK"
SWITCH = """#ifndef LOCKSTEP_BREAK_
#define LOCKSTEP_BREAK_
#include <cstdlib>
#include <cstring>
inline bool lockstep_break(const char* name) {
  const char* made = std::getenv("LOCKSTEP_BREAK");
  return made != nullptr && std::strcmp(made, name) == 0;
}
#endif
"""
CONDITION = re.compile(r"if \(([^;{]*)\) \{")
DECLARATION = re.compile(r"((?:const )?(?:[\w:]+)(?:<[\w:]+>)? \w+) = ([^{;][^;]*);")
DECLARES = re.compile(r"(const |auto |static |std::\w+<|at::\w+ |[A-Z]\w+ \w+[(;= ]|int64_t |double |bool )")


def is_balanced(text):
    return all(text.count(a) == text.count(b) for a, b in ("()", "{}", "[]"))


def is_statements(text):
    return is_balanced(text) and (not text or text[-1] in ";}") and not DECLARES.match(text)


def switched(entry):
    """What stands in place of the old text; None where it cannot be switched."""
    old, new = entry.old.strip(), entry.new.strip()
    on = f'::lockstep_break("{entry.id}")'
    if entry.is_expression:
        return f"({on} ? ({new}) : ({old}))"
    check = re.match(r"LOCKSTEP_CHECK(?:_CODE)?\(", old)
    if check and new.startswith(check[0] + "true,"):
        rest = new[len(check[0]) + 4:]
        condition = old[len(check[0]):len(old) - len(rest)]
        if old.endswith(rest) and is_balanced(condition):
            return f"{check[0]}{on} || ({condition}){rest}"
        return None
    a, b = CONDITION.fullmatch(old), CONDITION.fullmatch(new)
    if a and b:
        return f"if ({on} ? static_cast<bool>({b[1]}) : static_cast<bool>({a[1]})) {{"
    a, b = DECLARATION.fullmatch(old), DECLARATION.fullmatch(new)
    if a and b and a[1] == b[1] and not old.startswith("return "):
        return f"{a[1]} = {on} ? ({b[2]}) : ({a[2]});"
    if is_statements(old) and is_balanced(new) and (not new or new[-1] in ";}"):
        return f"if ({on}) {{\n{new}\n}} else {{\n{old}\n}}"
    return None


def grouped(breaks):
    """Lists of breaks that one source can have at once; where a list has one only, it needs no switch."""
    groups = []
    for entry in breaks:
        fits = [group for group in groups if switched(entry) and group[0].file == entry.file
                and all(switched(other) and not overlap(entry, other) for other in group)]
        if fits:
            fits[0].append(entry)
        else:
            groups.append([entry])
    return groups


def overlap(entry, other):
    return entry.old in other.old or other.old in entry.old or any(
        entry.old.endswith(other.old[:length]) or other.old.endswith(entry.old[:length])
        for length in range(1, min(len(entry.old), len(other.old))) if length > 8)


def with_breaks(text, group):
    if len(group) == 1:
        return text.replace(group[0].old, group[0].new)
    for entry in group:
        text = text.replace(entry.old.strip(), switched(entry))
    return SWITCH + text
