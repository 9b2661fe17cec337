"""The bounded memory behind suites, inputs, recordings and verdicts."""

from evalrun_runtime.recently_used import RecentlyUsed


def test_cache_is_bounded_and_evicts_the_least_recently_used_first() -> None:
    kept = RecentlyUsed[str, bytes](10, len)
    kept.put("a", b"1234")
    kept.put("b", b"1234")
    assert kept.get("a") == b"1234"
    kept.put("c", b"1234")
    assert [kept.get(key) for key in "abc"] == [b"1234", None, b"1234"]
    kept.put("a", b"1")  # in place of the longer one
    kept.put("d", b"12345")
    assert kept.get("c") == b"1234"


def test_a_value_larger_than_the_capacity_evicts_no_other() -> None:
    kept = RecentlyUsed[str, bytes](10, len)
    kept.put("a", b"1234")
    kept.put("huge", b"1" * 11)
    assert (kept.get("huge"), kept.get("a"), kept.size) == (None, b"1234", 4)
    kept.put("a", b"1" * 11)  # the old value of the same key would be a wrong answer
    assert (kept.get("a"), kept.size) == (None, 0)
