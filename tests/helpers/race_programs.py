"""Random programs for the software device, and the races in them by brute force.

A program is a list of lines of Python. Each has effects on a graph of operations, in which one
operation is ordered before another if there is a path. The device does not know this graph.
"""

import contextlib
import ctypes
import random
from collections import namedtuple

import arrowdev as ad
from arrowdev.testing import RaceError, software_device

SIZE = 64  # bytes of each allocation
N_HOST = 2

Line = namedtuple("Line", "text effects")
Use = namedtuple("Use", "memory access begin end")
Made = namedtuple("Made", "line node use")


# --- the races of a program, by brute force ----------------------------------------------------


class Oracle:
    """Direct predecessors of each operation. The host is a chain of operations, one a line."""

    def __init__(self):
        self.before = [[]]
        self.host = 0
        self.last = {}  # of each queue
        self.events = {}
        self.uses = []
        self.freed = {}
        self.races = set()

    def add(self, *before):
        self.before.append([node for node in before if node is not None])
        return len(self.before) - 1

    def all_before(self, node):
        found, left = set(), [node]
        while left:
            for other in self.before[left.pop()]:
                if other not in found:
                    found.add(other)
                    left.append(other)
        return found

    def run(self, line, effects):
        self.host = self.add(self.host)
        for name, *arguments in effects:
            getattr(self, name)(line, *arguments)

    def on_queue(self, queue, *before):
        self.last[queue] = self.add(self.host, self.last.get(queue), *before)
        return self.last[queue]

    # --- effects --------------------------------------------------------------------------------

    def work(self, line, queue, uses):
        gone = [use for use in uses if use.memory in self.freed]
        for use in gone:
            self.races.add((f"{use.access} after release", self.freed[use.memory], line))
        if not gone:
            self.use(line, self.on_queue(queue), uses)

    def use(self, line, node, uses):
        earlier = self.all_before(node)
        for use in uses:
            for old in self.uses:
                if old.node not in earlier and old.node != node and conflict(old.use, use):
                    kind = f"{use.access} not ordered after {old.use.access}"
                    self.races.add((kind, old.line, line))
            if use.access == "release":
                self.freed[use.memory] = line
        self.uses = [old for old in self.uses if old.use.memory not in self.freed]
        self.uses += [Made(line, node, use) for use in uses if use.access != "release"]

    def host_frees(self, line, memory):
        self.use(line, self.host, [Use(memory, "release", 0, SIZE)])

    def record(self, line, queue, event):
        self.events[event] = self.on_queue(queue)

    def wait(self, line, queue, event):
        self.on_queue(queue, self.events.get(event))

    def wait_queue(self, line, queue, other):
        self.on_queue(queue, self.last.get(other))

    def host_waits(self, line, queue):
        self.host = self.add(self.host, self.last.get(queue))

    def host_waits_event(self, line, event):
        self.host = self.add(self.host, self.events.get(event))

    def host_waits_all(self, line):
        self.host = self.add(self.host, *self.last.values())

    # --- results --------------------------------------------------------------------------------

    def unawaited(self):
        earlier = self.all_before(self.host)
        return {
            ("copy to the host that is not waited for", made.line, None)
            for made in self.uses
            if made.use.memory[0] == "host" and made.use.access == "write"
            if made.node not in earlier
        }


def conflict(a, b):
    return (
        a.memory == b.memory
        and max(a.begin, b.begin) < min(a.end, b.end)
        and (a.access, b.access) != ("read", "read")
    )


def races_of(lines):
    oracle = Oracle()
    for number, line in enumerate(lines, 1):
        oracle.run(number, line.effects)
    return oracle.races | oracle.unawaited()


# --- programs ----------------------------------------------------------------------------------


