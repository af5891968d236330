"""The summary of a trace: what was exchanged, copied, waited for and kept, and advice."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict

from arrowdev._trace import class_name, ends_of, line_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


# What avoids a copy on one device. A key is the beginning of a reason in messages.
REMEDIES = {
    "a tensor has a byte per bool": "keep flags in bytes, as uint8, where tensors read them",
    "copy=True was passed": "leave copy=True out, and the memory is shared",
    "flags of a byte become bits": "pass the validity as the bitmap of an Arrow column",
    "nulls are filled": 'nulls="ignore" shares the values; arrowdev.array(x).validity is the mask',
    "the class takes no negative strides": "pass the elements in the order in which they are read",
    "the elements are not in the order": "make them in that order",
    "the elements have the other byte order": "store them in the byte order of the machine",
    "the library knows no read-only memory": "pass memory that may be written",
    "the rows of each column": 'pass a matrix in the order "F"',
    "the rows of several arrays are joined": "take them one by one, with arrowdev.array_stream(x)",
    "the tensor's strides have no equivalent": 'pass elements without gaps, in the order "C"',
}


def size(n: float) -> str:
    """ "3.1 GB" for 3,100,000,000."""
    if n < 1000:
        return f"{n:.0f} bytes"
    units = ["kB", "MB", "GB", "TB"]
    while (n := n / 1000) >= 1000 and len(units) > 1:
        del units[0]
    return f"{n:.1f} {units[0]}"


def seconds(ns: float) -> str:
    """ "1.5 ms" for 1,500,000."""
    value = ns
    for unit in ("ns", "us", "ms"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "ns" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} s"


def counted(n: int, noun: str) -> str:
    """ "1 copy", "2,000 bytes"."""
    plural = noun[:-1] + "ies" if noun.endswith("py") else noun + "s"
    return f"{n:,} {noun if n == 1 else plural}"


def _by(events: list[dict[str, Any]], *names: str) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    groups = defaultdict(list)
    for event in events:
        groups[tuple(event[name] for name in names)].append(event)
    return groups


def _line(events: list[dict[str, Any]]) -> str | None:
    """The line of most of them."""
    lines = Counter(line for event in events if (line := line_of(event)) is not None)
    return lines.most_common(1)[0][0] if lines else None


def _copies(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = [
        {
            "why": why,
            "device": source,
            "target": target,
            "count": len(group),
            "bytes": sum(event["bytes"] for event in group),
            "line": _line(group),
        }
        for (why, source, target), group in _by(events, "why", "device", "target").items()
    ]
    return sorted(found, key=lambda row: -row["bytes"])


def _waits(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = [
        {
            "why": why,
            "device": device,
            "count": len(group),
            "ns": sum(event["end"] - event["start"] for event in group),
            "line": _line(group),
        }
        for (why, device), group in _by(events, "why", "device").items()
    ]
    return sorted(found, key=lambda row: -row["ns"])


def _exchanges(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each pair of ends. What is done inside of another exchange is a part of it."""
    groups: dict[tuple[str | None, str | None], list[tuple[dict[str, Any], bool]]] = defaultdict(
        list
    )
    for ring in _by(events, "ring").values():
        outer: dict[str, Any] | None = None
        copies = sorted(event["start"] for event in ring if event["kind"] == "copy")
        for event in sorted(ring, key=lambda event: (event["start"], -event["end"])):
            if event["kind"] not in ("import", "export", "convert") or not event["is_done"]:
                continue
            if outer is not None and event["end"] <= outer["end"]:
                continue
            outer = event
            next_copy = bisect_left(copies, event["start"])
            is_copied = next_copy < len(copies) and copies[next_copy] <= event["end"]
            groups[ends_of(event)].append((event, is_copied))
    found = [
        {
            "from": source,
            "to": target,
            "count": len(group),
            "zero_copy": sum(not is_copied for _, is_copied in group),
            "bytes": sum(event["bytes"] for event, _ in group),
            "ns": sum(event["end"] - event["start"] for event, _ in group),
        }
        for (source, target), group in groups.items()
    ]
    return sorted(found, key=lambda row: -row["count"])


def _alive(kinds: dict[tuple[Any, ...], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Imported memory that was not released, by the library that it came from."""
    released = {event["memory"] for event in kinds.get(("release",), [])}
    alive: dict[str, list[int]] = defaultdict(list)
    for event in kinds.get(("import",), []):
        if event["memory"] and event["memory"] not in released:
            source = class_name(event["from"]) if event["from"] else "a stream"
            alive[source.partition(".")[0]].append(event["bytes"])
    found = [
        {"library": name, "count": len(sizes), "bytes": sum(sizes)}
        for name, sizes in alive.items()
    ]
    return sorted(found, key=lambda row: -row["bytes"])


def _advice(summary: dict[str, Any]) -> list[str]:
    advice = []
    for row in summary["copies"]:
        if row["device"] == row["target"] and row["bytes"]:
            where = "; `copy=False` shows where"
            if row["line"]:
                such_as = ", at " if row["count"] == 1 else ", such as the one at "
                where = f"{such_as}{row['line']}"
            what = f"{counted(row['count'], 'copy')} of {size(row['bytes'])}"
            remedies = [text for why, text in REMEDIES.items() if row["why"].startswith(why)]
            advice.append("; ".join([f"{what} because {row['why']}{where}", *remedies]))
    for row in summary["waits"]:
        advice.append(
            f"the host waits {seconds(row['ns'])} for {row['device']}, for {row['why']}; "
            "a consumer that takes a stream does not wait"
        )
    return advice


def summary(events: list[dict[str, Any]], dropped: int, lost: int, ns: int) -> dict[str, Any]:
    kinds = _by(events, "kind")
    result: dict[str, Any] = {
        "ns": ns,
        "exchanges": _exchanges(events),
        "copies": _copies(kinds.get(("copy",), [])),
        "waits": _waits(kinds.get(("wait",), [])),
        "refusals": len(kinds.get(("refusal",), [])),
        "alive": _alive(kinds),
        "dropped": dropped,
        "lost": lost,
    }
    result["advice"] = _advice(result)
    return result


def text(summary: dict[str, Any]) -> str:
    lines = [f"arrowdev: a trace of {seconds(summary['ns'])}"]
    for row in summary["exchanges"]:
        lines.append(
            f"  {row['from'] or 'a stream'} -> {row['to'] or 'a consumer'}: {row['count']:,}, "
            f"{row['zero_copy']:,} of them without a copy"
        )
    for row in summary["copies"]:
        lines.append(
            f"  {counted(row['count'], 'copy')} of {size(row['bytes'])}, {row['device']} -> "
            f"{row['target']}, because {row['why']}"
        )
    for row in summary["waits"]:
        lines.append(
            f"  {counted(row['count'], 'wait')} of the host for {row['device']}, "
            f"{seconds(row['ns'])}, for {row['why']}"
        )
    if summary["refusals"]:
        lines.append(f"  {counted(summary['refusals'], 'refusal')}")
    for row in summary["alive"]:
        lines.append(
            f"  alive at the end: {size(row['bytes'])} of {row['library']}, "
            f"in {counted(row['count'], 'import')}"
        )
    if summary["dropped"]:
        lines.append(
            f"  {counted(summary['dropped'], 'event')} dropped: the rings were full, see events="
        )
    if summary["lost"]:
        lines.append(
            f"  {counted(summary['lost'], 'event')} lost: no memory was left for the rings"
        )
    lines += [f"  advice: {advice}" for advice in summary["advice"]]
    return "\n".join(lines)
