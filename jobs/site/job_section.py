"""The section `slurm` of a job file: what a job asks of a Slurm site beyond its resources."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from rung.jobs.site.words import JOB_OPTIONS, job_option, name, names, option_name

MOST_OPTIONS = 20


def _once(words: tuple[str, ...]) -> tuple[str, ...]:
    given = [option_name(word) for word in words]
    twice = next((each for each in given if given.count(each) > 1), None)
    if twice is not None:
        raise ValueError(f"--{twice} is given twice")
    return words


class SlurmSection(BaseModel):
    """What a job asks of a Slurm site; what is left out is as the list of hosts says."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    partition: Annotated[str, AfterValidator(names)] | None = Field(
        None, description="The partition, or several with commas."
    )
    account: Annotated[str, AfterValidator(name)] | None = Field(None, description="The account that is charged.")
    qos: Annotated[str, AfterValidator(name)] | None = Field(None, description="The quality of service.")
    options: Annotated[
        tuple[Annotated[str, AfterValidator(job_option)], ...], AfterValidator(_once), Field(max_length=MOST_OPTIONS)
    ] = Field((), description=f"Further options of sbatch, each one word: {', '.join(sorted(JOB_OPTIONS))}.")
