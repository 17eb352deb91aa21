"""Reads PTX: functions with their instructions, parameters and labels, and the sizes of what they declare."""

import re

BITS = {"pred": 1, "b8": 8, "u8": 8, "s8": 8, "b16": 16, "u16": 16, "s16": 16, "f16": 16, "b32": 32, "u32": 32,
        "s32": 32, "f32": 32, "b64": 64, "u64": 64, "s64": 64, "f64": 64}
DECLARED = re.compile(r"\.(?:align\s+(\d+)\s+)?\.?(\w+)\s+([\w$%]+)(?:\[(\d+)\])?")
FUNCTION = re.compile(r"^(?:\.visible |\.weak )?\.(?P<kind>entry|func)\s*(?:\((?P<result>[^)]*)\)\s*)?(?P<name>[\w$]+)\s*"
                      r"(?:\((?P<parameters>[^)]*)\))?(?P<rest>[^{;]*)(?P<end>[{;])", re.M)
CONSTANTS = re.compile(r"^\.(?:visible )?(?:global|const)\s+\.align\s+\d+\s+\.b8\s+([\w$]+)\[\d+\]\s*=\s*\{([^}]*)\};",
                       re.M)
SHARED = re.compile(r"\.shared\s+\.align\s+(\d+)\s+\.(\w+)\s+([\w$]+)(?:\[(\d+)\])?;")


class Layout:
    """Places of declared variables, one after another."""

    def __init__(self):
        self.at, self.size = {}, 0

    def add(self, name, kind, count, alignment):
        alignment = int(alignment or BITS[kind] // 8)
        begin = -(-self.size // alignment) * alignment
        self.at[name] = begin
        self.size = begin + BITS[kind] // 8 * int(count or 1)


class Instruction:
    """`guard` is a predicate's name or None; `parts` the opcode at its dots; `text` is for messages."""

    def __init__(self, text):
        self.text, self.guard, self.negated = text, None, False
        if text[0] == "@":
            guard, text = text.split(None, 1)
            self.guard, self.negated = guard.lstrip("@!"), guard[1] == "!"
        opcode, _, rest = text.partition(" ")
        self.opcode, self.parts = opcode, opcode.split(".")
        self.operands = list(split(rest, ","))


class Function:
    """A kernel, or a function that kernels call. `registers`: prefix or name of a register -> its type."""

    def __init__(self, name, parameters, body, shared):
        self.name = name
        self.parameters = Layout()
        for declared in split(parameters or "", ","):
            found = re.fullmatch(r"\.param\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)(?:\[(\d+)\])?", declared)
            self.parameters.add(found[3], found[2], found[4], found[1])
        self.instructions, self.labels, self.registers = [], {}, {}
        for statement in statements(body):
            while label := re.match(r"([$\w]+):\s*", statement):
                self.labels[label[1]] = len(self.instructions)
                statement = statement[label.end():]
            if declared := re.match(r"\.reg\s+\.(\w+)\s+(.*)", statement):
                for name in declared[2].split(","):
                    self.registers[re.sub(r"<\d+>", "", name.strip())] = declared[1]
            elif declared := SHARED.match(statement + ";"):
                shared.add(declared[3], declared[2], declared[4], declared[1])
            elif statement and statement[0] != ".":
                self.instructions.append(Instruction(statement))

    def type_of(self, register):
        return self.registers.get(register) or self.registers[register.rstrip("0123456789")]


class Module:
    """The functions of a PTX file by name; `kernels` are the names of its entries."""

    def __init__(self, text):
        text = re.sub(r"//[^\n]*", "", text)
        self.shared, self.functions, self.kernels = Layout(), {}, []
        self.constants = {found[1]: bytes(int(value) for value in found[2].split(","))
                          for found in CONSTANTS.finditer(text)}
        for found in SHARED.finditer(re.sub(r"^\{.*?^\}", "", text, flags=re.M | re.S)):
            self.shared.add(found[3], found[2], found[4], found[1])
        for found in FUNCTION.finditer(text):
            if found["end"] == "{":
                name = found["name"]
                body = text[found.end():closing(text, found.end())]
                self.functions[name] = Function(name, found["parameters"], body, self.shared)
                if found["kind"] == "entry":
                    self.kernels.append(name)


def closing(text, at):
    """The place of the brace that ends what began before `at`."""
    depth = 1
    for found in re.compile(r"[{}]").finditer(text, at):
        depth += 1 if found[0] == "{" else -1
        if depth == 0:
            return found.start()
    raise ValueError("a function without an end")


def split(text, separator):
    """The parts between separators that stand in no bracket."""
    part, depth = "", 0
    for character in text:
        depth += character in "[{("
        depth -= character in "]})"
        if character == separator and depth == 0:
            yield part.strip()
            part = ""
        else:
            part += character
    if part.strip():
        yield part.strip()


def statements(body):
    """Without the braces of scopes: names of registers in two scopes do not differ in their types."""
    statement, vector = "", 0
    for character in body:
        opens_scope = character == "{" and re.fullmatch(r"\s*(?:[$\w]+:\s*)*", statement)
        if opens_scope or character == "}" and not vector and not statement.strip():
            continue
        vector += (character == "{") - (character == "}")
        if character == ";" and not vector:
            yield " ".join(statement.split())
            statement = ""
        else:
            statement += character
