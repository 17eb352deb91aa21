"""Runs PTX on the CPU: all threads of a grid at once, each register an array with one element a thread.

Threads that stand at the same instruction go on together; those with the lowest instruction run first, so that branches
join again by themselves. At a barrier, or an exchange between lanes, threads wait until all have come that must come.
An access outside an array, an access that is not aligned, an exchange with a lane that is not there, a barrier that some
thread of a block never reaches, and an instruction that is not known are errors that name the instruction.
"""

import numpy as np

from ptx_arithmetic import DTYPES, compared, compute, converted, dtype_of, permuted
from ptx_code import BITS

np.seterr(all="ignore")
WARP = 32


class Fault(Exception):
    """What a device does not allow or leaves undefined."""


class Memory:
    """One block of memory at the address `base`, of which kernels may touch `arrays`: [(place, bytes)]."""

    def __init__(self, data, base, arrays):
        self.bytes = np.zeros(-(-len(data) // 16) * 16, "u1")
        self.bytes[:len(data)] = np.frombuffer(data, "u1")
        self.base = base
        self.allowed = np.zeros(len(self.bytes), bool)
        self.touched = {"ld": np.zeros(len(self.bytes), bool), "st": np.zeros(len(self.bytes), bool)}
        for place, size in arrays:
            self.allowed[place:place + size] = True

    def places(self, addresses, size, text):
        """Of accesses to `size` bytes each."""
        places = (addresses - np.uint64(self.base)).astype("i8")
        if (places < 0).any() or (places + size > len(self.bytes)).any():
            raise Fault(f"an access outside of all memory: {text}")
        if not (self.allowed[places].all() and self.allowed[places + (size - 1)].all()):
            raise Fault(f"an access outside of an array: {text}")
        if (places % size).any():
            raise Fault(f"an access that is not aligned: {text}")
        return places


class Grid:
    """A launch. `parameters` are the bytes of the kernel's parameters; `hits[i]` counts the threads that executed
    instruction i, `traffic[("ld" or "st", bits of one access)]` the bytes of accesses to global memory, and
    `memory.touched["ld" or "st"]` marks their bytes."""

    def __init__(self, module, memory, blocks, threads):
        self.module, self.memory, self.traffic = module, memory, {}
        self.threads, self.blocks = threads, blocks
        count = blocks[0] * blocks[1]
        number = np.arange(count * threads)
        self.block = number // threads
        self.lane = number % threads % WARP
        self.warp = self.block * -(-threads // WARP) + number % threads // WARP
        self.special = {"%tid.x": number % threads, "%ntid.x": np.full_like(number, threads),
                        "%ctaid.x": self.block % blocks[0], "%ctaid.y": self.block // blocks[0],
                        "%nctaid.x": np.full_like(number, blocks[0]), "%nctaid.y": np.full_like(number, blocks[1])}
        pitch = -(-module.shared.size // 16) * 16 + 16
        self.shared = Memory(b"\xcd" * pitch * count, 0, [(k * pitch, module.shared.size) for k in range(count)])
        self.own_shared = self.block.astype("u8") * np.uint64(pitch)
        constants, self.constant_at = b"", {}
        for name, data in module.constants.items():
            self.constant_at[name] = len(constants) + 4096
            constants += data + bytes(-len(data) % 16)
        self.constants = Memory(constants, 4096, [(0, len(constants))])

    def run(self, kernel, parameters):
        function = self.module.functions[kernel]
        space = Memory(parameters, 0, [(0, len(parameters))])
        frame = Frame(self, function, space)
        frame.run(np.ones(len(self.block), bool))
        return frame.hits


class Frame:
    """A function while it runs. `slots` are the places of arguments and results of calls, by name."""

    def __init__(self, grid, function, space, arguments=None):
        self.grid, self.function, self.space = grid, function, space
        self.size = len(grid.block)
        self.registers, self.slots = {}, dict(arguments or {})
        self.compiled = [None] * len(function.instructions)
        self.hits = np.zeros(len(function.instructions), "i8")

    # Operands: views of registers' memory, which never moves, or scalars.

    def register(self, name):
        if name not in self.registers:
            kind = self.function.type_of(name)
            self.registers[name] = np.zeros(self.size, bool if kind == "pred" else f"u{BITS[kind] // 8}")
        return self.registers[name]

    def source(self, name, kind):
        dtype, grid = dtype_of(kind), self.grid
        if name in grid.special:
            return grid.special[name].astype(dtype)
        if name[0] == "%":
            register = self.register(name)
            return register if kind == "pred" else register.view(dtype)[::register.itemsize // dtype.itemsize]
        if name[:2] in ("0f", "0d"):
            return np.array(int(name[2:], 16), f"u{dtype.itemsize}").view(dtype)[()]
        for places in (self.function.parameters.at, grid.module.shared.at, grid.constant_at):
            if name in places:
                return dtype.type(places[name])
        value = int(name.rstrip("U"), 0)
        return dtype.type(value) if kind == "pred" else np.array(value % (1 << BITS[kind]), f"u{dtype.itemsize}").view(dtype)[()]

    def write(self, name, values, kind, active):
        if name == "_":
            return
        register = self.register(name)
        if kind != "pred":
            values = np.asarray(values)
            if values.dtype != dtype_of(kind):
                values = values.astype(dtype_of(kind))
            if values.itemsize < register.itemsize:
                values = values.astype(f"{'i' if kind[0] == 's' else 'u'}{register.itemsize}") \
                    if kind[0] != "f" else values.view(f"u{values.itemsize}")
            values = values.view(register.dtype) if values.itemsize == register.itemsize else values.astype(register.dtype)
        np.copyto(register, values, where=active)

    # Control.

    def run(self, active):
        """Until all threads of `active` have returned."""
        instructions = self.function.instructions
        self.groups, self.waiting = {0: active}, {}
        while self.groups:
            at = min(self.groups)
            active = self.groups.pop(at)
            count = int(active.sum())
            where = True if count == self.size else active
            while at is not None:
                if at == len(instructions):
                    break
                self.hits[at] += count
                step = self.compiled[at] or self.compile(at)
                following = step(active, where)
                if following is None:
                    at += 1
                    if at in self.groups:
                        self.join(at, active)
                        break
                else:
                    for place, threads in following:
                        self.join(place, threads)
                    break
        if any(threads.any() for threads in self.waiting.values()):
            place = next(place for place, threads in self.waiting.items() if threads.any())
            raise Fault(f"not all threads come to: {instructions[place].text}")

    def join(self, at, threads):
        if threads.any():
            self.groups[at] = self.groups[at] | threads if at in self.groups else threads

    def compile(self, at):
        instruction = self.function.instructions[at]
        parts, operands = instruction.parts, instruction.operands
        name = parts[0]
        maker = getattr(self, "make_" + name, self.make_plain)
        try:
            if name in ("bra", "ret", "exit", "bar", "shfl"):
                step = maker(at, instruction, parts, operands)
            else:
                step = guarded(self.make_guard(instruction), maker(at, instruction, parts, operands))
        except (KeyError, ValueError, IndexError) as error:
            raise Fault(f"not understood ({error!r}): {instruction.text}") from error
        self.compiled[at] = step
        return step

    def make_guard(self, instruction):
        if instruction.guard is None:
            return None
        predicate = self.register(instruction.guard)
        return (lambda: ~predicate) if instruction.negated else (lambda: predicate)

    def make_bra(self, at, instruction, parts, operands):
        target, guard = self.function.labels[operands[0]], self.make_guard(instruction)
        if guard is None:
            return lambda active, where: [(target, active)]
        return lambda active, where: [(target, active & guard()), (at + 1, active & ~guard())]

    def make_ret(self, at, instruction, parts, operands):
        guard = self.make_guard(instruction)
        return lambda active, where: [] if guard is None else [(at + 1, active & ~guard())]

    make_exit = make_ret

    def make_bar(self, at, instruction, parts, operands):
        assert instruction.guard is None and parts[1] == "sync"
        return lambda active, where: self.meet(at, active, self.complete_blocks(at, active))

    def make_shfl(self, at, instruction, parts, operands):
        assert parts[1:] == ["sync", "bfly", "b32"] and instruction.guard is None
        target = operands[0].split("|")[0]
        value, step = self.source(operands[1], "u32"), int(operands[2], 0) if operands[2][0] != "%" else None
        steps = self.source(operands[2], "u32") if step is None else step
        members = self.source(operands[4], "u32")

        def exchange(active, where):
            complete = self.complete_lanes(at, active, members)
            if complete.any():
                partner = np.arange(self.size) ^ steps
                mask = np.broadcast_to(members, self.size).astype("i8")
                if not (mask[complete] >> (self.grid.lane ^ steps)[complete] & 1).all():
                    raise Fault(f"an exchange with a lane that the mask does not name: {instruction.text}")
                self.write(target, value[np.minimum(partner, self.size - 1)], "u32", complete)
            return self.meet(at, active, complete)

        return exchange

    def arrived(self, at, active):
        return active | self.waiting[at] if at in self.waiting else active

    def meet(self, at, active, complete):
        self.waiting[at] = self.arrived(at, active) & ~complete
        return [(at + 1, complete)]

    def complete_blocks(self, at, active):
        here = self.arrived(at, active)
        absent = np.bincount(self.grid.block[~here], minlength=self.grid.block[-1] + 1)
        return here & (absent == 0)[self.grid.block]

    def complete_lanes(self, at, active, members):
        here = self.arrived(at, active)
        present = np.bincount(self.grid.warp, weights=here * 2.0**self.grid.lane).astype("i8")[self.grid.warp]
        mask = np.broadcast_to(members, self.size).astype("i8")
        return here & (mask & ~present == 0)

    def make_call(self, at, instruction, parts, operands):
        results, name, arguments = operands
        function = self.grid.module.functions[name]
        given = list(arguments.strip("()").replace(",", " ").split())

        def call(active, where):
            values = {own: self.slots[theirs] for own, theirs in zip(function.parameters.at, given)}
            frame = Frame(self.grid, function, None, values)
            frame.run(active)
            self.slots[results.strip("()")] = frame.slots["func_retval0"]

        return call

    # Memory.

    def make_ld(self, at, instruction, parts, operands):
        kind, names = parts[-1], vector(operands[0])
        place = operands[1].strip("[]")
        if (slot := place.partition("+")[0]) in self.slots or slot.startswith("retval"):
            return lambda active, where: self.write(names[0], self.slots[slot].view(DTYPES[kind]), kind, where)
        dtype, find = np.dtype(DTYPES[kind]), self.make_places(instruction, parts, place, len(names))

        def load(active, where):
            memory, places = find(active, where)
            for k, name in enumerate(names):
                found = memory.bytes.view(dtype)[places // dtype.itemsize + k]
                if where is True:
                    self.write(name, found, kind, True)
                else:
                    values = np.zeros(self.size, dtype)
                    values[active] = found
                    self.write(name, values, kind, active)

        return load

    def make_st(self, at, instruction, parts, operands):
        kind, names = parts[-1], vector(operands[1])
        place = operands[0].strip("[]")
        dtype = np.dtype(DTYPES[kind])
        values = [self.source(name, kind) for name in names]
        if parts[1] == "param":
            def keep(active, where):
                self.slots[place.partition("+")[0]] = np.broadcast_to(values[0], self.size).copy()
            return keep
        find = self.make_places(instruction, parts, place, len(names))

        def store(active, where):
            memory, places = find(active, where)
            for k, value in enumerate(values):
                memory.bytes.view(dtype)[places // dtype.itemsize + k] = value if np.ndim(value) == 0 else value[active]

        return store

    def make_places(self, instruction, parts, place, count):
        """A function that gives the memory of an access and where active threads access it."""
        grid, size = self.grid, BITS[parts[-1]] // 8 * count
        base, _, offset = place.partition("+")
        narrow = base[0] == "%" and self.register(base).itemsize == 4  # of shared memory
        addresses = self.source(base, "u32" if narrow else "u64")
        offset = np.uint64(int(offset or 0) % (1 << 64))
        key = (parts[0], 8 * size)

        def find(active, where):
            own = np.broadcast_to(addresses, self.size)[active].astype("u8") + offset
            if parts[1] == "shared":
                if (own + np.uint64(size) > np.uint64(grid.module.shared.size)).any():
                    raise Fault(f"an access outside of shared memory: {instruction.text}")
                return grid.shared, grid.shared.places(own + grid.own_shared[active], size, instruction.text)
            if parts[1] == "param":
                return self.space, self.space.places(own, size, instruction.text)
            if own[0] < grid.memory.base and grid.constants.bytes.size:
                return grid.constants, grid.constants.places(own, size, instruction.text)
            grid.traffic[key] = grid.traffic.get(key, 0) + size * len(own)
            places = grid.memory.places(own, size, instruction.text)
            for k in range(size):
                grid.memory.touched[parts[0]][places + k] = True
            return grid.memory, places

        return find

    # Values.

    def make_mov(self, at, instruction, parts, operands):
        kind, (to, value) = parts[-1], operands
        if to[0] == "{":
            names = vector(to)
            bits = BITS[kind] // len(names)
            values = self.source(value, f"b{BITS[kind]}")

            def unpack(active, where):
                for k, name in enumerate(names):
                    self.write(name, (values >> values.dtype.type(k * bits)).astype(f"u{bits // 8}"), f"b{bits}", where)
            return unpack
        if value[0] == "{":
            names = vector(value)
            bits = BITS[kind] // len(names)
            wide = f"u{BITS[kind] // 8}"
            each = [self.source(name, f"b{bits}") for name in names]
            return lambda active, where: self.write(
                to, sum(part.astype(wide) << np.dtype(wide).type(k * bits) for k, part in enumerate(each)),
                f"b{BITS[kind]}", where)
        found = self.source(value, kind)
        return lambda active, where: self.write(to, found, kind, where)

    def make_cvta(self, at, instruction, parts, operands):
        return self.make_mov(at, instruction, ["mov", "u64"], operands)

    def make_cvt(self, at, instruction, parts, operands):
        value = self.source(operands[1], parts[-1])
        return lambda active, where: self.write(operands[0], converted(parts, value), parts[-2], where)

    def make_setp(self, at, instruction, parts, operands):
        kind = parts[-1]
        a, b = (self.source(name, kind) for name in operands[1:])
        assert len(parts) == 3, "no combined comparison"
        return lambda active, where: self.write(operands[0], compared(parts, kind, a, b), "pred", where)

    def make_selp(self, at, instruction, parts, operands):
        kind = parts[-1]
        a, b = (self.source(name, kind) for name in operands[1:3])
        chosen = self.source(operands[3], "pred")
        return lambda active, where: self.write(operands[0], np.where(chosen, a, b), kind, where)

    def make_prmt(self, at, instruction, parts, operands):
        a, b = (np.asarray(self.source(name, "u32")) for name in operands[1:3])
        selection = self.source(operands[3], "u32")
        return lambda active, where: self.write(operands[0], permuted(a, b, selection), "u32", where)

    def make_plain(self, at, instruction, parts, operands):
        kind, to = parts[-1], operands[0]
        shifts = parts[0] in ("shl", "shr")
        values = [self.source(name, "u32" if shifts and k else kind) for k, name in enumerate(operands[1:])]
        result = f"{kind[0]}{2 * BITS[kind]}" if "wide" in parts else kind
        if parts[0] == "fma":  # slow, and seldom by all threads
            def fused(active, where):
                found = np.zeros(self.size, DTYPES[kind])
                found[active] = compute(parts, kind, [np.broadcast_to(value, self.size)[active] for value in values])
                self.write(to, found, kind, where)
            return fused
        return lambda active, where: self.write(to, compute(parts, kind, values), result, where)


def vector(operand):
    return [name.strip() for name in operand.strip("{}").split(",")]


def guarded(guard, step):
    if guard is None:
        return step

    def only(active, where):
        chosen = active & guard()
        if chosen.any():
            step(chosen, chosen)

    return only
