"""The committed PTX as C: every instruction becomes a statement, and the host runs it.

Accesses that a GPU refuses, because the address is no multiple of their size, are counted, and
the range of the addresses that the last launch read is kept.
"""

import re

HEAD = """\
#include <stdint.h>
#include <string.h>
static int n_misaligned;
static int64_t n_executed;
static uint64_t read_begin, read_end;
static uint32_t ctaid, ntid, tid, nctaid;

static void
load(uint64_t from, void *to, unsigned size, unsigned aligned)
{
    n_misaligned += from % aligned != 0;
    read_begin = from < read_begin ? from : read_begin;
    read_end = from + size > read_end ? from + size : read_end;
    memcpy(to, (const void *)from, size);
}

static void
store(uint64_t to, const void *from, unsigned size, unsigned aligned)
{
    n_misaligned += to % aligned != 0;
    memcpy((void *)to, from, size);
}
"""

TAIL = """
int64_t
helper_executed(void)
{
    return n_executed;
}

int
helper_misaligned(void)
{
    return n_misaligned;
}

uint64_t
helper_read_begin(void)
{
    return read_begin;
}

uint64_t
helper_read_end(void)
{
    return read_end;
}

void
helper_run(int kernel, uint64_t source, uint64_t source_offset, uint64_t target,
           uint64_t target_offset, uint64_t bit_offset, uint64_t length, int64_t n_items,
           const uint64_t *numbers, uint64_t values)
{
    uint64_t n = (uint64_t)(n_items < 0 ? -n_items : n_items);
    const uint64_t param[] = {
        source, source_offset, values != 0 ? values : target, target_offset, target,
        target_offset, bit_offset, length, numbers[0], numbers[1], numbers[2], numbers[3],
    };
    ntid = n < 256 ? (uint32_t)n : 256;
    nctaid = (uint32_t)(n / ntid);
    read_begin = UINT64_MAX;
    read_end = 0;
    for (ctaid = 0; ctaid < nctaid; ctaid++) {
        for (tid = 0; tid < ntid; tid++) {
            kernels[kernel](param);
        }
    }
}
"""

REGISTERS = {"pred": ("uint8_t", "p"), "b16": ("uint16_t", "rs"), "b32": ("uint32_t", "r")}
REGISTERS["b64"] = ("uint64_t", "rd")
SIGNS = {"u": "uint", "b": "uint", "s": "int"}
BINARY = {"add": "+", "sub": "-", "div": "/", "rem": "%", "and": "&", "or": "|", "xor": "^"}
COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def c_type(name):
    """`name`: s64, b32, u8, pred."""
    return "uint8_t" if name == "pred" else f"{SIGNS[name[0]]}{name[1:]}_t"


def operand(text):
    text = text.strip()
    found = re.fullmatch(r"%(rd|rs|r|p)(\d+)", text)
    if found:
        return f"{found[1]}[{found[2]}]"
    if re.fullmatch(r"%(ctaid|ntid|tid|nctaid)\.x", text):
        return text[1:-2]
    if text in ("%lhs", "%rhs"):
        return text[1:]
    assert re.fullmatch(r"-?\d+", text), text
    return "INT64_MIN" if text == str(-(2**63)) else f"INT64_C({text})"


def address(text):
    base, sign, offset = re.fullmatch(r"\[(%rd\d+)(?:([+-])(-?\d+))?\]", text.strip()).groups()
    return f"{operand(base)} + (uint64_t){sign or '+'}INT64_C({offset or 0})"


def elements(text):
    """One register, or the braced list of a vector access."""
    return [operand(part) for part in text.strip(" {}").split(",")]


def access(op, operands, params):
    is_load = op[0] == "ld"
    first, second = operands if is_load else operands[::-1]
    kind = c_type(op[-1])
    if op[1] == "param":
        return f"{operand(first)} = param[{params[second.strip('[] ')]}];"
    size = int(op[-1][1:]) // 8
    registers = elements(first)
    aligned = size * len(registers)
    lines = [f"uint64_t at = {address(second)};"]
    for i, register in enumerate(registers):
        where = f"at + {size * i}, &v, {size}, {aligned if i == 0 else size}"
        if is_load:
            lines.append(f"{{ {kind} v; load({where}); {register} = v; }}")
        else:
            lines.append(f"{{ {kind} v = ({kind}){register}; store({where}); }}")
    return f"{{ {' '.join(lines)} }}"