class Generator:
    """Writes random lines. The queues, and all that is named, are counted from 0."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.lines = []
        self.n_queues = self.random.randint(1, 4)
        self.names = [f"Q{i}" for i in range(self.n_queues)]  # of the queues that are open now
        self.n_memory = self.random.randint(1, 3)
        self.n_events = 0
        self.columns = []  # their memory
        self.has_copied = False  # on the device, on a queue of arrowdev's
        self.gone = set()

    def add(self, text, *effects):
        self.lines.append(Line(text, effects))

    def queue(self):
        return self.random.randrange(self.n_queues)

    def span(self):
        begin = self.random.randrange(0, SIZE, 8)
        return begin, self.random.randrange(begin + 1, SIZE + 1)

    def memory(self, may_be_gone):
        kinds = [("device", i) for i in range(self.n_memory)]
        kinds += [("host", i) for i in range(N_HOST)]
        kinds = [one for one in kinds if may_be_gone or one not in self.gone]
        return self.random.choice(kinds)

    # --- lines ----------------------------------------------------------------------------------

    def fill(self, may_be_gone):
        i, (begin, end) = self.queue(), self.span()
        memory = self.memory(may_be_gone)
        if memory[0] == "host":
            return self.copy(may_be_gone)
        text = f"Q[{i}].fill({address(memory)} + {begin}, 7, {end - begin})"
        uses = [Use(memory, "write", begin, end)]
        return Line(text, [("work", self.names[i], uses)])

    def copy(self, may_be_gone):
        i, (begin, end) = self.queue(), self.span()
        source, target = self.memory(may_be_gone), self.memory(may_be_gone)
        at = self.random.randrange(0, SIZE - (end - begin) + 1)
        text = f"Q[{i}].copy({address(target)} + {at}, {address(source)} + {begin}, {end - begin})"
        uses = [Use(source, "read", begin, end), Use(target, "write", at, at + end - begin)]
        return Line(text, [("work", self.names[i], uses)])

    def read_column(self, may_be_gone):
        """A slice of a column."""
        if not self.columns:
            return self.copy(may_be_gone)
        i, column = self.queue(), self.random.choice(self.columns)
        begin = self.random.randrange(8)
        end = self.random.randrange(begin + 1, 9)
        target = self.memory(may_be_gone)
        part = f"C[{column[1]}].slice({begin}, {end - begin})"
        text = f"Q[{i}].copy({address(target)}, at({part}), {8 * (end - begin)})"
        uses = [
            Use(column, "read", 8 * begin, 8 * end),
            Use(target, "write", 0, 8 * (end - begin)),
        ]
        return Line(text, [("work", self.names[i], uses)])

    def free(self, may_be_gone):
        memory = ("device", self.random.randrange(self.n_memory))
        if memory in self.gone or self.random.random() < 0.7:
            return self.copy(may_be_gone)
        if self.random.random() < 0.5:
            return Line(f"M[{memory[1]}].free()", [("host_frees", memory)])
        i = self.queue()
        uses = [Use(memory, "release", 0, SIZE)]
        return Line(f"M[{memory[1]}].free(Q[{i}])", [("work", self.names[i], uses)])

    def take(self):
        """An import by arrowdev, of an array of 8 int64 that a queue writes."""
        i, j, number = self.queue(), self.queue(), len(self.columns)
        column, event = ("column", number), f"of column {number}"
        source = f"device.array(VALUES, queue=Q[{i}])"
        write = ("work", self.names[i], [Use(column, "write", 0, SIZE)])
        recorded = ("record", self.names[i], event)
        how = self.random.choice(["stream", "host", "later"])
        if how == "stream":
            text = f"C.append(ad.array({source}, stream=Q[{j}]))"
            self.add(text, write, recorded, ("wait", self.names[j], event))
        else:
            self.add(f"C.append(ad.array({source}))", write, recorded)
        if how == "host":
            self.add(f"C[{number}].synchronize()", ("host_waits_event", event))
        self.columns.append(column)

    def give(self):
        """An export by arrowdev."""
        if not self.columns:
            return self.take()
        i, column = self.queue(), self.random.choice(self.columns)
        event = f"of column {column[1]}"
        read = [Use(column, "read", 0, SIZE)]
        waits = ("wait", self.names[i], event)
        how = self.random.choice(["dlpack", "consumer", "cpu", "copy"])
        if how in ("cpu", "copy") and self.has_copied:
            how = "consumer"  # its queue would be ordered behind that of the copy, or be the same
        if how == "dlpack":
            text = f"K.append(ad.tensor(C[{column[1]}]).__dlpack__(stream=Q[{i}].handle))"
            self.add(text, waits)
        elif how == "consumer":
            text = f"device.to_host(C[{column[1]}], queue=Q[{i}])"
            work = ("work", self.names[i], read)
            self.add(text, waits, work, ("host_waits", self.names[i]))
        elif how == "cpu":
            own = f"own {len(self.lines)}"
            text = f"C[{column[1]}].to('cpu')"
            self.add(text, ("wait", own, event), ("work", own, read), ("host_waits", own))
        else:
            self.add_copy(column, event, read)
        return None

    def add_copy(self, column, event, read):
        """A copy on the device, on a queue of arrowdev's."""
        number, own = len(self.columns), f"own {len(self.lines)}"
        copy, made = ("column", number), f"of column {number}"
        uses = [*read, Use(copy, "write", 0, SIZE)]
        self.add(
            f"C.append(ad.array(C[{column[1]}], copy=True))",
            *[("wait", own, event), ("work", own, uses), ("record", own, made)],
        )
        self.columns.append(copy)
        self.has_copied = True

    def order(self):
        """A wait that need not be of any use."""
        i, j = self.queue(), self.queue()
        ours, theirs = self.names[i], self.names[j]
        how = self.random.choice(
            ["event", "old event", "queue", "host", "host event", "new queue"]
        )
        if how == "event":
            self.wait_for_event(i, j)
        elif how == "old event" and self.n_events:
            event = self.random.randrange(self.n_events)
            self.add(f"Q[{i}].wait(E[{event}])", ("wait", ours, event))
        elif how == "queue":
            self.add(f"Q[{i}].wait(Q[{j}])", ("wait_queue", ours, theirs))
        elif how == "host event" and self.n_events:
            event = self.random.randrange(self.n_events)
            self.add(f"E[{event}].synchronize()", ("host_waits_event", event))
        elif how == "new queue":
            self.names[i] = f"Q{i} of line {len(self.lines)}"
            self.add(f"Q[{i}].close(); Q[{i}] = device.queue()")
        elif how == "host" and self.random.random() < 0.3:
            self.add("device.synchronize()", ("host_waits_all",))

    def wait_for_event(self, i, j):
        event = self.n_events
        self.n_events += 1
        self.add(f"E.append(Q[{j}].record())", ("record", self.names[j], event))
        self.add(f"Q[{i}].wait(E[{event}])", ("wait", self.names[i], event))


