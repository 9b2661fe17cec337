"""`report.html`: a self-contained page about a run. Pure, except for reading the style sheet.

`markup` escapes everything that is not explicitly markup; `plots` draws SVG; `document` puts the page together from
summary.json, run_info.json, the totals by problem, the QA records and the comparators' disagreements.
"""
