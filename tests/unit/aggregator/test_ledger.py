"""The ledger on a real file: what is acknowledged is there, once, whatever comes again."""

import asyncio
import sqlite3
from pathlib import Path

import pytest

from evalrun_aggregator.ledger.entries import Exchange, StoredCompletion, StoredReplica, StoredVerdict
from evalrun_aggregator.ledger.errors import LedgerBrokenError, LedgerFullError
from evalrun_aggregator.ledger.items import pack_row
from evalrun_aggregator.ledger.ledger import Ledger
from evalrun_aggregator.ledger.store import LedgerReader
from evalrun_aggregator.sample_feed.ledger_batches import LedgerBatches
from evalrun_runtime.exits import BadInputError


def completion(problem: int, text: str = "x", sample: int = 0) -> StoredCompletion:
    return StoredCompletion(pack_row(problem, 0, sample), text, output_tokens=7)


def verdict(problem: int, *, judged: bool = True, accepted: bool = True, content: bytes = b"v") -> StoredVerdict:
    return StoredVerdict(pack_row(problem, 0, 0), content, 1 if accepted else 6, judged, accepted, recorded_at=1.0)


async def test_stored_data_is_read_after_reopening(tmp_path: Path) -> None:
    async with Ledger(tmp_path / "l.db") as ledger:
        assert await ledger.add_completions([completion(0, "é\0\U0001f600"), completion(1)]) == [True, True]
        assert await ledger.add_verdicts([verdict(1)]) == [True]
    async with Ledger(tmp_path / "l.db") as ledger:
        samples = list(ledger.samples())
    assert [s.completion.text for s in samples] == ["é\0\U0001f600", "x"]
    assert [s.verdict for s in samples] == [None, verdict(1)]


async def test_the_first_completion_of_a_key_wins(tmp_path: Path) -> None:
    async with Ledger(tmp_path / "l.db") as ledger:
        await ledger.add_completions([completion(0, "first")])
        assert await ledger.add_completions([completion(0, "second"), completion(1, "new")]) == [False, True]
        assert await ledger.add_completions([completion(2, "a"), completion(2, "b")]) == [True, False]
        assert [s.completion.text for s in ledger.samples()] == ["first", "new", "a"]


async def test_a_verdict_is_written_once_and_only_replaces_not_judged(tmp_path: Path) -> None:
    async with Ledger(tmp_path / "l.db") as ledger:
        await ledger.add_completions([completion(0)])
        assert await ledger.add_verdicts([verdict(0, judged=False, accepted=False, content=b"?")]) == [True]
        assert await ledger.add_verdicts([verdict(0, content=b"right")]) == [True]
        assert await ledger.add_verdicts([verdict(0, accepted=False, content=b"late")]) == [False]
        assert await ledger.add_verdicts([verdict(0, judged=False, accepted=False)]) == [False]
        assert [s.verdict and s.verdict.verdict for s in ledger.samples()] == [b"right"]


async def test_concurrent_callers_each_learn_their_new_rows(tmp_path: Path) -> None:
    async with Ledger(tmp_path / "l.db") as ledger:
        batches = [[completion(p, f"{caller}") for p in range(20)] for caller in range(64)]
        answers = await asyncio.gather(*map(ledger.add_completions, batches))
        assert sum(map(sum, answers)) == 20
        assert len(list(ledger.samples())) == 20


async def test_samples_come_in_order_of_problem_and_sample_whatever_the_order_of_arrival(tmp_path: Path) -> None:
    rows = [pack_row(p, r, s) for p in range(3) for r in range(2) for s in range(3)]
    async with Ledger(tmp_path / "l.db") as ledger:
        for row in sorted(rows, key=lambda row: row * 7919 % 1009):
            await ledger.add_completions([StoredCompletion(row, "x")])
        assert [s.completion.row for s in ledger.samples()] == rows


async def test_full_disk_stores_nothing_of_the_batch_and_later_writes_succeed(tmp_path: Path) -> None:
    async with Ledger(tmp_path / "l.db", max_pages=60) as ledger:
        await ledger.add_completions([completion(0, "kept")])
        big = [completion(1, "small enough"), completion(2, "x" * 400_000)]
        with pytest.raises(LedgerFullError, match="full"):
            await ledger.add_completions(big)
        assert [s.completion.text for s in ledger.samples()] == ["kept"]
        assert await ledger.add_completions(big[:1]) == [True]
    async with Ledger(tmp_path / "l.db") as ledger:  # with room again
        assert await ledger.add_completions(big) == [False, True]


