"""Says whether a controller watches the jobs, and what to do if nobody does."""

from __future__ import annotations

from rung.jobs.job import Job
from rung.jobs.model.paths import HomePaths
from rung.runner.state.lock import is_owned, note
from rung.runner.state.owner import find_owner
from rung.runner.state.store import Store
from rung.runner.views.times import local_time

START = "`rung controller --background` starts one"


def controller_name(paths: HomePaths) -> str:
    """Return how to call the controller that runs now."""
    owner = find_owner(paths)
    return f"controller pid {owner.pid}" if owner is not None else "a controller"


def unwatched(paths: HomePaths, store: Store, job: Job | None = None) -> str | None:
    """Return one line if jobs, or this one, are active and no controller runs; None if all is well."""
    if is_owned(paths):
        return None
    if job is not None:
        return f"no controller is running, so nobody watches {job.id}: {START}" if not job.ended else None
    active = store.active_count()
    return f"no controller is running, so nobody watches {_jobs(active)}: {START}" if active else None


def describe(paths: HomePaths, store: Store | None) -> str:
    """Return the answer to `rung controller --status`."""
    active = store.active_count() if store is not None else 0
    if not is_owned(paths):
        return f"no controller is running; {_jobs(active)}" + (f" without one: {START}" if active else "")
    owner = find_owner(paths)
    if owner is None:
        return f"a controller watches {_jobs(active)}; its process cannot be seen from here"
    said = note(paths)
    return f"controller pid {owner.pid} watches {_jobs(active)}, since {local_time(owner.since)}" + (
        f"; {said}" if said else ""
    )


def _jobs(count: int) -> str:
    return f"{count or 'no'} active job{'s' * (count != 1)}"
