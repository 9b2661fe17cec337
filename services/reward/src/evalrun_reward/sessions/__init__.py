"""Multi-turn sessions over HTTP: actions that run in the sandbox, and a reward at the end.

Pure: session, observation, messages. I/O: sqlite_store, redis_store; `session_calls` asks the judge and the store,
`routes` speaks HTTP. A program never runs here, and a session lives in the store alone, so that any replica takes any
call.
"""
