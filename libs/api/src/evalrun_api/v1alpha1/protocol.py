"""The protocol of a run: how completions are sampled, and which metrics are reported."""

from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field

from evalrun_api.api_model import ApiModel, DecimalText, PositiveFractionText, Rule, list_type
from evalrun_registry.limits import MAX_LOG_PROBS


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
    calculate_log_probs: bool = Field(
        default=False,
        description="Store the log-probability of every token of an answer, where the server gives them.",
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
    seeds: int = Field(
        1,
        ge=1,
        le=20,
        description="Repeat the draw with this many seeds, samples answers each; every figure's mean and deviation "
        "over the seeds stands in summary.json. Needs a temperature above 0.",
    )
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
            "self.seeds == 1 || double(self.temperature) > 0.0",
            'at temperature 0 every seed gives the same answers: write a temperature above 0, e.g. "0.8", with name: '
            "EVAL@k and k: [1] (to repeat a greedy run use noiseFloorRepeats)",
            ".seeds",
        ),
        Rule(
            "self.seeds == 1 || self.name != 'EVAL@budget'",
            "EVAL@budget draws samples until the budget is spent: remove seeds",
            ".seeds",
        ),
        Rule(
            "self.seeds * self.samples <= 1000",
            "seeds times samples is more than 1000 answers per problem: write fewer of either",
            ".seeds",
        ),
        Rule(
            f"!self.calculateLogProbs || self.maxNewTokens <= {MAX_LOG_PROBS}",
            f"calculateLogProbs stores at most {MAX_LOG_PROBS} tokens per answer: write maxNewTokens up to that, or "
            "remove calculateLogProbs",
            ".calculateLogProbs",
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
    def answers_per_problem(self) -> int:
        """Samples of all seeds. Sample i belongs to the seed i // samples."""
        return self.samples * self.seeds

    @property
    def greedy(self) -> bool:
        """Whether answers are drawn without chance."""
        return Decimal(self.temperature) == 0
