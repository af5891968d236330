"""The races that the device finds in random programs are those of a search by brute force.

tests/helpers/race_programs.py writes the programs and knows their races.
"""

import os
import random
import sys

import pytest
import race_programs

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the software device needs Linux"
)

EXAMPLES = int(os.environ.get("ARROWDEV_EXAMPLES", "200"))


def numbered(lines):
    return "\n".join(f"{number:3} {line.text}" for number, line in enumerate(lines, 1))


def check(lines, delay=0.0):
    """Exactly the races of the program are found: no other one, and none is missed."""
    expected = race_programs.races_of(lines)
    assert race_programs.run(lines, delay) == expected, numbered(lines)
    return expected


def check_seeds(seeds):
    """Return in how many programs a missing wait was a race."""
    n_missing = 0
    for seed in seeds:
        check(race_programs.any_program(seed))
        lines, waits = race_programs.sound_program(seed)
        assert not check(lines), numbered(lines)
        if waits:
            dropped = random.Random(seed).choice(waits)
            n_missing += bool(check(without(lines, dropped)))
    return n_missing


def without(lines, number):
    return [*lines[:number], race_programs.Line("pass", []), *lines[number + 1 :]]


def test_races_are_those_of_a_search_by_brute_force():
    assert check_seeds(range(30)) > 20


@pytest.mark.parametrize("delay", [0.0, 0.001])
def test_speed_of_a_queue_does_not_matter(delay):
    for seed in range(5):
        assert check(race_programs.any_program(seed, n_lines=25), delay)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_races_of_many_programs():
    """ARROWDEV_EXAMPLES says how many."""
    assert check_seeds(range(1000, 1000 + EXAMPLES)) > EXAMPLES // 2


def test_brute_force_knows_a_race():
    """The search itself: a write and a read, in order only by way of a third queue."""
    memory = ("device", 0)
    write = race_programs.Use(memory, "write", 0, 8)
    read = race_programs.Use(memory, "read", 4, 12)
    effects = [
        [("work", "a", [write])],
        [("record", "a", 0)],
        [("wait", "b", 0)],
        [("record", "b", 1)],
        [("wait", "c", 1)],
        [("work", "c", [read])],
    ]
    lines = [race_programs.Line("", one) for one in effects]
    assert race_programs.races_of(lines) == set()
    for missing in (1, 2, 3, 4):
        found = race_programs.races_of(without(lines, missing))
        assert found == {("read not ordered after write", 1, 6)}
