import time
from collections.abc import Callable

import pytest
from builders.results.web_page import Page

from evalrun_results.report.distributions import amount_bars, share_bars
from evalrun_results.report.highlighter import answer, highlight_code
from evalrun_results.report.markup import Markup, element, escape_text, joined
from evalrun_results.report.plots import draw_histogram, draw_interval_bar, draw_stacked_bar
from evalrun_results.report.quantities import figure, number, percent, round_seconds, seconds


def test_element_escapes_text_and_attributes() -> None:
    evil = "\"'><script>&"
    assert element("p", evil, title=evil) == (
        '<p title="&quot;&#x27;&gt;&lt;script&gt;&amp;">&quot;&#x27;&gt;&lt;script&gt;&amp;</p>'
    )


def test_only_markup_stays_unescaped_and_formatting_turns_markup_into_text() -> None:
    bold = element("b", "x")
    assert element("p", bold, [bold, None, [3]]) == "<p><b>x</b><b>x</b>3</p>"
    assert joined(f"{bold}") == "&lt;b&gt;x&lt;/b&gt;"
    assert not isinstance(bold + "<i>", Markup)


def test_attributes_are_left_out_or_alone() -> None:
    assert element("details", class_="a", open=True, id=None, hidden=False) == '<details class="a" open></details>'
    assert element("rect", stroke_width=1.5, x=0) == '<rect stroke-width="1.5" x="0"/>'


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x00\x1b[31m\x07", "a\u2400\u241b[31m\u2407"),
        ("if x:\u202e # \u2066nothing", "if x:\u27e8U+202E\u27e9 # \u27e8U+2066\u27e9nothing"),
        ("\ud800 \x85", "\ufffd \ufffd"),
        ("one\r\ntwo\rthree\tfour\n", "one\ntwo\u240dthree\tfour\n"),
    ],
)
def test_escape_text_makes_control_characters_visible(text: str, shown: str) -> None:
    assert escape_text(text) == shown
    assert escape_text(text).encode()


PROGRAMS = [
    ("python", 'def f(x):\n    # it\'s <b>\n    return "a\'b" + \'c\' + """d\n"e""" + x1 + 0x1F\n'),
    ("python", '\'unclosed\nfor x in y: pass\n"""never closed\nif'),
    ("python", "défi = 'ü' ; クラス = 1"),
    ("cpp", '#include <a>\nint main() { /* it\'s */ return "x\\"y"[0]; } // end'),
    ("brainfuck", "+[-->-[>>+>-----<<]<--<---]>-.>"),
]


@pytest.mark.parametrize(("language", "code"), PROGRAMS)
def test_highlight_code_keeps_every_character(language: str, code: str) -> None:
    assert Page.of(highlight_code(code, language)).text == code


def test_highlight_code_marks_keywords_strings_comments_and_numbers() -> None:
    made = highlight_code("for form in '# no': # for\n    return 12", "py")
    assert made == (
        '<span class="k">for</span> form <span class="k">in</span> <span class="s">&#x27;# no&#x27;</span>: '
        '<span class="c"># for</span>\n    <span class="k">return</span> <span class="n">12</span>'
    )


def test_an_answers_fences_become_programs_and_the_rest_stays_text() -> None:
    made = answer("Use <for>:\n```python\nfor x in y:\n    pass\n```\nfor you\n```\nif\n")
    assert made.startswith('<div class="prose" dir="auto">Use &lt;for&gt;:</div><pre dir="ltr"><code><span class="k">')
    assert '<div class="prose" dir="auto">for you</div>' in made
    assert made.endswith('<pre dir="ltr"><code><span class="k">if</span></code></pre>')
    assert answer("    return 1\n").startswith("<pre")
    assert answer("I cannot do this for you").startswith("<div")
    assert answer("") == ""


@pytest.mark.parametrize(
    "make",
    [
        lambda n: '"' * n, lambda n: "'''" * n, lambda n: "/*" * n, lambda n: "\\" * n, lambda n: " " * n + "#",
        lambda n: "`" * n, lambda n: "```\n" * n, lambda n: "for " * n, lambda n: "1." * n, lambda n: '"\\' * n,
    ],
)  # fmt: skip
def test_highlighting_takes_linear_time_on_whatever_a_model_writes(make: Callable[[int], str]) -> None:
    started = time.process_time()
    answer(make(12_000))
    highlight_code(make(12_000), "cpp")
    assert time.process_time() - started < 3.0  # a quadratic expression would need minutes


def test_share_bars_count_0_and_100_percent_separately() -> None:
    bars = share_bars([0, 0, 0.05, 0.1, 0.5, 0.999, 1, 1])
    assert [bar.count for bar in bars] == [2, 1, 1, 0, 0, 0, 1, 0, 0, 0, 1, 2]
    assert (bars[0].label, bars[1].label, bars[-1].label) == ("no test passed", "0 % to 10 %", "every test passed")


@pytest.mark.parametrize(
    "values",
    [
        [0.004, 0.012, 3.0, 9.99],
        [2.0] * 9,
        [1.0, 2.0, 3.0],
        [1e-9, 1e9],
        [0.0, 0.0, 5.0],
        [0.0],
        [1.0],
        [5e-324, 1.0],
        [2.0, float("nan")],
        [0.2, 2.0, 20.0],
    ],
)
def test_every_amount_is_in_one_bar(values: list[float]) -> None:
    bars = amount_bars(values, round_seconds)
    assert sum(bar.count for bar in bars) == sum(value >= 0 for value in values)
    assert len(bars) <= 20
    assert draw_histogram(bars, "x").count("<rect") == 2 * len(bars)


def test_amounts_that_spread_widely_are_on_a_1_2_5_scale() -> None:
    bars = amount_bars([0.001, 0.003, 0.03, 0.3], round_seconds)
    assert [bar.label for bar in bars][:3] == ["1 ms to 2 ms", "2 ms to 5 ms", "5 ms to 10 ms"]
    assert [bar.count for bar in bars] == [1, 1, 0, 0, 1, 0, 0, 1]


def test_plot_of_no_values_says_that_there_is_nothing_to_show() -> None:
    bars = amount_bars([0.0, 0.002, 0.009, 0.03], round_seconds)
    assert [bar.label for bar in bars][:2] == ["0 s", "0 s to 5 ms"]
    assert [bar.tick for bar in bars].count("0 s") == 1

    assert amount_bars([], seconds) == []
    assert "nothing to show" in draw_histogram([], "x")
    assert "nothing to show" in draw_stacked_bar({"success": 0}, {"success": "success"}, "x")
    assert draw_interval_bar(None, None, None) is None


def test_numbers_are_written_in_their_units() -> None:
    assert [seconds(value) for value in (None, 0.0, 0.00123, 0.9, 61.0, 300.0, 9000.0)] == [
        "\u2013", "0 s", "1.23 ms", "900 ms", "61.0 s", "5.0 min", "2.5 h",
    ]  # fmt: skip
    assert [round_seconds(value) for value in (0.0, 0.005, 2.0, 50.0, 200.0)] == [
        "0 s",
        "5 ms",
        "2 s",
        "50 s",
        "3.3 min",
    ]
    assert percent(0.5) == "50.0\u00a0%"
    assert number(1234567.0) == "1\u202f234\u202f567"
    assert figure("p95_gen_time", 2.0) == "2.00 s"
    assert figure("tokens_per_solved", 80.04) == "80"
    assert figure("throughput", None) == "\u2013"
