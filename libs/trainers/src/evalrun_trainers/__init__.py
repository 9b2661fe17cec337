"""evalrun's judge as a reward: an HTTP client for trainers, made of Python's standard library alone.

`verl_reward`, `verl_manager` and `trl_reward` are what trainers load. `client` sends samples in batches; `options` says
where to and what a sample counts that could not be judged.
"""
