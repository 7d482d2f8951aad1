"""What verl loads in every process of a job; the only package of radverl that imports verl.

verl imports this package at `import verl` by two routes, and either is enough:
- the entry point `radverl` in the group `verl.plugins` (any installed radverl; verl logs its errors at DEBUG only), and
- `VERL_USE_EXTERNAL_MODULES=radverl.verl_plugin` (errors end the process).
Importing it is cheap: it plants hooks that run when, and only if, the verl module they concern is imported.
`radverl doctor` shows what came of it inside a Ray worker.
"""

from radverl.verl_plugin.loading import load, status

__all__ = ["load", "status"]

load()
