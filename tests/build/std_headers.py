#!/usr/bin/env python3
"""Looks whether every file gets the standard headers of the names that it uses by its own includes or by those of
lockstep's headers that it includes. What comes only through other headers of the standard library, or through
LibTorch's, is gone with another compiler: <functional> of GCC 14 no longer brings std::find_if.

  std_headers.py REPOSITORY

Exit code 1: each file that lacks a header is one line."""

import os
import pathlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(sys.argv[1]) / "scripts"))

from include_graph import read_graph  # noqa: E402

# What a name needs. Left out are names that every standard library brings in many ways, such as std::string, std::pair
# and std::move.
NAMES = {
    "algorithm": "adjacent_find all_of any_of binary_search clamp copy copy_backward copy_if copy_n count count_if equal "
                 "equal_range fill fill_n find find_end find_first_of find_if find_if_not for_each generate generate_n "
                 "includes inplace_merge is_sorted iter_swap lexicographical_compare lower_bound make_heap max "
                 "max_element merge min min_element minmax minmax_element mismatch move_backward next_permutation "
                 "none_of nth_element partial_sort partition pop_heap prev_permutation push_heap remove remove_if "
                 "replace replace_if reverse rotate search set_difference set_intersection set_union shuffle sort "
                 "sort_heap stable_partition stable_sort swap_ranges transform unique unique_copy upper_bound",
    "array": "array",
    "atomic": "atomic atomic_thread_fence memory_order_acquire memory_order_relaxed memory_order_release",
    "charconv": "from_chars to_chars",
    "chrono": "chrono::",
    "cmath": "abs ceil cos exp fabs floor hypot isfinite isinf isnan log log2 pow round sin sqrt",
    "condition_variable": "condition_variable",
    "cstdlib": "abort atoi exit getenv strtod strtol strtoll strtoull",
    "cstring": "memchr memcmp memcpy memmove memset strchr strcmp strerror strlen strncmp strstr",
    "deque": "deque",
    "filesystem": "filesystem::",
    "fstream": "fstream ifstream ofstream",
    "functional": "function greater less plus ref cref not_fn invoke",
    "future": "async future promise",
    "iostream": "cerr cin cout",
    "iterator": "back_inserter distance istreambuf_iterator next prev",
    "limits": "numeric_limits",
    "list": "list",
    "map": "map multimap",
    "memory": "enable_shared_from_this make_shared make_unique shared_ptr unique_ptr weak_ptr",
    "mutex": "call_once lock_guard mutex once_flag recursive_mutex scoped_lock unique_lock",
    "numeric": "accumulate gcd inner_product iota lcm partial_sum reduce",
    "optional": "nullopt optional",
    "random": "bernoulli_distribution mt19937 mt19937_64 normal_distribution random_device uniform_int_distribution "
              "uniform_real_distribution",
    "regex": "regex regex_match regex_replace regex_search smatch",
    "set": "multiset set",
    "sstream": "istringstream ostringstream stringstream",
    "stdexcept": "invalid_argument logic_error out_of_range runtime_error",
    "string_view": "string_view",
    "thread": "this_thread:: thread",
    "tuple": "make_tuple tie tuple",
    "typeindex": "type_index",
    "unordered_map": "unordered_map unordered_multimap",
    "unordered_set": "unordered_set",
    "variant": "get_if holds_alternative monostate variant visit",
}
# A name that another header brings too, for other arguments: std::remove(path) is of <cstdio>.
ALSO = {"abs": "cstdlib", "copy": "filesystem", "remove": "cstdio"}
OWNER = {name: header for header, names in NAMES.items() for name in names.split()}

NOT_CODE = re.compile(r"""//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)'(?:\\.|[^'\\\n])+'""", re.S)
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.M)
USE = re.compile(r"\bstd::((?:chrono|filesystem|this_thread)::|\w+)")


