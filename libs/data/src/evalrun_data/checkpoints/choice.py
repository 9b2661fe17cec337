"""Examines a directory's checkpoints in the order of their steps and selects those to evaluate.

Reads as little as possible: only directories from the lowest relevant step on, and digests only of complete
checkpoints.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from fnmatch import fnmatchcase

from evalrun_api.checkpoint_listing import DIGEST_DIGITS, ListingAnswer, ListingRequest, ReadyCheckpoint, Trouble
from evalrun_data.checkpoints.layout import (
    NO_BASE,
    NO_VLLM,
    TRAINER_STATE,
    Adapter,
    Mergeable,
    ServableModel,
    Unservable,
    examine,
    find_adapter,
    is_merged,
    list_needed_files,
    mergeable,
    parse_trained_step,
)
from evalrun_data.checkpoints.readiness import (
    TRACKER,
    CompletionMarks,
    explain_unfinished,
    parse_step,
    parse_tracker,
    why_no_step,
)
from evalrun_data.checkpoints.store import CheckpointStore

MAX_COPIES = 8
"""Maximum number of checkpoints without a run of their own that a reply names."""


def list_checkpoints(request: ListingRequest, store: CheckpointStore, now: datetime) -> ListingAnswer:
    """Return the checkpoints to evaluate.

    Raises:
        StoreError: the directory cannot be read.
    """
    names = store.folders()
    if names is None:
        return ListingAnswer(folders=0, note="there is no such directory: the training has written nothing yet")
    matching = [name for name in names if fnmatchcase(name, request.pattern)]
    tracked = None if request.ready_marker else store.tracker(TRACKER)
    signs = CompletionMarks(
        request.ready_marker, None if tracked is None else parse_tracker(tracked), request.quiet_seconds
    )
    stepless = [name for name in matching if parse_step(name) is None]
    ready, troubles, more, copies = _examine_directories(request, store, signs, matching, now)
    troubles += [Trouble(name=name[:255], broken=True, reason=why_no_step(name)) for name in stepless]
    question = "" if ready or troubles else question_about(store, matching)
    unmatched = f"{len(names)} directories, none of which matches {request.pattern}"
    note = _copies_note(copies) if matching else unmatched
    newest = max((step for name in matching if (step := parse_step(name)) is not None), default=None)
    return ListingAnswer(
        folders=len(matching), ready=ready, troubles=troubles, more=more, newest=newest, note=note, question=question
    )


def question_about(store: CheckpointStore, names: list[str]) -> str:
    """Return a question to the user if every file of the second highest checkpoint is newer than all files of the
    highest; otherwise an empty text.

    A training writes them in order. Then the highest number may be that of a copy, and hides every later checkpoint.
    Raises StoreError.
    """
    highest = list(order_directories(names, None, newest_first=True))[:2]
    if len(highest) < 2 or highest[0][0] == highest[1][0]:
        return ""
    (_, top), (_, before) = highest
    written, later = _times(store, top), _times(store, before)
    if not written or not later or min(later) <= max(written):
        return ""
    return (
        f"{before[:120]} was written after {top[:120]}, which has the higher number: if the latter is a copy, or of an "
        "earlier training, move it elsewhere, and the checkpoints below it are evaluated"
    )


def _times(store: CheckpointStore, name: str) -> list[datetime]:
    """Return the write time of each file of a checkpoint; empty unless the store reports all of them."""
    times = [fact.modified for fact in store.files(name).values()]
    known = [time for time in times if time is not None]
    return known if len(known) == len(times) else []


def _examine_directories(
    request: ListingRequest, store: CheckpointStore, signs: CompletionMarks, names: list[str], now: datetime
) -> tuple[list[ReadyCheckpoint], list[Trouble], bool, dict[str, int]]:
    ready: list[ReadyCheckpoint] = []
    troubles: list[Trouble] = []
    known: dict[str, int | None] = dict.fromkeys(request.known)
    known.update(zip(request.known, request.known_steps, strict=False))
    copies: dict[str, int] = {}
    latest = request.policy == "Latest"
    for step, name in order_directories(names, request.from_step, newest_first=latest):
        found = examine_checkpoint(request, store, signs, step, name, now)
        if isinstance(found, Trouble):
            troubles.append(found)
            continue
        digest = found.digest[:DIGEST_DIGITS]
        if digest not in known:
            if len(ready) == request.limit:
                return ready, troubles, True, copies
            ready.append(found)
        elif (first := known[digest]) is not None and first != step:
            copies[name] = first
        known.setdefault(digest, step)
        # A copy with a higher number hides nothing below it.
        if latest and name not in copies:
            break
    return ready, troubles[::-1] if latest else troubles, False, copies


def _copies_note(copies: Mapping[str, int]) -> str:
    """Name the checkpoints that get no run because an earlier checkpoint has the same content; empty without any."""
    if not copies:
        return ""
    named = ", ".join(f"{name} that of step {step}" for name, step in list(copies.items())[:MAX_COPIES])
    more = f" and {len(copies) - MAX_COPIES} more" if len(copies) > MAX_COPIES else ""
    return f"The same content has one run: {named}{more}."[:512]


def order_directories(names: list[str], from_step: int | None, *, newest_first: bool) -> Iterator[tuple[int, str]]:
    """Yield the directories whose step is at least `from_step`, by step, then by name."""
    steps = [(step, name) for name in names if (step := parse_step(name)) is not None]
    wanted = [(step, name) for step, name in steps if from_step is None or step >= from_step]
    yield from sorted(wanted, reverse=newest_first)


def examine_checkpoint(
    request: ListingRequest, store: CheckpointStore, signs: CompletionMarks, step: int, name: str, now: datetime
) -> ReadyCheckpoint | Trouble:
    """Return a complete checkpoint, or why it is incomplete or broken. Raises StoreError."""
    facts = store.files(name)
    waiting = explain_unfinished(step, {path: fact.modified for path, fact in facts.items()}, signs, now)
    if waiting:
        return Trouble(name=name[:255], broken=False, reason=waiting[:512])
    sizes = {path: fact.size for path, fact in facts.items()}
    contents = {path: store.read(name, path, sizes[path]) for path in list_needed_files(sizes)}
    reached = parse_trained_step(contents)
    if reached is not None and reached != step:
        reason = f"is named step {step}, but its {TRAINER_STATE} says step {reached}: a copy? Give it that number"
        return Trouble(name=name[:255], broken=True, reason=reason)
    found = _found(request, sizes, contents)
    if isinstance(found, Unservable):
        return Trouble(name=name[:255], broken=True, reason=found.reason[:512])
    prefix = f"{found.directory}/" if found.directory else ""
    model = {path: fact for path, fact in facts.items() if path.startswith(prefix) and path != request.ready_marker}
    merge = isinstance(found, Mergeable)
    if merge:
        model = {path: fact for path, fact in model.items() if is_merged(path.removeprefix(prefix))}
    path = f"{name}/{found.directory}" if found.directory else name
    adapter = isinstance(found, Adapter) or (isinstance(found, Mergeable) and found.adapter)
    return ReadyCheckpoint(path=path, step=step, digest=store.digest(name, model)[:32], merge=merge, adapter=adapter)


def _found(
    request: ListingRequest, sizes: dict[str, int], contents: dict[str, bytes]
) -> ServableModel | Adapter | Mergeable | Unservable:
    found: ServableModel | Adapter | Mergeable | Unservable | None = find_adapter(sizes, contents, request.base)
    if found is None:
        found = examine(sizes, contents)
        if isinstance(found, Unservable) and request.merge:
            found = mergeable(sizes) or found
    if isinstance(found, Mergeable) and found.adapter and request.base is None:
        return Unservable(f"is of a LoRA training: {NO_BASE}")
    is_adapter = isinstance(found, Adapter) or (isinstance(found, Mergeable) and found.adapter)
    return Unservable(NO_VLLM) if is_adapter and not request.serves_adapters else found
