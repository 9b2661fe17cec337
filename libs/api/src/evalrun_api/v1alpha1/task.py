"""The subject of an evaluation: the model, the datasets and the protocol."""

from decimal import Decimal
from typing import Annotated, Final, Literal

from pydantic import Field

from evalrun_api.api_model import (
    PLACE_RULES,
    ApiModel,
    DatasetName,
    DecimalText,
    PositiveFractionText,
    Rule,
    SecretKeyReference,
    ToleranceText,
    list_type,
)

TestGroup = Literal["public", "private", "generated"]

VERL_GRADER: Final = "builtin:verl"


class Model(ApiModel):
    """The model under evaluation."""

    path: Annotated[
        str,
        Field(
            min_length=1,
            max_length=1024,
            description="A hub id (Qwen/Qwen2.5-Coder-7B-Instruct), or a folder with a model in Hugging Face's layout: "
            "pvc://CLAIM/DIR, s3://..., gs://...",
        ),
        *PLACE_RULES,
        Rule(
            "!self.startsWith('/') && !self.startsWith('.') && !self.startsWith('file:')",
            "a path of your machine means nothing in a pod: write a hub id, pvc://CLAIM/DIR, s3://... or gs://...",
            place="cluster",
        ),
    ]
    adapter: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=1024,
            description="A LoRA adapter that is evaluated on the model of path: a folder with adapter_config.json and "
            "adapter_model.safetensors, pvc://CLAIM/DIR, s3://... or gs://...",
        ),
        *PLACE_RULES,
        Rule(
            "self.contains('://') && !self.startsWith('file:')",
            "name a folder that a pod can read: write pvc://CLAIM/DIR, s3://... or gs://...",
            place="cluster",
        ),
    ] = None
    revision: str | None = Field(
        None, min_length=1, max_length=256, description="Commit, tag or branch of a hub id; unset: its main branch."
    )
    trust_remote_code: bool = Field(
        default=False, description="Run Python code that comes with the model. Only for models that you trust."
    )
    token_secret_ref: SecretKeyReference | None = Field(
        None, description="The hub's access token, for gated or private models."
    )

    RULES = (
        Rule(
            "!has(self.revision) || !self.path.contains('://')",
            "revision belongs to a hub id; a checkpoint URL names its version itself: remove revision",
            ".revision",
        ),
        Rule(
            "!has(self.adapter) || self.adapter != self.path",
            "adapter is the folder of the LoRA adapter alone: name its base model in path",
            ".adapter",
        ),
    )

    @property
    def evaluated(self) -> str:
        """Name of what answers: the adapter, if there is one, else the model."""
        return self.adapter or self.path


