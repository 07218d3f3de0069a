"""What a Slurm site is like, as the list of hosts says it, and what a job asks of it. Frozen data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

FOLDER = "~/.rung"


class Start(StrEnum):
    """How a job starts on a node."""

    PLAIN = "plain"  # as a process, with the programs of the node
    APPTAINER = "apptainer"
    PYXIS = "pyxis"
    PODMAN = "podman"

    @property
    def contains(self) -> bool:
        """Tell whether jobs run in containers."""
        return self is not Start.PLAIN


class GpuOption(StrEnum):
    """The option by which a site is asked for GPUs."""

    GRES = "gres"  # --gres=gpu:TYPE:N
    GPUS = "gpus"  # --gpus-per-node=TYPE:N


@dataclass(frozen=True)
class Site:
    """The settings of one site. None: not given, so that the site's own default counts."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    # The limit of one batch job, in seconds. A run that needs more goes on in the next one.
    time: int | None = None
    # On the file system that login and compute nodes share. `~` is the home of our account there.
    folder: str = FOLDER
    gpu_option: GpuOption = GpuOption.GRES
    # The site's name for a type of GPU; empty: the site knows no types.
    gpu_names: tuple[tuple[str, str], ...] = ()
    # In bytes, on each node.
    memory: int | None = None
    cpus_per_gpu: int | None = None
    options: tuple[str, ...] = ()
    # Seconds before the limit that the job gets a signal; 0: none.
    warn: int = 120
    # Seconds between two questions to the queue.
    poll: int = 15
    # How many batch jobs Rung has in the queue at most.
    submit_at_most: int = 200
    start: Start = Start.PLAIN
    modules: tuple[str, ...] = ()
    # The file that defines the command `module`; None: the usual ones are tried.
    module_init: str | None = None
    venv: str | None = None
    conda: str | None = None
    # Files on the shared file system that hold an image, by its pinned name.
    images: tuple[tuple[str, str], ...] = ()

    def root(self, home: str) -> str:
        """Return the folder of Rung there, for an account with this home."""
        return home + self.folder[1:] if self.folder.startswith("~/") else self.folder

    def gpu_name(self, kind: str) -> str:
        """Return the site's name for a type of GPU: TITANRTX is titanrtx, where the settings say nothing."""
        return dict(self.gpu_names).get(kind, kind.lower())

    def image_file(self, image: str) -> str | None:
        return dict(self.images).get(image)


@dataclass(frozen=True)
class Asked:
    """What a job asks for; None: the settings of the site count."""

    time: int | None = None
    nodes: int = 1
    # GPUs on each node, and their type by Rung's name; None: of any type.
    gpus: int = 0
    gpu: str | None = None
    cpus: int | None = None
    memory: int | None = None
    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    options: tuple[str, ...] = ()

    @property
    def gpu_text(self) -> str | None:
        """Return the GPUs as a job file writes them, and on how many nodes; None: it asks for none."""
        kind = self.gpu or f"GPU{'s' if self.gpus > 1 else ''}"
        many = f"{kind}:{self.gpus}" if self.gpu else f"{self.gpus} {kind}"
        on = f" on each of {self.nodes} nodes" if self.nodes > 1 else ""
        return f"{many}{on}" if self.gpus else None

    def cpus_at(self, site: Site) -> int | None:
        """Return the CPUs on each node; None: what the site gives by itself."""
        return self.cpus or ((site.cpus_per_gpu or 0) * self.gpus or None)

    def time_at(self, site: Site) -> int | None:
        return self.time or site.time
