"""The files from which the page shows the samples of a run, served or static (docs/view.md).

A run is a list of segments of at most `SEGMENT_ROWS` rows. Each segment has its small columns, the positions of its
rows' texts, and an index of their words. A segment is never changed: a running run gets new ones. Nothing here knows
HTTP.
"""
