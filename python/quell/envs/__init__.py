"""Environments for reinforcement learning: the agent controls a queue (Gymnasium, extra `envs`).

>>> import gymnasium
>>> import quell
>>> env = gymnasium.make("quell/RlAqm-v0")
>>> envs = gymnasium.make_vec("quell/RlAqm-v0", num_envs=32)       # steps in Rust, on all cores

The names are registered by `import quell` after `import gymnasium`, by `import quell.envs`, or by a name with its
module: `gymnasium.make("quell:quell/RlAqm-v0")`.
"""

from __future__ import annotations

from quell.envs.task import READINGS, Task  # first: its error names a missing package

# isort: split
import gymnasium

from quell.envs.general import baseline, env, make_task, vector_env
from quell.envs.learnqueue import LearnQueueEnv, LearnQueueVectorEnv
from quell.envs.lfq import LfqEnv, LfqVectorEnv
from quell.envs.queue import QueueEnv, QueueVectorEnv
from quell.envs.rl_aqm import RlAqmEnv, RlAqmVectorEnv

__all__ = [
    "READINGS",
    "LearnQueueEnv",
    "LearnQueueVectorEnv",
    "LfqEnv",
    "LfqVectorEnv",
    "QueueEnv",
    "QueueVectorEnv",
    "RlAqmEnv",
    "RlAqmVectorEnv",
    "Task",
    "baseline",
    "env",
    "make_task",
    "vector_env",
]

for _name in ("RlAqm", "LearnQueue", "Lfq"):
    gymnasium.register(
        id=f"quell/{_name}-v0",
        entry_point=f"quell.envs:{_name}Env",
        vector_entry_point=f"quell.envs:{_name}VectorEnv",
    )