async def test_a_full_disk_fails_every_caller_of_the_group_and_none_is_half_stored(tmp_path: Path) -> None:
    async with Ledger(tmp_path / "l.db", max_pages=100) as ledger:
        calls = [ledger.add_completions([completion(p, "y" * 30_000)]) for p in range(30)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        stored = {s.completion.row for s in ledger.samples()}
    acknowledged = {pack_row(p, 0, 0) for p, answer in enumerate(answers) if answer == [True]}
    assert stored == acknowledged
    assert any(isinstance(answer, LedgerFullError) for answer in answers)


async def test_a_change_whose_caller_went_away_is_still_made(tmp_path: Path) -> None:
    async with Ledger(tmp_path / "l.db") as ledger:
        task = asyncio.create_task(ledger.add_completions([completion(0)]))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await ledger.add_completions([completion(1)])
        assert len(list(ledger.samples())) == 2


async def test_closed_ledger_refuses_completions(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.db")
    await ledger.close()
    await ledger.close()
    with pytest.raises(LedgerBrokenError, match="closed"):
        await ledger.add_completions([completion(0)])


async def test_one_process_owns_a_ledger(tmp_path: Path) -> None:
    async with Ledger(tmp_path / "l.db"):
        with pytest.raises(BadInputError, match=r"l\.db: process \d+ is using it"):
            Ledger(tmp_path / "l.db")
    async with Ledger(tmp_path / "l.db"):
        pass


async def test_a_newer_schema_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    async with Ledger(path) as ledger:
        await ledger.add_completions([completion(0)])
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE schema_version SET version = 99")
    connection.close()
    with pytest.raises(BadInputError, match=r"newer evalrun \(schema 99"):
        Ledger(path)
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT version FROM schema_version").fetchall() == [(99,)]
        assert connection.execute("SELECT count(*) FROM completions").fetchone() == (1,)
        connection.execute("UPDATE schema_version SET version = 4")
    connection.close()
    async with Ledger(path):  # the refusal let the lock go
        pass


async def test_replica_facts_are_stored(tmp_path: Path) -> None:
    facts = {"engine": "vllm", "weights_sha256": "ab" * 32}
    async with Ledger(tmp_path / "l.db") as ledger:
        await ledger.set_replicas("w", [StoredReplica("r0", "http://x", ["m"], "", "auto", facts)], {})
        assert [dict(replica.engine) for replica in ledger.reader.replicas()] == [facts]


async def test_a_ledger_of_the_first_version_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    async with Ledger(path) as ledger:
        await ledger.add_completions([completion(0)])
    with sqlite3.connect(path) as connection:  # as version 1 wrote it
        connection.execute("ALTER TABLE replicas DROP COLUMN load_format")
        connection.execute("ALTER TABLE replicas DROP COLUMN engine")
        connection.execute("DROP TABLE feedbacks")
        said = '{"ids": ["m"], "load_format": "safetensors"}'
        connection.executemany(
            "INSERT INTO replicas VALUES ('w', ?, 'http://x', ?, '')", [("told", said), ("silent", '["m"]')]
        )
        connection.execute("UPDATE schema_version SET version = 1")
    connection.close()
    for _ in range(2):  # and once more, now that it is
        async with Ledger(path) as ledger:
            found = {replica.name: (replica.models, replica.load_format) for replica in ledger.reader.replicas()}
            assert found == {"told": (["m"], "safetensors"), "silent": (["m"], "")}
            assert [sample.completion.row for sample in ledger.samples()] == [0]


async def test_a_ledger_of_a_run_before_there_were_turns_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    async with Ledger(path) as ledger:
        await ledger.add_completions([completion(0)])
    with sqlite3.connect(path) as connection:  # as version 3 wrote it
        connection.execute("DROP TABLE feedbacks")
        connection.execute("UPDATE schema_version SET version = 3")
    connection.close()
    async with Ledger(path) as ledger:
        assert [sample.feedback for sample in ledger.samples()] == [""]


async def test_log_probs_are_stored_with_their_answer(tmp_path: Path) -> None:
    told = completion(1)._replace(log_probs=(-0.5, -0.25))
    async with Ledger(tmp_path / "l.db") as ledger:
        await ledger.add_completions([completion(0), told, told._replace(log_probs=(-1.0,))])
        assert [sample.completion.log_probs for sample in ledger.samples()] == [(), (-0.5, -0.25)]


async def test_ledger_without_log_probs_is_read_and_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    async with Ledger(path) as ledger:
        await ledger.add_completions([completion(0)])
    with sqlite3.connect(path) as connection:  # as an earlier release wrote it
        connection.execute("DROP TABLE log_probs")
    connection.close()
    reader = LedgerReader(path)
    assert [sample.completion.log_probs for sample in reader.samples()] == [()]
    reader.close()
    async with Ledger(path) as ledger:
        await ledger.add_completions([completion(1)._replace(log_probs=(-0.5,))])
        assert [sample.completion.log_probs for sample in ledger.samples()] == [(), (-0.5,)]


async def test_feedback_is_stored_with_its_verdict_and_stays_when_verdicts_are_set_aside(tmp_path: Path) -> None:
    async with Ledger(tmp_path / "l.db") as ledger:
        await ledger.add_completions([completion(0, "first"), completion(1)])
        rows = [pack_row(position, 0, 0) for position in range(2)]
        stored = [
            StoredVerdict(row, b"", 6, judged=True, accepted=False, recorded_at=1.0, feedback="again")
            for row in rows[:1]
        ]
        await ledger.add_verdicts(
            [*stored, StoredVerdict(rows[1], b"", 6, judged=True, accepted=False, recorded_at=1.0)]
        )
        await ledger.start_rejudging({})
        assert list(ledger.reader.feedback_rows()) == rows[:1]
        assert await ledger.exchanges(rows[0], rows[0] + 1) == [Exchange("first", "again")]
        assert [sample.feedback for sample in ledger.samples()] == ["again", ""]


async def test_another_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not a database, but long enough to be looked at" * 100)
    with pytest.raises(BadInputError, match="not a SQLite database"):
        Ledger(tmp_path / "text")
    with sqlite3.connect(tmp_path / "other") as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    with pytest.raises(BadInputError, match="not an evalrun ledger"):
        Ledger(tmp_path / "other")


async def test_verdicts_set_aside_are_not_read_and_are_removed_when_the_run_ends(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    async with Ledger(path) as ledger:
        await ledger.add_completions([completion(0)])
        await ledger.add_verdicts([verdict(0, content=b"old")])
        await ledger.start_rejudging({"rejudge": "r1"})
        assert list(ledger.reader.verdict_rows()) == []
        await ledger.add_verdicts([verdict(0, accepted=False, content=b"half-way")])
        await ledger.start_rejudging({"rejudge": "r2"})  # r1 never ended: its verdicts are given up
        await ledger.add_verdicts([verdict(0, accepted=False, content=b"new")])
        assert tables(path) >= {"earlier_verdicts", "earlier_verdict_bytes"}
        await ledger.finish({"ended": "yes"})
        assert [s.verdict and s.verdict.verdict for s in ledger.samples()] == [b"new"]
        assert not {name for name in tables(path) if name.startswith("earlier")}


def tables(path: Path) -> set[str]:
    connection = sqlite3.connect(path)
    try:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    finally:
        connection.close()


async def test_replicas_are_replaced_by_holder_and_gpu_seconds_never_decrease(tmp_path: Path) -> None:
    async with Ledger(tmp_path / "l.db") as ledger:
        await ledger.set_replicas("w", [StoredReplica("r0", "http://x", ["m"], "")], {"w": 5.0, "w r0": 1.0})
        late = [StoredReplica("r0", "http://y", ["m"], "late"), StoredReplica("r1", "z", ["m"], "", "safetensors")]
        await ledger.set_replicas("w", late, {"w": 3.0})
        assert ledger.reader.replicas() == late
        assert ledger.reader.gpu_seconds() == {"w": 5.0, "w r0": 1.0}


async def test_ledger_has_a_readable_view_of_samples(tmp_path: Path) -> None:
    async with Ledger(tmp_path / "l.db") as ledger:
        await ledger.found([("d", "p0"), ("d", "p1")], {})
        await ledger.add_completions([StoredCompletion(pack_row(1, 2, 3), "text")])
    connection = sqlite3.connect(tmp_path / "l.db")
    try:
        found = connection.execute("SELECT dataset, problem_id, sample, repeat, turn, text FROM samples").fetchall()
    finally:
        connection.close()
    assert found == [("d", "p1", 3, 2, 0, "text")]


async def test_commits_are_synced_to_the_disk(tmp_path: Path) -> None:
    async with Ledger(tmp_path / "l.db") as ledger:
        connection = ledger._writer._connection
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


async def test_ledger_whose_problems_are_computed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    async with Ledger(path):
        pass
    LedgerBatches(path, max_seconds=60).close()  # has a view of its own
    with sqlite3.connect(path) as connection:
        connection.execute("DROP VIEW samples")
        connection.execute("DROP TABLE problems")
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i, i, i FROM n"
        connection.execute(f"CREATE VIEW problems (position, dataset, problem_id) AS {endless}")
    connection.close()
    with pytest.raises(BadInputError, match="problems: is computed"):
        LedgerBatches(path)


async def test_question_that_takes_a_ledger_too_long_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    async with Ledger(path):
        pass
    with sqlite3.connect(path) as connection:
        connection.executemany(
            "INSERT INTO problems (position, dataset, problem_id) VALUES (?, 'demo', ?)",
            ((number, f"set/{number}") for number in range(5000)),
        )
    connection.close()
    LedgerBatches(path).close()
    with pytest.raises(BadInputError, match="cannot be read: interrupted"):
        LedgerBatches(path, max_seconds=0)
