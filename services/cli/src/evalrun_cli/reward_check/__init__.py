"""`evalrun reward-check`: checks which rewards a trainer gets while calls fail.

Pure: answers, result, ways. I/O: check, faulty_proxy, passes.
"""
