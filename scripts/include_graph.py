"""Who includes whom in this repository, and which rules of docs/architecture.md that breaks."""

import collections
import functools
import json
import os
import pathlib
import posixpath
import re

from sources import COMPILED, ROOT, Folder, Source, read_libraries

LONGEST_FACADE = 4   # units that may include each other through the source of a public header
MOST_STEPS = 260     # compile steps after a change of a header
MOST_STEPS_OF = {"trainer.h": (110, 12)}  # of them in the libraries
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+(?:<lockstep/(?P<path>[^>]+)>|"(?P<quoted>[^"]+)")', re.M)

# What may include headers that are not public: "impl" those of impl/, "own" all.
PROGRAMS = {"launcher": "impl", "examples": None, "template": None, "tests": "own", "benchmarks": "own"}
LAYERED = ("launcher",)  # its sources, too, include each other in one direction


def may_include_own(source, library):
    """Also a public header by the path of its folder."""
    return source.library is library or source.library is not None and PROGRAMS.get(source.library.name) == "own"


def groups_of_loops(edges):
    """The sets of more than one node that reach each other."""
    reached = {}
    for start in edges:
        seen, stack = set(), [start]
        while stack:
            for following in edges.get(stack.pop(), ()):
                if following not in seen:
                    seen.add(following)
                    stack.append(following)
        reached[start] = seen
    shown = set()
    for start in sorted(edges):
        loop = {node for node in reached[start] if start in reached.get(node, ())}
        if len(loop) > 1 and start not in shown:
            shown |= loop
            yield sorted(loop)