class Sources:
    """Files and their texts; `lacking` says what each needs and does not get."""

    def __init__(self, root, texts, linked):
        """`linked`: the files that <lockstep/PATH> includes under another path than their own."""
        self.root, self.texts, self.linked = root, texts, linked
        self.by_name = {}
        for path in texts:
            self.by_name.setdefault(path.name, []).append(path)

    def own(self, path, included):
        """lockstep's file that is meant, or None."""
        if included.startswith("lockstep/"):
            name = included.removeprefix("lockstep/")
            found = self.linked.get(name, self.root / name)
            return found if found in self.texts else None
        beside = pathlib.Path(os.path.normpath(path.parent / included))
        if beside in self.texts:
            return beside
        others = [other for other in self.by_name.get(pathlib.PurePath(included).name, [])
                  if other.as_posix().endswith(f"/{included}")]
        return others[0] if others else None

    def headers_of(self, path):
        """The foreign headers that `path` includes, or a file of lockstep that it includes does."""
        seen, waiting, foreign = set(), [path], set()
        while waiting:
            file = waiting.pop()
            if file in seen:
                continue
            seen.add(file)
            for included in INCLUDE.findall(self.texts[file]):
                own = self.own(file, included)
                waiting.append(own) if own else foreign.add(included)
        return foreign

    def lacking(self, path):
        if path.name.endswith("-inl.h"):  # included inside a namespace: those who include it include what it needs
            return
        inlined = [own for own in (self.own(path, included) for included in INCLUDE.findall(self.texts[path]))
                   if own and own.name.endswith("-inl.h")]
        code = NOT_CODE.sub("", "\n".join(self.texts[file] for file in [path, *inlined]))
        needed = {name: OWNER[name] for name in USE.findall(code) if name in OWNER}
        there = self.headers_of(path) if needed else set()
        for name, header in sorted(needed.items()):
            if header not in there and ALSO.get(name) not in there:
                yield f"{path.relative_to(self.root)}: uses std::{name} and includes no <{header}>"


def read_repository(root):
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "-co", "--exclude-standard", "*.h", "*.cpp", "*.cu",
                             "*.cuh"], capture_output=True, text=True, check=True).stdout.split("\0")
    paths = [root / name for name in listed if name and (root / name).exists()]
    linked = {path: found[0].path for path, found in read_graph().paths.items()}
    return Sources(root, {path: path.read_text(encoding="utf-8") for path in paths}, linked)


def check_itself():
    """What it must find and what it must leave, in files that are not there."""
    root = pathlib.Path("/r")
    texts = {
        "a/by_luck.cpp": "#include <functional>\nauto x = std::find_if(a, b, c);\n",
        "a/own.cpp": "#include <algorithm>\nauto x = std::find_if(a, b, c);\n",
        "a/by_header.cpp": '#include <lockstep/a/header.h>\n#include "other.h"\nauto x = std::sort(a, b);\n',
        "a/by_link.cpp": "#include <lockstep/a/linked.h>\nauto x = std::sort(a, b);\n",
        "a/one/linked.h": "#include <algorithm>\n",
        "a/header.h": '#include "sub/inner.h"\n',
        "a/sub/inner.h": "#include <algorithm>\n",
        "a/other.h": "",
        "a/foreign.cpp": "#include <torch/algorithm>\nauto x = std::max(1, 2);\n",
        "a/said.cpp": '// std::sort(a, b)\nauto x = "std::sort"; /* std::max */\n',
        "a/rows-inl.h": "auto x = std::sqrt(y);\n",
        "a/rows.cpp": '#include "rows-inl.h"\n',
        "a/file.cpp": "#include <cstdio>\nvoid f() { std::remove(path); }\n",
        "a/clock.cpp": "std::chrono::seconds x(1); std::this_thread::yield();\n",
        "a/commented.cpp": "// #include <vector>\n//\n#include <map>\nstd::map<int, int> x; std::unique_ptr<int> y;\n",
    }
    sources = Sources(root, {root / name: text for name, text in texts.items()},
                      {"a/linked.h": root / "a/one/linked.h"})
    found = [line for path in sources.texts for line in sources.lacking(path)]
    expected = ["a/by_luck.cpp: uses std::find_if and includes no <algorithm>",
                "a/foreign.cpp: uses std::max and includes no <algorithm>",
                "a/rows.cpp: uses std::sqrt and includes no <cmath>",
                "a/clock.cpp: uses std::chrono:: and includes no <chrono>",
                "a/clock.cpp: uses std::this_thread:: and includes no <thread>",
                "a/commented.cpp: uses std::unique_ptr and includes no <memory>"]
    assert sorted(found) == sorted(expected), found


def main():
    check_itself()
    sources = read_repository(pathlib.Path(sys.argv[1]).resolve())
    wrong = [line for path in sources.texts for line in sources.lacking(path)]
    print("\n".join(wrong) or f"{len(sources.texts)} files include what they use")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
