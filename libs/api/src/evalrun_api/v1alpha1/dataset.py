"""A dataset of a run: where its problems are, how they are asked, and how answers are judged."""

from typing import Annotated, Final, Literal

from pydantic import Field

from evalrun_api.api_model import PLACE_RULES, ApiModel, Choice, DatasetName, Rule, ToleranceText, list_type
from evalrun_registry.comparators import COMPARATORS, COMPUTED, STANDARD
from evalrun_registry.limits import CONTEST_LIMITS, DEFAULT_LIMITS, PartialLimits

TestGroup = Literal["public", "private", "generated"]

VERL_GRADER: Final = "builtin:verl"

_NOT_IN_A_POD: Final = (
    "a path of your machine means nothing in a pod: write pvc://CLAIM/PATH, s3://..., gs://... or https://..."
)
URL_RULE: Final = Rule("self.contains('://') && !self.startsWith('file://')", _NOT_IN_A_POD, place="cluster")
BUILTIN_OR_URL_RULE: Final = Rule(
    "self.startsWith('builtin:') || (self.contains('://') && !self.startsWith('file://'))",
    _NOT_IN_A_POD,
    place="cluster",
)


class Comparator(ApiModel):
    """The comparison of a program's output with the expected one."""

    name: Annotated[str, Choice(COMPUTED)] = Field(
        STANDARD,
        description="".join(f"{name}: {COMPARATORS[name].text}. " for name in COMPUTED)
        + "(A checker program is part of the problem's own record.)",
    )
    case_sensitive: bool | None = Field(None, description="tokens only: whether case matters; unset: true.")
    abs: ToleranceText | None = Field(None, description='tokens only: absolute tolerance of decimals, e.g. "1e-6".')
    rel: ToleranceText | None = Field(None, description='tokens only: relative tolerance of decimals, e.g. "1e-6".')

    RULES = (
        Rule(
            "self.name == 'tokens' || (!has(self.caseSensitive) && !has(self.abs) && !has(self.rel))",
            "caseSensitive, abs and rel are options of tokens: write name: tokens, or remove them",
        ),
    )

    @property
    def absolute_tolerance(self) -> float | None:
        """`abs` as a number."""
        return None if self.abs is None else float(self.abs)

    @property
    def relative_tolerance(self) -> float | None:
        """`rel` as a number."""
        return None if self.rel is None else float(self.rel)


class TestLimits(ApiModel):
    """Limits of a test, for problems whose record sets none."""

    __test__ = False  # not a test class, whatever pytest makes of its name

    time_seconds: int | None = Field(
        None,
        ge=1,
        le=600,
        description=f"CPU seconds per test; unset: {DEFAULT_LIMITS.time_seconds:g}, and "
        f"{CONTEST_LIMITS.time_seconds:g} for contest sets and graders.",
    )
    time_milliseconds: int | None = Field(
        None, ge=100, le=600_000, description="The same in milliseconds, instead of timeSeconds: 2500 is 2.5 s."
    )
    memory_mib: int | None = Field(
        None,
        ge=16,
        le=65536,
        alias="memoryMiB",
        description=f"Memory per test, in MiB; unset: {DEFAULT_LIMITS.memory_mib}.",
    )
    output_kib: int | None = Field(
        None,
        ge=1,
        le=65536,
        alias="outputKiB",
        description=f"Maximum stdout, in KiB; unset: {DEFAULT_LIMITS.output_kib}. Only the end of stderr is kept.",
    )

    RULES = (
        Rule(
            "!has(self.timeSeconds) || !has(self.timeMilliseconds)",
            "timeSeconds and timeMilliseconds say the same: remove one of them",
            ".timeMilliseconds",
        ),
    )

    @property
    def cpu_seconds(self) -> float | None:
        """The time limit in CPU seconds, from timeSeconds or timeMilliseconds; None if both are unset."""
        return self.time_seconds if self.time_milliseconds is None else self.time_milliseconds / 1000

    @property
    def partial(self) -> PartialLimits:
        """The limits that are set."""
        return PartialLimits(self.cpu_seconds, self.memory_mib, self.output_kib)