def shift(name, kind, a, b):
    """A count of the width or more gives no bit of the value."""
    width = re.search(r"\d+", kind)[0]
    if kind.startswith("int"):
        return f"({kind}){a} >> ((uint32_t){b} < {width} ? (uint32_t){b} : {width} - 1)"
    sign = "<<" if name == "shl" else ">>"
    return f"(uint32_t){b} < {width} ? ({kind}){a} {sign} (uint32_t){b} : 0"


def value(op, sources):
    name, kind = op[0], c_type(op[-1])
    a, *others = [operand(source) for source in sources]
    if name in BINARY:
        return f"({kind}){a} {BINARY[name]} ({kind}){others[0]}"
    if name in ("shl", "shr"):
        return shift(name, kind, a, others[0])
    if name in ("mul", "mad"):
        wide = kind.replace("32", "64") if op[1] == "wide" else kind
        product = f"({wide})({kind}){a} * ({wide})({kind}){others[0]}"
        return product if name == "mul" else f"{product} + ({wide}){others[1]}"
    if name in ("min", "max"):
        sign = "<" if name == "min" else ">"
        return f"({kind}){a} {sign} ({kind}){others[0]} ? ({kind}){a} : ({kind}){others[0]}"
    if name == "setp":
        return f"({kind}){a} {COMPARED[op[1]]} ({kind}){others[0]}"
    if name == "selp":
        return f"{others[1]} ? ({kind}){a} : ({kind}){others[0]}"
    if name == "mov" or (name == "cvt" and len(op) == 3):
        return f"({c_type(op[1])})({kind}){a}"
    if name == "not":
        return f"!{a}" if op[-1] == "pred" else f"~({kind}){a}"
    if name == "neg":
        return f"0 - ({kind}){a}"
    if name == "bfe":  # constant fields within the register
        position, size = (int(source) for source in sources[1:])
        width = int(op[-1][1:])
        assert size > 0 and position + size <= width, sources
        moved = f"({kind}){a} << {width - position - size}"
        return f"({kind})({moved}) >> {width - size}"
    assert name == "popc", op
    return f"__builtin_popcountll(({kind}){a})"


def statement(text, params):
    guard, rest = re.fullmatch(r"(?:@(!?%p\d+)\s+)?(.*);", text).groups()
    opcode, _, tail = rest.partition(" ")
    op = opcode.split(".")
    if op[0] == "ret":
        body = "return;"
    elif op[0] == "bra":
        body = f"goto {tail.strip()};"
    else:
        operands = re.findall(r"\{[^}]*\}|[^,{}\s][^,{}]*", tail)
        if op[0] in ("ld", "st"):
            body = access(op, operands, params)
        else:
            body = f"{operand(operands[0])} = {value(op, operands[1:])};"
    if guard is None:
        return body
    negated = guard.startswith("!")
    return f"if ({'!' if negated else ''}{operand(guard.lstrip('!'))}) {{ {body} }}"


def function(name, params, body, *, is_counted):
    lines = []
    count = "n_executed++; " if is_counted else ""
    for line in body.replace("\t", " ").splitlines():
        text = line.strip()
        registers = re.fullmatch(r"\.reg \.(\w+)\s+%\w+<(\d+)>;", text)
        if registers:
            kind, prefix = REGISTERS[registers[1]]
            lines.append(f"{kind} {prefix}[{registers[2]}];")
        elif text.startswith(".reg"):  # of a nested block
            kind, named = re.fullmatch(r"\.reg \.(\w+) %(\w+);", text).groups()
            lines.append(f"{c_type(kind)} {named};")
        elif text in ("{", "}"):
            lines.append(text)
        elif text.endswith(":"):
            lines.append(f"{text};")
        elif text and not text.startswith(".pragma"):
            lines.append(count + statement(text, params))
    inner = "\n".join(f"    {line}" for line in lines)
    return f"static void\n{name}(const uint64_t *param)\n{{\n{inner}\n}}\n"


def to_c(ptx, *, is_counted=False):
    """A C source with the kernels, `helper_run` of c_helpers/kernels.c and counts."""
    entries = re.findall(r"\.visible \.entry (\w+)\((.*?)\)\s*\{(.*?)^\}", ptx, re.S | re.M)
    parts = [HEAD]
    for name, declared, body in entries:
        names = re.findall(r"\.param \.u64 (\w+)", declared)
        params = {param: i for i, param in enumerate(names)}
        parts.append(function(name, params, body, is_counted=is_counted))
    table = ", ".join(name for name, _, _ in entries)
    parts.append(f"static void (*const kernels[])(const uint64_t *) = {{{table}}};\n")
    return "\n".join(parts) + TAIL
