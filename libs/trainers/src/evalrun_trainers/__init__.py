"""evalrun's judge as a reward: an HTTP client for trainers, made of Python's standard library alone.

A trainer loads the module named after it (`verl_reward`, `trl_reward`, `slime_reward`, ...). `client` sends samples
in batches; `options` sets the service's address, and the reward of a sample that could not be judged.
"""