class Grader(ApiModel):
    """A function that scores answers which no test can decide."""

    path: Annotated[
        str,
        Field(
            min_length=1,
            max_length=1024,
            description="A Python file that defines the function, as verl's custom_reward_function: a place as for "
            "source. builtin:verl: verl's default_compute_score by each row's data_source, in a sandbox that has "
            "verl's scorers; its code datasets go to the judge's tests instead.",
        ),
        *PLACE_RULES,
        Rule(
            "!self.startsWith('builtin:') || self == 'builtin:verl'",
            "the only builtin grader is builtin:verl",
        ),
        BUILTIN_OR_URL_RULE,
    ]
    name: Annotated[str, Field(max_length=256, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] = Field(
        "compute_score",
        description="The function: called with data_source, solution_str, ground_truth and extra_info, it returns a "
        "number, or a dict with score and, if it decides what is accepted, acc.",
    )

    RULES = (
        Rule(
            "self.path != 'builtin:verl' || self.name == 'compute_score'",
            "builtin:verl names its own function: remove name",
            ".name",
        ),
    )

    @property
    def is_verls(self) -> bool:
        """Whether verl's own routing scores what is not code."""
        return self.path == VERL_GRADER


class Dataset(ApiModel):
    """A dataset of the run."""

    name: DatasetName = Field(description="The dataset's name in every result, e.g. humaneval.")
    source: Annotated[
        str,
        Field(
            min_length=1,
            max_length=1024,
            description="Where the problems are: an fsspec URL (s3://..., gs://..., https://...), pvc://CLAIM/PATH or "
            "builtin:demo. Its format: problem records (JSONL, Parquet), or HumanEval and MBPP as published. Without a "
            "cluster also a path, relative to the manifest's directory.",
        ),
        *PLACE_RULES,
        Rule(
            "!self.startsWith('builtin:') || self == 'builtin:demo'",
            "the only builtin dataset is builtin:demo",
        ),
        BUILTIN_OR_URL_RULE,
    ]
    judge_mode: Literal["RunCode", "Submit"] = Field(
        "RunCode",
        description="RunCode: the judge runs the tests and has a result for each. Submit: SandboxFusion runs its own "
        "tests; the program can forge such results, so no gate uses them.",
    )
    comparator: Comparator | None = Field(
        None,
        description="Comparison for stdin/stdout problems; unset: standard. A problem's own tolerance takes "
        "precedence.",
    )
    grader: Grader | None = Field(
        None,
        description="Scores answers that no test can decide. It runs in the sandbox, separately from the answer. "
        "Unset: the tests decide.",
    )
    limits: TestLimits | None = Field(None, description="Limits of a test, if the problem's record sets none.")
    tests: list[TestGroup] = Field(
        ["public", "private", "generated"],
        min_length=1,
        max_length=3,
        description="The groups of a problem's tests that are used.",
        json_schema_extra=list_type("set"),
    )
    prompt_format: Literal["Chat", "Completion"] = Field(
        "Chat", description="Chat: /v1/chat/completions. Completion: /v1/completions with the unchanged prompt."
    )
    system_prompt: str | None = Field(
        None,
        min_length=1,
        max_length=16_384,
        description="System message of each chat; a problem's own system message takes precedence.",
    )
    prompt_template: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=1024,
            description="A text file that replaces our prompt: the user message of a chat, or the whole completion "
            "prompt. It must contain {prompt} and may contain {asserts} (the first three), {entry_point} and "
            "{language}. The location is written as in source.",
        ),
        *PLACE_RULES,
        URL_RULE,
    ] = None
    max_answer_characters: int | None = Field(
        None, ge=1, le=100_000_000, description="Truncate longer answers before the program is extracted; unset: never."
    )
    max_problems: int | None = Field(
        None, ge=1, le=10_000_000, description="Use only this many problems, from the beginning; unset: all."
    )
    exclude_problems: list[Annotated[str, Field(min_length=1, max_length=256)]] = Field(
        [],
        max_length=1000,
        description="Ids of problems to leave out, e.g. those whose tests accept wrong programs, as `evalrun data "
        "audit-tests` found; maxProblems counts the remaining ones. An unknown id is an error.",
        json_schema_extra=list_type("set"),
    )
    manifest: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=1024,
            description="The manifest that the records must match, as `evalrun data prepare` writes it, with its audit "
            "beside it. Unset: one in data_manifests beside the source is used, if the source is on a volume or "
            "on this machine.",
        ),
        *PLACE_RULES,
        URL_RULE,
    ] = None
    audit_policy: Literal["Require", "Warn", "Ignore"] | None = Field(
        None,
        description="Require: refuse the run unless the records match a manifest whose audit passed. Warn: run, and "
        "record what is wrong. Ignore: check nothing. Unset: if there is a manifest, refuse a failed audit and records "
        "that do not match.",
    )
    role: Literal["train", "dev", "test"] | None = Field(
        None,
        description="The dataset's purpose: a gate may use a test dataset only if allowTestRole names it. Unset: the "
        "role in its audit or its records.",
    )
    purpose: Literal["Evaluation", "Sampling"] = Field(
        "Evaluation",
        description="Sampling: answers are drawn and judged for training, e.g. `evalrun export pairs`; the dataset has "
        "counts and no metrics, and no gate may use it. Required for role: train.",
    )
    feedback: Literal["PublicTests", "Wrong"] = Field(
        "PublicTests",
        description="EVAL@turns: what a failed answer is told. PublicTests: how it failed, and failed public tests; "
        "private and generated ones never. Wrong: nothing but that it is wrong, as a control.",
    )
    function_tests: Literal["auto", "apart", "together"] = Field(
        "auto",
        description="Where the assertions of function tests run. apart: not in the program's process, and tests that "
        "need it are not judged. together: in the program's process, where a verdict can be forged. auto: apart unless "
        "the tests' text shows that they need the program's process.",
    )
    stop_after_timeouts: int = Field(
        3,
        ge=0,
        le=100_000,
        description="After this many timeouts, the problem's remaining tests run with a short limit (1 s, or a tenth "
        "of their own if that is less); a test that exceeds it counts as a timeout. 0: every test gets its full "
        "limit.",
    )

    RULES = (
        Rule(
            "!has(self.systemPrompt) || self.promptFormat == 'Chat'",
            "a completion prompt has no system message: remove systemPrompt, or write promptFormat: Chat",
            ".systemPrompt",
        ),
        Rule(
            "!has(self.manifest) || !has(self.auditPolicy) || self.auditPolicy != 'Ignore'",
            "auditPolicy: Ignore does not check the manifest: remove manifest, or write auditPolicy: Warn",
            ".auditPolicy",
        ),
        Rule(
            "!has(self.role) || self.role != 'train' || self.purpose == 'Sampling'",
            "training data is never evaluated: write the dev or test split, role: dev, or purpose: Sampling to draw "
            "answers for training",
            ".role",
        ),
        Rule(
            "self.judgeMode != 'Submit' || !has(self.comparator)",
            "with judgeMode: Submit SandboxFusion compares: remove comparator, or write judgeMode: RunCode",
            ".comparator",
        ),
        Rule(
            "self.judgeMode != 'Submit' || !has(self.grader)",
            "with judgeMode: Submit SandboxFusion decides: remove grader, or write judgeMode: RunCode",
            ".grader",
        ),
        Rule(
            "!has(self.grader) || !has(self.comparator) || self.grader.path == 'builtin:verl'",
            "a grader's score decides and nothing is compared: remove comparator, or remove grader",
            ".comparator",
        ),
    )
