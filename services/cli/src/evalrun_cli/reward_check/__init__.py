"""`evalrun reward-check`: what rewards a trainer gets while calls fail.

Pure: answers, result, ways. I/O: faulty_proxy, parts, passes.
"""
