"""The client of the judge: an answer to a problem becomes a judge request, and streams carry it there.

Pure: judge_request, submit_mode, fusion_names. I/O: judge_client. `fake_judge` is the judge of tests. Runs no program
and knows no run.
"""
