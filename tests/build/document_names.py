"""Fails when a document names a test, file, identifier or option that the repository does not have.

  document_names.py ROOT

Looked at are the words in `backticks` outside code blocks, the options in ```sh blocks, members and
names of lockstep in ```cpp blocks, and the last column of the tables in tests/coverage.md, which must
name a test or say why there is none.
"""

import pathlib
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(sys.argv[1]) / "scripts"))

from include_graph import read_graph  # noqa: E402

ROOMS = "collectives amp checkpointing runtime inputs bindings launcher benchmarks precision build examples cluster"
SOURCES = ("*.h", "*.hpp", "*.cpp", "*.cu", "*.py", "*.cmake", "*.json", "*.sh", "*.txt", "*.c", "*.f90")
# Names of other programs and libraries.
FOREIGN = set("""
    opt_level keep_batchnorm_fp32 loss_scale min_loss_scale max_loss_scale num_losses loss_id
    delay_unscale master_params state_dict get_scale convert_syncbn_model SyncBatchNorm
    initial_scale_power scale_loss bfloat16 enabled use_reentrant MPI_Allreduce get_rng_state
    from_pretrained ncclCommWindowRegister SLURM_NTASKS CUDA_HOME MPI_HOME DMPI_HOME PKG_CONFIG_LIBDIR PKG_CONFIG_SYSROOT_DIR CMAKE_PREFIX_PATH xxhsum initialize
    --no-deps --no-index --find-links --tool --error-exitcode
    lr_find scale_batch_size FlopCounterMode
    manylinux_2_35
    snake_case CamelCase member_ ncclGroupJobAbort TORCH_NCCL_ASYNC_ERROR_HANDLING
""".split())
FROM_OTHERS = ("migration.md", "from-ddp.md", "from-accelerate.md")

root = pathlib.Path(sys.argv[1])
graph = read_graph()
# Not the build folder, which differs by machine.
folders = [*(room for room in ROOMS.split() if room != "build"), "cmake", "scripts", "tests"]
sources = [root / "CMakeLists.txt", root / "CMakePresets.json", root / "lockstep.h",
           *(root / "scripts").iterdir()]
for folder in folders:
    sources += [path for form in SOURCES for path in (root / folder).rglob(form)]
texts = {path.relative_to(root): path.read_text(encoding="utf-8", errors="replace")
         for path in set(sources)
         if path.is_file() and path.resolve() != pathlib.Path(__file__).resolve()}
everything = "\n".join(texts.values())
words = set(re.findall(r"\w+", everything))
tests = {f"{suite}.{name}" for suite, name in
         re.findall(r"^TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\)", everything, re.M)}
suites = {test.split(".")[0] for test in tests}
entries = {f"{library}.{name}" for library, name in
           re.findall(r"lockstep_add_\w*test\(\s*(\w+)\s+(\w+)", everything)}
made = {re.sub(r"\\\$\\\{\w+\\\}", r"\\w+", re.escape(name)) for name in
        re.findall(r"NAME\s+((?:\w+\.)+[\w.${}]+)", everything)}
entries |= {f"examples.{name}" for name in re.findall(r"example_test\((\w+)", everything)}
for path, text in texts.items():
    if path.parts[0] == "tests":
        entries |= {f"{path.parts[1]}.{suite}"
                    for suite in re.findall(r"^TEST(?:_F|_P)?\(\s*(\w+)", text, re.M)}
wrong = []


def is_test(name):
    return any(test == name or test.startswith(name.rstrip("*…")) for test in tests) \
        if name[-1] in "*…" else name in tests


def is_entry(name):
    stem = name.rstrip("*.")
    return any(entry == stem or entry.startswith(stem if name.endswith("*") else stem + ".")
               or stem.startswith(entry + ".") for entry in entries) or \
        any(re.match(form, stem) or form.startswith(re.escape(stem)) for form in made)


def problem_of(code):
    """What is wrong with the text between two backticks, or None."""
    if re.fullmatch(r"[A-Z]\w+\.\w+[*…]?", code) and code.split(".")[0] in suites:
        return None if is_test(code) else "names a test that is not there"
    if re.fullmatch(r"[NT]\d\d_…", code):
        return None if any(f".{code[:4]}" in test for test in tests) else "names no test"
    if re.fullmatch(r"[\w./-]+\.(?:h|cpp|cu|py|md|sh|cmake|svg|supp|txt)", code):
        found = (root / code).exists() or code.split("/")[0] not in folders and \
            any(f"/{path.as_posix()}".endswith(f"/{code}") for path in texts) or \
            code.startswith("torch/")
        return None if found else "names a file that is not there"
    if re.fullmatch(rf"(?:{ROOMS.replace(' ', '|')})\.[\w.]+\*?", code):
        return None if is_entry(code) else "names a ctest entry that is not there"
    if re.fullmatch(rf"(?:{'|'.join(folders)})/[\w/]*", code):
        there = (root / code).exists()
        return None if there else "names a folder that is not there"
    for word in re.findall(r"\b[A-Za-z]\w*\b", code):
        looks_like_a_name = re.search(r"_|[a-z][A-Z]", word) or re.search(rf"\b{word}\(", code)
        if looks_like_a_name and word not in words and word not in FOREIGN:
            return f"names {word}, which no source has"
    return None


def check(document):
    text = document.read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    if document.name in FROM_OTHERS:  # only the last column of their tables speaks of lockstep
        prose = re.sub(r"^\|.*\|(?=[^|\n]*\|$)", "|", prose, flags=re.M)
    for code in re.findall(r"`([^`\n]+)`", prose):
        problem = problem_of(code)
        if problem:
            wrong.append(f"{document.relative_to(root)}: `{code}` {problem}")
    for block in re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S):
        for option in re.findall(r"(?<=\s)--\w[\w-]*", block):
            if option not in FOREIGN and not re.search(rf"{option}\b", everything):
                wrong.append(f"{document.relative_to(root)}: {option} is in no source")
    for block in re.findall(r"^```cpp\n(.*?)^```$", text, re.M | re.S):
        for word in re.findall(r"(?:lockstep::|amp::|\.|->)(\w+)", re.sub(r'"[^"]*"|//.*', "", block)):
            if word not in words and not word.isdigit():
                wrong.append(f"{document.relative_to(root)}: {word} in a C++ block is in no source")
    for path in re.findall(r"^#include <lockstep/(.*)>$", text, re.M):
        if not any(header.is_public for header in graph.paths.get(path, [])):
            wrong.append(f"{document.relative_to(root)}: includes {path}, which is not there")


def check_coverage(document):
    rows = re.findall(r"^\| (?!-).*\|$", document.read_text(encoding="utf-8"), re.M)
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]
    rows = [row for row in rows if row[-1] != "held by"]
    for row in rows:
        named = re.findall(r"`([A-Za-z][\w.]*)`", row[-1])
        if not any(is_test(name) or is_entry(name) for name in named) and \
                not row[-1].startswith("not here: "):
            wrong.append(f"{document.relative_to(root)}: '{row[0]}' names no test and no reason")
    return len(rows)


documents = [*root.glob("*.md"), *(path for folder in ("docs", "tests", "benchmarks", "template")
                                    for path in root.glob(f"{folder}/**/*.md"))]
for document in documents:
    check(document)
rows = check_coverage(root / "tests/coverage.md")
print("\n".join(sorted(wrong)) or
      f"{len(documents)} documents name what is there; {rows} rows of coverage have a test or a reason")
sys.exit(bool(wrong) or not rows)