class Comparator(ApiModel):
    """The comparison of a program's output with the expected one."""

    name: Literal["exact", "verl", "sandbox-fusion", "tokens", "standard"] = Field(
        "standard",
        description="exact: same bytes. verl: same except for newlines at the end. sandbox-fusion: line by line, "
        "ignoring case, numbers within 1e-5 relative. tokens: tokens separated by white space, with the options below. "
        "standard: tokens with abs = rel = 1e-6. (A checker program is part of the problem's own record.)",
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
    """Limits of one test, for problems whose record sets none."""

    __test__ = False  # not a test class, whatever pytest makes of its name

    time_seconds: int | None = Field(
        None, ge=1, le=600, description="CPU seconds per test; unset: 10, and 30 for contest sets and graders."
    )
    time_milliseconds: int | None = Field(
        None, ge=100, le=600_000, description="The same in milliseconds, instead of timeSeconds: 2500 is 2.5 s."
    )
    memory_mib: int | None = Field(
        None, ge=16, le=65536, alias="memoryMiB", description="Memory per test, in MiB; unset: 1024."
    )
    output_kib: int | None = Field(
        None,
        ge=1,
        le=65536,
        alias="outputKiB",
        description="Maximum stdout, in KiB; unset: 65536. Only the end of stderr is kept.",
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
        """The time limit, however it is written; None if it is unset."""
        return self.time_seconds if self.time_milliseconds is None else self.time_milliseconds / 1000


class Grader(ApiModel):
    """A function that scores answers which no test can decide."""

    path: Annotated[
        str,
        Field(
            min_length=1,
            max_length=1024,
            description="A Python file that defines the function, as verl's custom_reward_function: a place as for "
            "source. builtin:verl: verl's default_compute_score by each row's data_source, in a sandbox that has "
            "verl's scorers; its code data sets go to the judge's tests instead.",
        ),
        *PLACE_RULES,
        Rule(
            "!self.startsWith('builtin:') || self == 'builtin:verl'",
            "the only builtin grader is builtin:verl",
        ),
        Rule(
            "self.startsWith('builtin:') || (self.contains('://') && !self.startsWith('file://'))",
            "a path of your machine means nothing in a pod: write pvc://CLAIM/PATH, s3://..., gs://... or https://...",
            place="cluster",
        ),
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
    """One dataset of the run."""

    name: DatasetName = Field(description="The dataset's name in every result, e.g. humaneval.")
    source: Annotated[
        str,
        Field(
            min_length=1,
            max_length=1024,
            description="Where the problems are: an fsspec URL (s3://..., gs://..., https://...), pvc://CLAIM/PATH or "
            "builtin:demo. Its format: problem records (JSONL, Parquet), or HumanEval and MBPP as published. Without a "
            "cluster also a path, relative to the manifest's folder.",
        ),
        *PLACE_RULES,
        Rule(
            "!self.startsWith('builtin:') || self == 'builtin:demo'",
            "the only builtin dataset is builtin:demo",
        ),
        Rule(
            "self.startsWith('builtin:') || (self.contains('://') && !self.startsWith('file://'))",
            "a path of your machine means nothing in a pod: write pvc://CLAIM/PATH, s3://..., gs://... or https://...",
            place="cluster",
        ),
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
        Rule(
            "self.contains('://') && !self.startsWith('file://')",
            "a path of your machine means nothing in a pod: write pvc://CLAIM/PATH, s3://..., gs://... or https://...",
            place="cluster",
        ),
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
        Rule(
            "self.contains('://') && !self.startsWith('file://')",
            "a path of your machine means nothing in a pod: write pvc://CLAIM/PATH, s3://..., gs://... or https://...",
            place="cluster",
        ),
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
    feedback: Literal["PublicTests", "Wrong"] = Field(
        "PublicTests",
        description="EVAL@turns: what a failed answer is told. PublicTests: how it failed, and failed public tests; "
        "private and generated ones never. Wrong: nothing but that it is wrong, as a control.",
    )
    stop_after_timeouts: int = Field(
        3,
        ge=0,
        le=100_000,
        description="After this many time-outs, the problem's remaining tests run with a short limit (1 s, or a tenth "
        "of their own if that is less); a test that exceeds it counts as a time-out. 0: every test gets its full "
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
            "!has(self.role) || self.role != 'train'",
            "training data is never evaluated: write the dev or test split, or role: dev",
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


class Budget(ApiModel):
    """The budget of EVAL@budget."""

    output_tokens_per_problem: int = Field(
        ge=1, le=100_000_000, description="Output tokens per problem; the last sample may be truncated."
    )


class Turns(ApiModel):
    """The turns of EVAL@turns."""

    limit: int = Field(ge=2, le=32, description="Maximum answers per sample, the first one included.")
    shown_tests: int = Field(
        1, ge=0, le=16, description="Maximum failed public tests in the feedback, with input, expected and own output."
    )
    shown_characters: int = Field(500, ge=16, le=8192, description="Maximum characters of each text of a shown test.")
    template: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=4096,
            description="The feedback after a failed answer. {status} is replaced by how it failed, {tests} by the "
            "shown tests; unset: our own.",
        ),
        Rule(
            "self.contains('{status}') || self.contains('{tests}')",
            "the feedback would say nothing about the answer: write {status}, {tests} or both, or feedback: Wrong",
        ),
    ] = None
    max_prompt_tokens: int | None = Field(
        None,
        ge=64,
        le=1_048_576,
        description="No turn opens whose conversation would exceed this many tokens; unset: rollout.promptLength, and "
        "4096 with endpoints.",
    )


class Protocol(ApiModel):
    """The protocol: how answers are drawn and what is reported."""

    name: Literal["EVAL@1", "EVAL@k", "EVAL@budget", "EVAL@turns"] = Field(
        "EVAL@1",
        description="EVAL@1: one greedy answer. EVAL@k: samples answers at a temperature above 0, pass@k. EVAL@budget: "
        "samples until a token budget is spent. EVAL@turns: a failed answer gets feedback and another turn.",
    )
    temperature: Annotated[
        DecimalText,
        Field(description='Sampling temperature in quotes, "0.0" (greedy) to "2.0".'),
        Rule("double(self) <= 2.0", 'write a temperature from "0.0" to "2.0"'),
    ] = "0.0"
    top_p: PositiveFractionText = Field("1.0", description='Nucleus sampling, in quotes; "1.0": off.')
    top_k: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="Sample from this many of the likeliest tokens; unset: all. Only vLLM and SGLang support it.",
    )
    min_p: PositiveFractionText | None = Field(
        None,
        description="Exclude tokens whose probability is below this fraction of the likeliest one's, in quotes; unset: "
        "off. Only vLLM and SGLang support it.",
    )
    repetition_penalty: Annotated[
        DecimalText | None,
        Field(
            description='Above "1.0", tokens that already occurred become less likely; in quotes; unset: off. Only '
            "vLLM and SGLang support it."
        ),
        Rule("double(self) > 0.0 && double(self) <= 2.0", 'write a penalty above "0.0" and up to "2.0", e.g. "1.05"'),
    ] = None
    stop: list[Annotated[str, Field(min_length=1, max_length=256)]] = Field(
        [],
        max_length=16,
        description="Texts that end an answer; they are not part of it.",
        json_schema_extra=list_type("atomic"),
    )
    ignore_eos: bool = Field(
        default=False,
        description="Continue after the end-of-text token up to maxNewTokens, for load tests. Only vLLM and SGLang "
        "support it.",
    )
    samples: int = Field(
        1,
        ge=1,
        le=1000,
        description="Answers per problem; more than 1 needs EVAL@k, or EVAL@turns with a temperature above 0.",
    )
    k: list[Annotated[int, Field(ge=1, le=1000)]] = Field(
        [],
        max_length=16,
        description="EVAL@k: the values of k for which pass@k is reported, each at most samples.",
        json_schema_extra=list_type("set"),
    )
    max_new_tokens: int = Field(2048, ge=1, le=1_048_576, description="Maximum length of an answer, in tokens.")
    seed: int = Field(0, ge=0, le=2_000_000_000, description="Seed; sample i of a problem is requested with seed + i.")
    deterministic: bool = Field(
        default=False,
        description="Use batch-invariant kernels: the same answers at any load, but slower.",
    )
    noise_floor_repeats: int = Field(
        0,
        ge=0,
        le=20,
        description="Repeat a greedy run this many times to measure how often verdicts change by chance.",
    )
    budget: Budget | None = Field(None, description="The budget of EVAL@budget.")
    turns: Turns | None = Field(None, description="The turns of EVAL@turns.")

    RULES = (
        Rule(
            "self.name != 'EVAL@1' || self.samples == 1",
            'EVAL@1 is one greedy answer: write samples: 1, or name: EVAL@k with temperature: "0.8" (to repeat a '
            "greedy run use noiseFloorRepeats)",
            ".samples",
        ),
        Rule(
            "self.name != 'EVAL@1' || double(self.temperature) == 0.0",
            'EVAL@1 is greedy: write temperature: "0.0", or name: EVAL@k',
            ".temperature",
        ),
        Rule(
            "self.name != 'EVAL@1' || double(self.topP) == 1.0",
            'EVAL@1 is greedy: write topP: "1.0", or name: EVAL@k',
            ".topP",
        ),
        Rule(
            "self.name == 'EVAL@1' || (self.name == 'EVAL@turns' && self.samples == 1) || "
            "double(self.temperature) > 0.0",
            'at temperature 0 every sample is the same: write a temperature above 0, e.g. "0.8", or name: EVAL@1',
            ".temperature",
        ),
        Rule(
            "self.k.all(k, k <= self.samples)",
            "pass@k needs at least k samples: raise samples, or list only k up to samples",
            ".k",
        ),
        Rule(
            "self.name != 'EVAL@k' || size(self.k) > 0",
            "EVAL@k reports pass@k: list at least one k, e.g. k: [1, 10]",
            ".k",
        ),
        Rule(
            "self.name == 'EVAL@k' || size(self.k) == 0",
            "k belongs to EVAL@k: remove k, or write name: EVAL@k",
            ".k",
        ),
        Rule(
            "self.name != 'EVAL@budget' || has(self.budget)",
            "EVAL@budget needs budget.outputTokensPerProblem",
            ".budget",
        ),
        Rule(
            "self.name == 'EVAL@budget' || !has(self.budget)",
            "budget belongs to EVAL@budget: remove budget, or write name: EVAL@budget",
            ".budget",
        ),
        Rule(
            "self.name != 'EVAL@budget' || self.samples == 1",
            "EVAL@budget draws samples until the budget is spent: remove samples",
            ".samples",
        ),
        Rule(
            "self.name != 'EVAL@turns' || has(self.turns)",
            "EVAL@turns needs turns.limit",
            ".turns",
        ),
        Rule(
            "self.name == 'EVAL@turns' || !has(self.turns)",
            "turns belongs to EVAL@turns: remove turns, or write name: EVAL@turns",
            ".turns",
        ),
        Rule(
            "self.noiseFloorRepeats == 0 || self.name == 'EVAL@1'",
            'noiseFloorRepeats repeats a greedy run: remove it, or write name: EVAL@1 with temperature: "0.0"',
            ".noiseFloorRepeats",
        ),
    )

    @property
    def temperature_value(self) -> float:
        """`temperature` as a number."""
        return float(self.temperature)

    @property
    def top_p_value(self) -> float:
        """`topP` as a number."""
        return float(self.top_p)

    @property
    def min_p_value(self) -> float | None:
        """`minP` as a number."""
        return None if self.min_p is None else float(self.min_p)

    @property
    def repetition_penalty_value(self) -> float | None:
        """`repetitionPenalty` as a number."""
        return None if self.repetition_penalty is None else float(self.repetition_penalty)

    @property
    def greedy(self) -> bool:
        """Whether answers are drawn without chance."""
        return Decimal(self.temperature) == 0
