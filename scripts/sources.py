"""The sources of the libraries and programs of this repository, and the types that they define."""

import functools
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMPILED = (".c", ".cpp", ".cu")

LITERAL = r"""R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)'(?:\\.|[^'\\\n])+'"""
COMMENT = re.compile(rf"(?P<comment>//[^\n]*|/\*.*?\*/)|{LITERAL}", re.S)
NOT_CODE = re.compile(rf"{LITERAL}|^[ \t]*\#(?:[^\n]*\\\n)*[^\n]*", re.M | re.S)
TOKEN = re.compile(
    r"\bnamespace\s*(?P<space>[\w:]*)\s*\{"
    r"|\bextern\s*(?P<linkage>\{)"
    r"|(?<![<,]\s)(?<![<,])\b(?:class|struct|union|enum(?:\s+(?:class|struct))?)\s+(?:\[\[[^\]]*\]\]\s*)?(?:[A-Z][A-Z0-9_]+\s+)?"
    r"(?P<type>(?!final\b)\w+(?:::\w+)*)(?:\s+final)?\s*(?=(?P<next>:(?!:)|[{;]))"
    r"|\busing\s+(?P<alias>\w+)\s*="
    r"|(?P<brace>[{}])")
MEMBER = re.compile(r"^(?=\w)(?:[^()=\n]*?[\s*&])?((?:[A-Z]\w*(?:<[^<>()\n]*>)?::)+)(?:~?\w+|operator[^\w\s]+)\(", re.M)


def breaks_of(found):
    return "\n" * found[0].count("\n")


class Source:
    """One file of a library, or of the programs: its `text`, the text without comments, and the `code` without strings and
    preprocessor lines too. Line breaks stay."""

    def __init__(self, path, library):
        self.path = path
        self.name = path.relative_to(ROOT).as_posix()
        self.library = library
        self.is_header = path.suffix in (".h", ".cuh")
        self.is_public = self.is_header and (library is None or path.parent == library.folder)
        self.is_impl = self.is_header and library is not None and self.within().startswith("impl/")

    @functools.cached_property
    def text(self):
        return self.path.read_text(encoding="utf-8")

    @functools.cached_property
    def uncommented(self):
        return COMMENT.sub(lambda found: breaks_of(found) if found["comment"] else found[0], self.text)

    @functools.cached_property
    def code(self):
        return NOT_CODE.sub(breaks_of, self.uncommented)

    def within(self):
        return self.path.relative_to(self.library.folder).as_posix()

    def lines(self):
        return self.text.count("\n")

    def declarations(self):
        """(offset, namespace, name, is a definition) of each type in a namespace; also (offset, namespace, None, False)
        wherever the namespace changes. A namespace without a name belongs to the file. An alias in a source defines none."""
        scopes = []
        for token in TOKEN.finditer(self.code):
            if token["space"] is not None:
                scopes.append(token["space"] or self.name)
            elif token["linkage"]:
                scopes.append("")
            elif token["brace"] == "{":
                scopes.append(None)
            elif token["brace"] == "}":
                scopes and scopes.pop()
            elif None not in scopes:
                yield (token.start(), "::".join(filter(None, scopes)), token["type"] or token["alias"],
                       self.is_header if token["alias"] else self.is_definition(token))
                continue
            if None not in scopes:
                yield token.end(), "::".join(filter(None, scopes)), None, False

    def is_definition(self, token):
        return token["next"] != ";" and re.compile(r"[^{;]*\{").match(self.code, token.end()) is not None

    def classes_with_members(self):
        """The classes, with their namespaces, of which this file defines member functions. A nested class is a class of
        its own."""
        places = [(offset, space) for offset, space, *_ in self.declarations()]
        found = set()
        for member in MEMBER.finditer(self.code):
            space = next((space for offset, space in reversed(places) if offset <= member.start()), "")
            name = re.sub(r"<[^<>]*>|::$", "", member[1])
            found.add(f"{space}::{name}")
        return found

    def functions(self):
        """The text of each function that begins in the first column."""
        return re.split(r"^\}", self.code, flags=re.M)


class Folder:
    """A folder of programs, such as launcher/."""

    def __init__(self, folder):
        self.folder = folder
        self.name = folder.relative_to(ROOT).as_posix()
        self.sources = [Source(path, self) for path in sorted(folder.rglob("*"))
                        if path.suffix in (".h", ".cuh", *COMPILED)]


class Library(Folder):
    """A folder whose CMakeLists.txt calls lockstep_add_library()."""

    def __init__(self, cmake):
        super().__init__(cmake.parent)
        text = re.sub(r"#[^\n]*", "", cmake.read_text(encoding="utf-8"))
        self.target, *arguments = re.search(r"lockstep_add_library\(([^)]*)\)", text)[1].split()
        lists, words = {}, None
        for word in arguments:
            if re.fullmatch(r"[A-Z_]+", word):
                words = lists.setdefault(word, [])
            elif words is not None:
                words.append(word)
        self.named = lists.get("PUBLIC_HEADERS", [])
        self.depends = lists.get("DEPENDS", [])
        self.include_as = lists.get("INCLUDE_AS", [self.name])[0]


def read_libraries():
    files = [*ROOT.glob("*/CMakeLists.txt"), *ROOT.glob("*/*/CMakeLists.txt")]
    return [Library(path) for path in sorted(files)
            if path.relative_to(ROOT).parts[0] not in ("build", "tests")
            and re.search(r"^lockstep_add_library\(", path.read_text(encoding="utf-8"), re.M)]
