"""scripts/structure names each kind of fault, planted in a small tree of libraries: structure.py ROOT"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(ROOT / "scripts"))
from include_graph import MOST_STEPS, MOST_STEPS_OF  # noqa: E402

# base <- data <- step <- trainer; the last three are included as <lockstep/runtime/NAME.h>.
TREE = {
    "lockstep.h": "#include <lockstep/base/work.h>\n#include <lockstep/runtime/trainer.h>\n",
    "base/CMakeLists.txt": "lockstep_add_library(base\n  SOURCES work.cpp\n  PUBLIC_HEADERS work.h)\n",
    "base/work.h": "namespace lockstep {\nclass Work {\n};\n}  // namespace lockstep\n",
    "base/work.cpp": "#include <lockstep/base/host/engine.h>\n#include <lockstep/base/work.h>\n",
    "base/host/engine.h": "#include <lockstep/base/work.h>\n"
                          "namespace lockstep::detail {\nclass Engine;\nclass Engine {\n};\n}  // namespace lockstep::detail\n",
    "base/host/engine.cpp": "#include <lockstep/base/host/engine.h>\n#include <lockstep/base/impl/plain.h>\n"
                            "namespace lockstep::detail {\nnamespace {\nstruct Slice {\n};\n}\n}\n",
    "base/impl/plain.h": "#include <lockstep/base/work.h>\n",
    "base/mpi/pieces.h": "#include <lockstep/base/host/engine.h>\n// #include <lockstep/base/no_such.h>\n",
    "base/mpi/pieces.cpp": "#include <lockstep/base/mpi/pieces.h>\n"
                           "namespace lockstep::detail {\nnamespace {\nstruct Slice {\n};\n}\n}\n",
    "runtime/data/CMakeLists.txt":
        "lockstep_add_library(data\n  PUBLIC_HEADERS loader.h\n  INCLUDE_AS runtime\n  DEPENDS base)\n",
    "runtime/data/loader.h": "#include <lockstep/base/work.h>\n",
    "runtime/data/impl/places.h": "#include <lockstep/runtime/loader.h>\n",
    "runtime/step/CMakeLists.txt":
        "lockstep_add_library(step\n  PUBLIC_HEADERS loss.h\n  INCLUDE_AS runtime\n  DEPENDS data)\n",
    "runtime/step/loss.h": "#include <lockstep/runtime/data/impl/places.h>\n",
    "runtime/step/impl/step.h": "#include <lockstep/base/impl/plain.h>\n#include <lockstep/runtime/loss.h>\n",
    "runtime/step/sums/sum.h": "namespace lockstep::detail {\nclass Sum {\n};\n}\n",
    "runtime/trainer/CMakeLists.txt":
        "lockstep_add_library(trainer\n  PUBLIC_HEADERS trainer.h\n  INCLUDE_AS runtime\n  DEPENDS step)\n",
    "runtime/trainer/trainer.h": "#include <lockstep/runtime/loss.h>\n",
    "runtime/trainer/trainer.cpp": "#include <lockstep/runtime/step/impl/step.h>\n#include <lockstep/runtime/trainer.h>\n",
    "launcher/main.cpp": '#include "cause/cause.h"\n#include <lockstep/base/impl/plain.h>\n',
    "launcher/cause/cause.h": '#include <lockstep/base/work.h>\n',
    "launcher/job/job.h": '#include "cause/cause.h"\n',
    "launcher/job/job.cpp": '#include "job.h"\n',
    "examples/hello.cpp": "#include <lockstep/lockstep.h>\n",
    "tests/seeds.h": "",
    "tests/base/work_test.cpp": '#include "seeds.h"\n#include <lockstep/base/host/engine.h>\n',
    "tests/step/loss_test.cpp": '#include "seeds.h"\n#include <lockstep/runtime/step/sums/sum.h>\n',
}


GUARD = 'static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs");\n'  # each header of impl/ begins with it


def included(path):
    return f"#include <lockstep/{path}>\n"


# What is planted (text that is added to a file, or a whole new file), and the break that must be named.
FAULTS = {
    "a header that is not there": (
        {"base/work.h": included("base/no_such.h")},
        "base/work.h: <lockstep/base/no_such.h> is no header of a library"),
    "a public header by the path of its folder": (
        {"runtime/trainer/trainer.cpp": included("runtime/step/loss.h")},
        "<lockstep/runtime/step/loss.h> is no header of a library; it is <lockstep/runtime/loss.h>"),
    "a lost header in a program": (
        {"launcher/main.cpp": included("base/old.h")}, "launcher/main.cpp: <lockstep/base/old.h> is no header of a library"),
    "two public headers of one path": (
        {"runtime/data/CMakeLists.txt": "", "runtime/data/loss.h": "", "runtime/trainer/trainer.cpp": ""},
        "<lockstep/runtime/loss.h> is more than one header: runtime/data/loss.h, runtime/step/loss.h"),
    "a quoted include of a library": (
        {"base/work.cpp": '#include "host/engine.h"\n#include "elsewhere.h"\n'},
        '"elsewhere.h": a library includes <lockstep/...>'),
    "two headers in a loop": (
        {"base/host/engine.h": included("base/host/queue.h"), "base/host/queue.h": included("base/host/engine.h")},
        "base: 2 units include each other in a loop: base/host/engine.h, base/host/queue.h"),
    "a loop through a source": (
        {"base/host/engine.cpp": included("base/host/queue.h"), "base/host/queue.h": included("base/host/engine.h")},
        "base: 2 units include each other in a loop: base/host/engine.h, base/host/queue.h"),
    "a loop through a source in another folder than its header": (
        {"base/host/queue.cpp": included("base/impl/queue.h") + included("base/host/engine.h"),
         "base/impl/queue.h": "", "base/host/engine.h": included("base/impl/queue.h")},
        "base: 2 units include each other in a loop: base/host/engine.h, base/impl/queue.h"),
    "a loop of five through the source of a public header": (
        {"base/work.cpp": included("base/host/a.h") + included("base/host/b.h"), "base/host/a.h": included("base/work.h"),
         "base/host/b.h": included("base/work.h")},
        "base: 5 units include each other in a loop through sources of public headers: base/host/a.h, base/host/b.h, "
        "base/host/engine.h, base/impl/plain.h, base/work.h"),
    "folders of a library that include each other": (
        {"base/host/engine.cpp": included("base/mpi/size.h"), "base/mpi/size.h": ""},
        "base/host and base/mpi include each other, 1 and 1 times: base/host/engine.cpp includes base/mpi/size.h; "
        "base/mpi/pieces.h includes base/host/engine.h"),
    "folders of the launcher that include each other": (
        {"launcher/cause/cause.cpp": '#include "cause.h"\n#include "job/job.h"\n'},
        "launcher/cause and launcher/job include each other"),
    "a loop in the launcher": (
        {"launcher/cause/cause.cpp": '#include "cause.h"\n#include "cause/rule.h"\n',
         "launcher/cause/rule.h": '#include "cause.h"\n'},
        "launcher: 2 units include each other in a loop: launcher/cause/cause.h, launcher/cause/rule.h"),
    "headers of tests in a loop": (
        {"tests/base/a.h": '#include "base/b.h"\n', "tests/base/b.h": '#include "a.h"\n'},
        "tests: 2 units include each other in a loop: tests/base/a.h, tests/base/b.h"),
    "folders of tests that include each other": (
        {"tests/base/a.h": '#include "step/b.h"\n', "tests/step/b.h": "", "tests/step/c.h": '#include "base/d.h"\n',
         "tests/base/d.h": ""},
        "tests/base and tests/step include each other"),
    "an include against the arrows": (
        {"runtime/data/loader.cpp": included("runtime/loss.h")},
        "runtime/data/loader.cpp: includes runtime/step/loss.h, but data does not DEPEND on step"),
    "libraries in a loop": (
        {"runtime/data/loader.cpp": included("runtime/loss.h")},
        "libraries include each other in a loop: runtime/data, runtime/step"),
    "a loop of DEPENDS": (
        {"base/CMakeLists.txt": "lockstep_add_library(base\n  PUBLIC_HEADERS work.h\n  DEPENDS trainer)\n"},
        "base/CMakeLists.txt: base DEPENDS on itself"),
    "a header of another library's own": (
        {"runtime/trainer/trainer.cpp": included("runtime/step/sums/sum.h")},
        "runtime/trainer/trainer.cpp: includes runtime/step/sums/sum.h, which is neither public nor in impl/"),
    "an own header in the launcher": (
        {"launcher/main.cpp": included("base/host/engine.h")},
        "launcher/main.cpp: includes base/host/engine.h, which is neither public nor in impl/"),
    "a header of impl/ in an example": (
        {"examples/hello.cpp": included("base/impl/plain.h")},
        "examples/hello.cpp: includes base/impl/plain.h, which is neither public"),
    "a header of impl/ that programs can include": (
        {"base/impl/open.h": "", "runtime/step/loss.h": included("base/impl/open.h")},
        "base/impl/open.h: a header in impl/ without static_assert(LOCKSTEP_OWN_LIBRARY, ...)"),
    "a header of impl/ that only its library includes": (
        {"runtime/step/loss.cpp": included("runtime/step/impl/alone.h"), "runtime/step/impl/alone.h": ""},
        "runtime/step/impl/alone.h: in impl/, but nothing outside runtime/step reaches it"),
    "an own header in a header of impl/": (
        {"runtime/step/impl/step.h": included("runtime/step/sums/sum.h")},
        "runtime/step/impl/step.h: a header of impl/ that includes runtime/step/sums/sum.h"),
    "an own header in a public header": (
        {"runtime/step/loss.h": included("runtime/step/sums/sum.h")},
        "runtime/step/loss.h: a public header that includes runtime/step/sums/sum.h"),
    "a type in two headers": (
        {"base/host/engine.h": "namespace lockstep::detail {\nstruct Sum {\n};\n}\n"},
        "lockstep::detail::Sum: defined in base/host/engine.h, runtime/step/sums/sum.h"),
    "a type in a header and a source, in nested namespaces": (
        {"base/mpi/pieces.cpp": "namespace lockstep {\nnamespace detail {\nenum class Sum { a };\n}\n}\n"},
        "lockstep::detail::Sum: defined in base/mpi/pieces.cpp, runtime/step/sums/sum.h"),
    "a type in two sources": (
        {"base/work.cpp": "namespace other {\nstruct A final : B {\n};\n}\n",
         "base/host/engine.cpp": "namespace other {\nclass A {\n};\n}\n"},
        "other::A: defined in base/host/engine.cpp, base/work.cpp"),
    "an alias in two headers": (
        {"base/host/engine.h": "namespace lockstep::mpi {\nusing A = int;\n}\n",
         "base/mpi/pieces.h": "namespace lockstep::mpi {\nusing A = float;\n}\n"},
        "lockstep::mpi::A: defined in base/host/engine.h, base/mpi/pieces.h"),
    "a type of C in two headers": (
        {"base/work.h": 'extern "C" {\nstruct lockstep_place {\n};\n}\n',
         "runtime/step/sums/sum.h": "struct lockstep_place {\n};\n"},
        "::lockstep_place: defined in base/work.h, runtime/step/sums/sum.h"),
    "a nested type in two sources": (
        {"base/work.cpp": "namespace lockstep {\nstruct Work::Impl {\n};\n}\n",
         "base/host/engine.cpp": "namespace lockstep {\nstruct Work::Impl {\n};\n}\n"},
        "lockstep::Work::Impl: defined in base/host/engine.cpp, base/work.cpp"),
    "a public header that is not named": (
        {"base/more.h": ""}, "base/more.h: a public header that PUBLIC_HEADERS does not name"),
    "a type of users in an own header": (
        {"base/host/engine.h": "namespace lockstep {\nclass Hidden {\n};\n}\n"},
        "base/host/engine.h: a private header that declares Hidden in namespace lockstep"),
    "a class in two sources": (
        {"base/work.cpp": "namespace lockstep {\nvoid Work::run() {\n}\n}\n",
         "base/host/engine.cpp": "namespace lockstep {\nvoid Work::stop() {\n}\n}\n"},
        "lockstep::Work: its member functions are in"),
}

# These are no breaks.
FINE = {
    "a loop through a source of tests": {
        "tests/base/a.h": "", "tests/base/a.cpp": '#include "a.h"\n#include "b.h"\n', "tests/base/b.h": '#include "a.h"\n'},
    "a public header by the path of its folder, in its library and in tests": {
        "runtime/step/impl/step.h": included("runtime/step/loss.h"), "tests/step/loss_test.cpp": included("runtime/step/loss.h")},
    "a loop of four through the source of a public header": {
        "base/work.cpp": included("base/host/a.h"), "base/host/a.h": included("base/work.h")},
    "a declaration beside the definition": {"base/mpi/pieces.h": "namespace lockstep::detail {\nclass Engine;\n}\n"},
    "types of one name in two namespaces": {"base/mpi/pieces.h": "namespace lockstep::mpi {\nclass Engine {\n};\n}\n"},
    "aliases of two sources": {"base/work.cpp": "namespace lockstep {\nusing A = int;\n}\n",
                               "base/host/engine.cpp": "namespace lockstep {\nusing A = float;\n}\n"},
    "a string that names a type": {"base/work.cpp": 'const char* text = "struct Sum {";\n'},
}
WARNED = {"base/work.cpp": "//\n" * 401}


def make(folder, planted):
    files = dict(TREE)
    for name, text in planted.items():
        files[name] = text if name.endswith("CMakeLists.txt") and text else files.get(name, "") + text
    if "runtime/data/loss.h" in planted:
        files["runtime/data/CMakeLists.txt"] = TREE["runtime/data/CMakeLists.txt"].replace("loader.h", "loader.h loss.h")
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((GUARD if "/impl/" in name and path.name != "open.h" else "") + text, encoding="utf-8")
    (folder / "scripts").mkdir(exist_ok=True)
    for script in ("structure", "include_graph.py", "sources.py"):
        shutil.copy(ROOT / "scripts" / script, folder / "scripts" / script)


def said(planted, *arguments):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name).resolve()
        make(folder, planted)
        if "--hubs" in arguments:
            unity = folder / "build/base/Unity/unity_0_cxx.cxx"
            unity.parent.mkdir(parents=True)
            unity.write_text("".join(f'#include "{folder}/base/{name}.cpp"\n' for name in ("work", "host/engine")),
                             encoding="utf-8")
            sources = [unity, unity, *(folder / name for name in ("runtime/trainer/trainer.cpp", "tests/step/loss_test.cpp"))]
            (folder / "build/compile_commands.json").write_text(
                json.dumps([{"directory": name, "file": str(source)} for source in sources]), encoding="utf-8")
        ended = subprocess.run([sys.executable, "-B", str(folder / "scripts/structure"), *arguments], check=False,
                               text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return ended.returncode, ended.stdout


wrong = []
for what, planted in {"nothing planted": {}, **FINE}.items():
    code, text = said(planted, "--quick")
    if code != 0 or "4 libraries keep the rules" not in text:
        wrong.append(f"{what}: {code}\n{text}")
for what, (planted, expected) in FAULTS.items():
    code, text = said(planted, "--quick")
    if code != 1 or not any(expected in line for line in text.splitlines()):
        wrong.append(f"{what}: {code}, no line with: {expected}\n{text}")
code, text = said(WARNED, "--quick")
if code != 0 or "warning: base/work.cpp: 403 lines" not in text:
    wrong.append(f"a long file is a warning: {code}\n{text}")

# work.h: work.cpp and engine.cpp are compiled together, and twice; trainer.cpp includes it by loss.h.
code, text = said({}, "--hubs")
if code != 0 or "    3 steps,    3 of libraries  base/work.h" not in text:
    wrong.append(f"steps of a header: {code}\n{text}")
code, text = said({f"tests/step/{n}_test.cpp": included("base/impl/plain.h") for n in range(MOST_STEPS + 1)}, "--hubs", "--build", "none")
if code != 1 or f"base/impl/plain.h  more than {MOST_STEPS}" not in text:
    wrong.append(f"a header with too many steps: {code}\n{text}")
_, own = MOST_STEPS_OF["trainer.h"]
code, text = said({f"runtime/trainer/{n}.cpp": included("runtime/trainer.h") for n in range(own)}, "--hubs", "--build", "none")
if code != 1 or f"   {own + 2} steps,   {own + 1} of libraries  runtime/trainer/trainer.h  more than {own} of the libraries" not in text:
    wrong.append(f"trainer.h in too many files of the libraries: {code}\n{text}")
sys.exit("\n".join(wrong) or None)
