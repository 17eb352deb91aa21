"""scripts/matrix without a package index makes no empty table, and says which source of a tree a compiler refuses and which
tests of a system fail: matrix.py ROOT"""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import subprocess
import sys
import tempfile

script = pathlib.Path(sys.argv[1]) / "scripts" / "matrix"
sys.path.insert(0, str(script.parent))
sys.dont_write_bytecode = True
loader = importlib.machinery.SourceFileLoader("matrix", str(script))
matrix = importlib.util.module_from_spec(importlib.util.spec_from_loader("matrix", loader))
loader.exec_module(matrix)


def end_of(*arguments):
    sys.argv = [str(script), *arguments]
    try:
        matrix.main()
    except SystemExit as end:
        return end.code


with tempfile.TemporaryDirectory() as folder:
    texts = {"good": "int x;", "library": "int y;", "bad": "int z"}
    entries = []
    for name, text in texts.items():
        path = pathlib.Path(folder, f"{name}.cpp")
        path.write_text(f"{text}\n", encoding="ascii")
        place = "-isystem /x/torch/include" if name == "library" else ""
        entries.append({"directory": folder, "file": str(path), "command": f"ccache /usr/bin/c++ {place} -o x.o -c {path}"})
    list_of = pathlib.Path(folder, "compile_commands.json")
    list_of.write_text(json.dumps(entries), encoding="ascii")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert end_of("--parse", "--build", folder, "--compiler", "c++") == 1
        list_of.write_text(json.dumps(entries[:2]), encoding="ascii")
        assert end_of("--parse", "--build", folder, "--compiler", "c++") == 0
        assert end_of("--parse", "--build", folder, "--compiler", "c++", "--quick") == 0
        matrix.shutil.which = lambda name: None
        assert end_of("--parse", "--build", folder) == 77
        assert end_of("--system", "trixie", "--folder", folder) == 77
        calls = []

        def run(_, *command, **options):
            calls.append(list(map(str, command)))
            return int("launcher" in command)

        matrix.System.why_not, matrix.System.run = staticmethod(lambda: ""), run
        assert end_of("--system", "trixie", "--folder", folder) == 1
        assert end_of("--system", "trixie", "--folder", folder, "--only", "doctor") == 0
    said = said.getvalue()
    assert "bad.cpp:1:" in said and "good.cpp:1:" not in said and "c++: 2 sources parsed" in said, said
    for word in ("skipped: trixie: ", "trixie: collectives passes", "trixie: launcher fails with code 1", "trixie: doctor passes"):
        assert word in said, said
    assert calls[0][0] == "debootstrap" and ["/lockstep/scripts/test", "--only", "collectives"] in [call[-3:] for call in calls], calls
    assert "c++: 1 sources parsed" in said and "skipped: there is no g++-" in said, said

subprocess.run = lambda command, **_: subprocess.CompletedProcess(command, 1, stdout="torch (2.11.0)")
code = end_of()
assert "PyPI names no version of torch" in str(code), code