class IncludeGraph:
    """`includes` holds for each source the sources that it includes, `lost` what is not found."""

    def __init__(self, libraries, programs, umbrella):
        self.libraries, self.programs, self.umbrella = libraries, programs, umbrella
        self.sources = [umbrella, *(source for group in [*libraries, *programs] for source in group.sources)]
        self.by_name = {source.name: source for source in self.sources}
        self.paths = collections.defaultdict(list)  # what stands after <lockstep/
        for source in self.sources:
            for path in self.paths_of(source):
                self.paths[path].append(source)
        self.includes, self.lost = {}, []
        for source in self.sources:
            self.includes[source] = {found for match in INCLUDE.finditer(source.uncommented)
                                     if (found := self.find(source, match)) is not None}
        self.headers = collections.defaultdict(list)
        for source in self.sources:
            if source.is_header:
                self.headers[source.library, source.path.stem].append(source)
        self.units = {source: self.unit_of(source) for source in self.sources}

    def paths_of(self, source):
        library = source.library
        if source is self.umbrella:
            return [source.name]
        if library not in self.libraries or not source.is_header:
            return []
        return [f"{library.include_as}/{source.path.name}" if source.is_public else source.name]

    def find(self, source, include):
        if path := include["path"]:
            found = self.paths.get(path, [])
            if len(found) == 1:
                return found[0]
            there = self.by_name.get(path)
            if there and self.paths_of(there) and may_include_own(source, there.library):
                return there
            say = (f"; it is <lockstep/{self.paths_of(there)[0]}>" if there and self.paths_of(there) else
                   f": {', '.join(header.name for header in found)}" if found else "")
            self.lost.append(f"{source.name}: <lockstep/{path}> is "
                             f"{'no header of a library' if not found else 'more than one header'}{say}")
            return None
        for folder in (posixpath.dirname(source.name), source.name.split("/")[0]):
            if found := self.by_name.get(posixpath.normpath(f"{folder}/{include['quoted']}")):
                return found
        if source.library in self.libraries:
            self.lost.append(f'{source.name}: "{include["quoted"]}": a library includes <lockstep/...>')
        return None

    def unit_of(self, source):
        """The header of a class stands for its source, too."""
        if source.is_header:
            return source
        headers = self.headers[source.library, source.path.stem]
        beside = [header for header in headers if header.path.parent == source.path.parent]
        if source.library not in self.libraries:
            return (beside or [source])[0]
        included = [header for header in headers if header in self.includes[source]]
        return (beside or included or headers or [source])[0]

    def uses(self, group):
        """(source, what it includes) within a library or folder of programs."""
        return ((source, found) for source in group.sources
                for found in sorted(self.includes[source], key=lambda each: each.name) if found.library is group)

    def may_loop(self, source):
        """The source of a public header may use what includes that header, in small loops; so may any source of tests."""
        is_layered = source.library in self.libraries or source.library.name in LAYERED
        return not source.is_header and (not is_layered or source.library in self.libraries and self.units[source].is_public)

    def loops(self):
        for group in [*self.libraries, *self.programs]:
            strict, whole = collections.defaultdict(set), collections.defaultdict(set)
            for source, found in self.uses(group):
                unit, other = self.units[source], self.units[found]
                if unit is other:
                    continue
                if group in self.libraries:
                    whole[unit.name].add(other.name)
                if not self.may_loop(source):
                    strict[unit.name].add(other.name)
            for loop in groups_of_loops(strict):
                yield f"{group.name}: {len(loop)} units include each other in a loop: {', '.join(loop)}"
            for loop in groups_of_loops(whole):
                if len(loop) > LONGEST_FACADE:
                    yield (f"{group.name}: {len(loop)} units include each other in a loop through sources of public headers: "
                           f"{', '.join(loop)}")

    def two_way_folders(self):
        for group in [*self.libraries, *self.programs]:
            used = collections.defaultdict(list)
            for source, found in self.uses(group):
                pair = source.path.parent, found.path.parent
                if pair[0] != pair[1] and group.folder not in pair:
                    used[pair].append(f"{source.name} includes {found.name}")
            for (here, there), uses in sorted(used.items()):
                back = used.get((there, here))
                if here < there and back:
                    names = [each.relative_to(ROOT).as_posix() for each in (here, there)]
                    yield (f"{names[0]} and {names[1]} include each other, {len(uses)} and {len(back)} times: {uses[0]}; "
                           f"{back[0]}")

    def visible(self, library):
        seen, stack = set(), [library.target]
        by_target = {each.target: each for each in self.libraries}
        while stack:
            for target in by_target[stack.pop()].depends:
                if target in by_target and target not in seen:
                    seen.add(target)
                    stack.append(target)
        return seen

    def arrows(self):
        between = collections.defaultdict(set)
        for library in self.libraries:
            visible = self.visible(library)
            if library.target in visible:
                yield f"{library.name}/CMakeLists.txt: {library.target} DEPENDS on itself"
            for source in library.sources:
                for found in sorted(self.includes[source], key=lambda each: each.name):
                    if found.library is None or found.library is library:
                        continue
                    between[library.name].add(found.library.name)
                    if found.library.target not in visible:
                        yield (f"{source.name}: includes {found.name}, but {library.target} does not DEPEND on "
                               f"{found.library.target}")
        for loop in groups_of_loops(between):
            yield f"libraries include each other in a loop: {', '.join(loop)}"

    def levels(self):
        """Public headers, those of impl/ for other libraries, and own ones."""
        for source in self.sources:
            may = "own" if source.library is None else PROGRAMS.get(source.library.name, "impl")
            for found in sorted(self.includes[source], key=lambda each: each.name):
                if found.library not in self.libraries or found.is_public:
                    continue
                if source.is_header and (source.is_public or source.is_impl) and source.library in self.libraries \
                        and not found.is_impl:
                    yield (f"{source.name}: a {'public header' if source.is_public else 'header of impl/'} that includes "
                           f"{found.name}, which is the own header of {found.library.name}")
                elif found.library is not source.library and may != "own" and not (found.is_impl and may == "impl"):
                    yield (f"{source.name}: includes {found.name}, which is neither public"
                           f"{' nor in impl/' if may else ''}")

    def needless_impl(self):
        """Headers of impl/ that no other library, no program and no public header reaches."""
        taken = [found for source in self.sources for found in self.includes[source]
                 if source.is_public or source.library is None
                 or found.library is not source.library and PROGRAMS.get(source.library.name) != "own"]
        reached = set()
        while taken:
            header = taken.pop()
            if header not in reached:
                reached.add(header)
                taken += self.includes[header]
        for source in self.sources:
            if source.is_impl and source not in reached:
                yield f"{source.name}: in impl/, but nothing outside {source.library.name} reaches it"

    def breaks(self):
        return [*sorted(set(self.lost)), *self.loops(), *self.two_way_folders(), *self.arrows(), *self.levels(),
                *self.needless_impl()]

    def taken_by_sisters(self):
        """Headers that are not public and that another library includes."""
        return {found for library in self.libraries for source in library.sources for found in self.includes[source]
                if found.library not in (None, library) and not found.is_public}

    @functools.cached_property
    def users(self):
        users = collections.defaultdict(set)
        for source, found in self.includes.items():
            for each in found:
                users[each].add(source)
        return users

    def users_of(self, header):
        """The header itself and all that includes it, also through others."""
        seen, stack = {header}, [header]
        while stack:
            for user in self.users[stack.pop()] - seen:
                seen.add(user)
                stack.append(user)
        return seen

    def steps_of_headers(self, build):
        """For each header of a library: (compile steps that include it, of them in the libraries, header)."""
        steps = [[self.by_name[name] for name in names if name in self.by_name] for _, names in compile_steps(build)]
        if not steps:
            steps = [[source] for source in self.sources if source.path.suffix in COMPILED]
        for header in self.sources:
            if header.library in self.libraries and header.is_header:
                users = self.users_of(header)
                again = [step for step in steps if not users.isdisjoint(step)]
                yield len(again), sum(step[0].library in self.libraries for step in again), header

    def hubs(self, build):
        """(steps, of them in the libraries, header, what is too many), the most steps first."""
        for steps, own, header in sorted(self.steps_of_headers(build), key=lambda each: (-each[0], each[2].name)):
            most, most_own = MOST_STEPS_OF.get(header.path.name, (MOST_STEPS, None))
            over = []
            if steps > most:
                over.append(f"more than {most}")
            if most_own is not None and own > most_own:
                over.append(f"more than {most_own} of the libraries")
            yield steps, own, header, over


def compile_steps(build):
    """(entry of build/compile_commands.json, the names of the sources that it compiles: one, or those of a unity source)"""
    listed = build / "compile_commands.json"
    if not listed.is_file():
        return
    for entry in json.loads(listed.read_text(encoding="utf-8")):
        path = pathlib.Path(entry["directory"], entry["file"])
        paths = [path]
        if path.parent.name == "Unity" and path.is_file():
            paths = re.findall(r'^#include "([^"]+)"', path.read_text(encoding="utf-8"), re.M)
        yield entry, [os.path.relpath(each, ROOT) for each in paths]


def read_graph():
    programs = [Folder(ROOT / name) for name in PROGRAMS if (ROOT / name).is_dir()]
    return IncludeGraph(read_libraries(), programs, Source(ROOT / "lockstep.h", None))