def address(memory):
    return f"{'H' if memory[0] == 'host' else 'A'}[{memory[1]}]"


def any_program(seed, n_lines=40):
    """Lines that are not ordered on purpose."""
    make = Generator(seed)
    while len(make.lines) < n_lines:
        chosen = make.random.random()
        if chosen < 0.1:
            make.take()
        elif chosen < 0.2:
            make.give()
        elif chosen < 0.55:
            make.order()
        else:
            write = make.random.choice([make.fill, make.copy, make.read_column, make.free])
            add_access(make, write(may_be_gone=True))
    return make.lines


def add_access(make, line):
    make.lines.append(line)
    for name, *arguments in line.effects:
        if name == "host_frees":
            make.gone.add(arguments[0])
        elif any(use.access == "release" for use in arguments[1]):
            make.gone.update(use.memory for use in arguments[1])


def sound_program(seed, n_lines=40):
    """The same with the waits that are needed. Returns it and the numbers of these waits."""
    make, needed = Generator(seed), []
    while len(make.lines) < n_lines:
        chosen = make.random.random()
        if chosen < 0.15:
            make.take()
        elif chosen < 0.3:
            make.give()
        elif chosen < 0.4:
            make.order()
        else:
            write = make.random.choice([make.fill, make.copy, make.read_column, make.free])
            line = write(may_be_gone=False)
            needed += put_in_order(make, line)
            add_access(make, line)
    unawaited = {line for _, line, _ in races_of(make.lines)}
    if unawaited:
        needed.append(len(make.lines))
        make.add("device.synchronize()", ("host_waits_all",))
    return make.lines, needed


def put_in_order(make, line):
    """Add waits until the line is in order; return their numbers, from 0."""
    added, names = [], {name: i for i, name in enumerate(make.names)}
    [(name, *arguments)] = line.effects
    while races := {race for race in races_of([*make.lines, line]) if race[2] is not None}:
        _, first, _ = min(races)
        theirs = queue_of(make.lines[first - 1])
        how = make.random.choice(["event", "queue", "host"])
        if name == "host_frees" or theirs not in names or how == "host":
            added.append(len(make.lines))
            if theirs in names:
                make.add(f"Q[{names[theirs]}].synchronize()", ("host_waits", theirs))
            else:
                make.add("device.synchronize()", ("host_waits_all",))
        elif how == "event":
            make.wait_for_event(names[arguments[0]], names[theirs])
            added.append(len(make.lines) - 1)
        else:
            added.append(len(make.lines))
            text = f"Q[{names[arguments[0]]}].wait(Q[{names[theirs]}])"
            make.add(text, ("wait_queue", arguments[0], theirs))
    return added


def queue_of(line):
    return next(arguments[0] for name, *arguments in line.effects if name == "work")


# --- running -----------------------------------------------------------------------------------


def run(lines, delay=0.0):
    """The races that the device finds, as races_of() gives them."""
    found = []
    text = "".join(f"with ok: {line.text}\n" for line in lines)
    buffers = [ctypes.create_string_buffer(SIZE) for _ in range(N_HOST)]
    names = {
        "ad": ad,
        "ok": contextlib.suppress(ad.DeviceError),  # what follows from a race
        "at": lambda column: column.buffers[1].data_ptr + 8 * column.offset,
        "VALUES": list(range(8)),
        "C": [],
        "K": [],
        "E": [],
    }
    try:
        with software_device(races=True, timeout=20) as device:
            memory = [device.empty(SIZE) for _ in range(3)]
            queues = [device.queue() for _ in range(4)]
            for queue in queues:
                queue.delay = delay
            names |= {"device": device, "Q": queues, "M": memory}
            names |= {"A": [one.address for one in memory]}
            names |= {"H": [ctypes.addressof(one) for one in buffers]}
            exec(compile(text, "program.py", "exec"), names)
    except RaceError as error:
        found = error.races
    return {(race.kind, line_of(race.first), line_of(race.second)) for race in found}


def line_of(access):
    return int(access.line.split(":")[1].split()[0]) if access.line.startswith("program") else None
