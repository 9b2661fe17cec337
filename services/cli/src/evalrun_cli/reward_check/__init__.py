"""`evalrun reward-check`: checks which rewards a trainer gets while calls fail.

Pure: answers, result, ways. I/O: faulty_proxy, parts, passes.
"""
