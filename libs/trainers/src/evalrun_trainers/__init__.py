"""evalrun's judge as a reward: an HTTP client for trainers, made of Python's standard library alone.

Modules named for a trainer (`verl_reward`, `trl_reward`, `slime_reward`, ...) are what it loads. `client` sends samples
in batches; `options` says where to and what a sample counts that could not be judged.
"""
