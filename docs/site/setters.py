"""Doxygen's input filter: prints a header with its options as the setters that they are, their defaults in the comments, and
the indented lines of comments as code.

  setters.py HEADER

`TORCH_ARG(int64_t, accumulate) = 1;` in `struct TrainerOptions` becomes
`TrainerOptions& accumulate(const int64_t& value);`."""

import pathlib
import re
import sys

OPTION = re.compile(r"^(?P<indent> *)(?:TORCH_ARG|LOCKSTEP_OPTIMIZER_ARG)\((?P<type>.+), (?P<name>\w+)\)"
                    r"(?:\s*=\s*(?P<default>[^;]*))?;(?: *//+<? *(?P<comment>.*))?$", re.M)
TYPE = re.compile(r"^ *(?:struct|class) (\w+)[^;{]*\{", re.M)

CODE = re.compile(r"(?<=\n)(?P<before> *///(?! *- )[^\n]*\n)(?P<lines> *///   (?!- )[^\n]*\n(?: *///   [^\n]*\n)*)")

text = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")


def default_of(option):
    """What a reader may write for it; nothing where a constructor sets the option."""
    if option["default"]:
        return " ".join(option["default"].split())
    return "" if f"{option['name']}_(" in text else f"{option['type']}()"


def setter(option):
    owner = TYPE.findall(text, 0, option.start())[-1]
    default = default_of(option)
    shown = f"<code>{default}</code>" if "'" in default else f"`{default}`"  # Doxygen takes `' for a quotation mark
    said = [option["comment"], default and f"Default: {shown}."]
    comment = "".join(f"{option['indent']}///\n{option['indent']}/// {line}\n" for line in said if line)
    return f"{comment}{option['indent']}{owner}& {option['name']}(const {option['type']}& value);"


text = OPTION.sub(setter, text)
sys.stdout.write(CODE.sub(lambda found: f"{found['before']}/// @code{{.cpp}}\n{found['lines']}/// @endcode\n", text))
