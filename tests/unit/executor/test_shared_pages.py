"""Preparations of a zygote, so that its children copy few of its pages.

Each test has a process of its own: what it does to its objects and its heap lasts.
"""

import json
import subprocess
import sys
from pathlib import Path

from evalrun_executor.contained import shared_pages

HAS_IMMORTAL_OBJECTS = sys.version_info >= (3, 12)
LIBRARY = Path(shared_pages.__file__).parents[2]


def printed_by(script: str) -> dict[str, object]:
    """Run a script that finds the module; return what it prints."""
    process = subprocess.run(
        [sys.executable, "-c", f"import json, sys\nsys.path.insert(0, {str(LIBRARY)!r})\n{script}"],
        check=True,
        capture_output=True,
        timeout=60,
    )
    found: dict[str, object] = json.loads(process.stdout)
    return found


def test_references_to_what_a_process_holds_are_not_counted_any_more() -> None:
    seen = printed_by("""
from evalrun_executor.contained.shared_pages import has_immortal_objects, immortalize
class Held:
    pass
held = [Held(), {"deep": ["down"]}]
deep = held[1]["deep"]
made = immortalize()
def grown(value):
    before = sys.getrefcount(value)
    more = [value] * 100
    return sys.getrefcount(value) - before
print(json.dumps({
    "known": has_immortal_objects(), "many": made > 1000, "many again": immortalize() > 100,
    "held": [grown(value) for value in (held, held[0], Held, deep, immortalize)], "later": grown(Held()),
}))
""")
    assert seen == {
        "known": HAS_IMMORTAL_OBJECTS,
        "many": HAS_IMMORTAL_OBJECTS,
        "many again": False,
        "held": [0 if HAS_IMMORTAL_OBJECTS else 100] * 5,
        "later": 100,  # what is made later is freed as ever
    }


FREED_AND_TAKEN = """
from evalrun_executor.contained.shared_pages import FILL
many = [bytes(SIZE) for _ in range(240)]
freed = {id(each) for each in many[::2]}
del many[::2]
before = [bytes(SIZE) for _ in range(300)]
taken_before = len(freed & {id(each) for each in before})
del before
FILL()
after = [bytes(SIZE) for _ in range(300)]
print(json.dumps({"before": taken_before > 60, "after": len(freed & {id(each) for each in after})}))
"""


def test_a_small_object_takes_no_room_between_older_ones_once_pools_are_full() -> None:
    seen = printed_by(FREED_AND_TAKEN.replace("FILL", "fill_pools").replace("SIZE", "200"))
    assert seen == {"before": True, "after": 0}


def test_a_large_object_takes_no_room_between_older_ones_once_the_heap_is_full() -> None:
    seen = printed_by(FREED_AND_TAKEN.replace("FILL", "fill_heap").replace("SIZE", "5000"))
    assert seen == {"before": True, "after": 0}
