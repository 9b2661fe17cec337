"""`report.html`: one self-contained page about a run. Pure, but for reading the style sheet that lies beside it.

`markup` escapes everything that is not explicitly markup; `plots` draws SVG; `document` puts the page together from
summary.json, run_info.json, the totals by problem, the QA records and the comparators' disagreements.
"""
