"""The command line `rung`.

A command is imported when it runs, and its help is shown from a list, so that every command begins at once. Nothing
here imports torch.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import UserDict
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from rung.jobs.model.errors import RungError
from rung.jobs.model.terminal_text import clean
from rung.runner.cli.review.job_argument import complete_job, complete_job_or_group
from rung.runner.cli.review.watched import refuse_bad_setting, warn_if_unwatched
from rung.runner.state.home import keep_files_private

# The module of each command that is imported when it runs, and the first sentence of its help.
LISTED = {
    "checkpoints": ("rung.runner.cli.checkpoints", "List the checkpoints of JOB, and which are healthy."),
    "compare": ("rung.runner.cli.compare", "Show jobs side by side: settings, end and costs."),
    "controller": ("rung.runner.cli.controller", "Run, start, stop or install the controller of all jobs."),
    "demo": ("rung.runner.cli.drill", "Watch real FP16 trainings fail and recover, in a few minutes."),
    "doctor": ("rung.runner.cli.doctor", "Find what fails in FP16 in training scripts, without a run."),
    "drill": ("rung.runner.cli.drill", "Test your set-up with a toy job that has a real fault."),
    "explain": ("rung.runner.cli.logs", "Show which faults Rung finds in any LOG file."),
    "export": ("rung.runner.cli.review.export", "Write what a job has shown for another program."),
    "follow": ("rung.runner.cli.logs", "Tell the story of JOB so far, and go on until it ends."),
    "hosts": ("rung.runner.cli.review.hosts", "List the hosts: their GPUs, what is free, which are lost."),
    "image": ("rung.runner.cli.image", "Pin images by digest, and bring them to hosts."),
    "init": ("rung.runner.cli.init", "Write a job file for the training SCRIPT."),
    "ladder": ("rung.runner.cli.ladder", "Show how well each rung did for each fault, over all jobs."),
    "launch": ("rung.runner.cli.launch", "Submit the job in FILE, and have a controller watch it."),
    "logs": ("rung.runner.cli.logs", "Print the log of JOB, without control codes."),
    "metrics": ("rung.runner.cli.review.metrics", "Print the numbers of all jobs as text for Prometheus."),
    "notify": ("rung.runner.cli.review.notify", "List who is told about jobs, and what waits to be sent."),
    "prune": ("rung.runner.cli.removal", "Free disk: remove what jobs that ended no longer need."),
    "pull": ("rung.runner.cli.pull", "Fetch checkpoints, logs and results of JOB."),
    "queue": ("rung.runner.cli.queue", "List the jobs with their states, the newest last."),
    "report": ("rung.runner.cli.review.report", "Say how JOB went, or what happened to all jobs since a time."),
    "rm": ("rung.runner.cli.removal", "Remove jobs that have ended, with all that they left."),
    "top": ("rung.runner.cli.review.top", "Show the jobs and hosts in the terminal, live, by keyboard."),
    "validate": ("rung.runner.cli.validate", "Compare a job's FP16 with FP32 before you trust it."),
    "web": ("rung.runner.cli.review.web", "Show the jobs as a live page in the browser."),
}


class Commands(UserDict[str, click.Command]):
    """The commands by their names; a listed one is imported when somebody asks for it."""

    def __init__(self) -> None:
        super().__init__()
        self.data: dict[str, Any] = dict.fromkeys(LISTED)

    def __getitem__(self, name: str) -> click.Command:
        if self.data[name] is None:
            self.data[name] = getattr(import_module(LISTED[name][0]), name)
        found: click.Command = self.data[name]
        return found


class ListedGroup(click.Group):
    """Shows the help of the listed commands without importing them."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own = {name: self.commands[name].get_short_help_str(limit=80) for name in self.commands if name not in LISTED}
        rows = {**own, **{name: sentence for name, (_, sentence) in LISTED.items()}}
        with formatter.section("Commands"):
            formatter.write_dl(sorted(rows.items()))


LOG = click.option("--log", is_flag=True, help="Like -f, but show the whole log instead of the story.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")


JOB = click.argument("job", shell_complete=complete_job)
JOB_OR_GROUP = click.argument("job", metavar="JOB|GROUP", shell_complete=complete_job_or_group)


def _print_json(data: Any) -> None:
    click.echo(json.dumps(data, indent=2, default=str))


@click.group(cls=ListedGroup, commands=Commands(), context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="rung")
def cli() -> None:
    """Run FP16 trainings, and recover those that fail.

    Rung launches a job, watches its log for numerical faults, changes what must change, and relaunches from the last
    healthy checkpoint. JOB is a job's id or its name (then the newest of that name). Everything is kept in
    RUNG_HOME, by default ~/.local/state/rung.

    Begin with `rung demo`; then `rung init train.py` and `rung launch -f job.yaml` for a script of your own.
    """


@cli.command()
@JOB
@click.option("--diff", is_flag=True, help="Show per attempt every knob, asked and effective, and every rung skipped.")
@click.option("--full", is_flag=True, help="Show the whole text on a terminal, too: reasons, knobs, costs.")
@click.option("--csv", "as_csv", is_flag=True, help="Print a table for spreadsheets: one line per attempt.")
@JSON
def history(job: str, diff: bool, full: bool, as_csv: bool, as_json: bool) -> None:
    """Show the recovery history of JOB, attempt by attempt.

    On a terminal this is a timeline: a line per attempt with its loss as a curve, all on one scale. --full and --diff
    print the whole text, which a file or a pipe always gets.
    """
    from rung.runner.session.open_home import OpenHome
    from rung.runner.views.history import history as build
    from rung.runner.views.history import with_series
    from rung.runner.views.tables import history_text, summary_line, terminal_width
    from rung.runner.views.timeline import timeline

    session = OpenHome.open()
    found = session.store.find(job)
    data = build(session.store, found, session.paths, time.time())
    warn_if_unwatched(session, found)
    if as_json:
        _print_json(with_series(data, found))
    elif as_csv:
        from rung.runner.views.csv_text import history_csv

        click.echo(history_csv(data), nl=False)
    elif sys.stdout.isatty() and not (full or diff):
        summary = summary_line(found.id, data["summary"])
        click.echo(timeline(with_series(data, found), summary, terminal_width()))
    else:
        click.echo(history_text(data, diff=diff))


@cli.command()
@JOB_OR_GROUP
@JSON
def cancel(job: str, as_json: bool) -> None:
    """End JOB, or the jobs of GROUP: TERM, then KILL. It waits for the end.

    The whole process group of a job is ended. GROUP is that of a `rung launch --grid`: all its jobs that have not ended
    are ended, also those that wait. It starts a controller if none runs. A job that cannot be ended in time, such as
    one on a host that does not answer, is shown with the reason; the controller goes on with it.
    """
    from rung.runner.session.cancel import cancel_group, cancel_job
    from rung.runner.session.session import Session

    refuse_bad_setting()
    session = Session.open()
    group = session.store.has_group(job) and not session.store.has_job(job)
    found = cancel_group(session, job) if group else [cancel_job(session, session.store.find(job))]
    if as_json:
        rows = [{"id": each.id, "state": each.state, "cancel_requested": each.cancel_requested} for each in found]
        _print_json({"group": job, "jobs": rows} if group else rows[0])
    else:
        for each in found:
            why = f": {clean(each.reason)}" if each.reason else ""
            click.echo(f"{each.id} is {each.state}" + ("" if each.ended else f"; cancelling{why}"))
    warn_if_unwatched(session, None if group else found[0])


@cli.command()
@JOB
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KNOB=VALUE",
    help="Change a knob, such as lr=1e-4; may be given repeatedly.",
)
@click.option("--file", type=click.Path(path_type=Path), help="Take this edited job file instead of the stored one.")
@click.option(
    "--give-up-hosts", is_flag=True, help="Do not wait for hosts that do not answer and may have checkpoints."
)
@click.option("-f", "--follow", is_flag=True, help="Stay and tell the job's story until it ends.")
@LOG
@JSON
def retry(  # noqa: PLR0913  (one for each option)
    job: str, settings: Sequence[str], file: Path | None, give_up_hosts: bool, follow: bool, log: bool, as_json: bool
) -> None:
    """Run a FAILED or CANCELLED JOB again, from a good checkpoint."""
    from rung.runner.cli.controller import watch_over
    from rung.runner.launch.job_file import changed_since
    from rung.runner.session.session import Session

    refuse_bad_setting()
    session = Session.open()
    asked = session.store.find(job)
    note = changed_since(session.store, asked) if file is None else None
    found = session.retry(asked, settings, file, give_up_hosts=give_up_hosts)
    if note is not None:
        click.echo(clean(note), err=True)
    quiet = as_json and not (follow or log)
    if quiet:
        _print_json({"id": found.id, "state": found.state, "knobs": found.knobs.to_dict()})
    else:
        click.echo(f"{found.id} is {found.state} again")
    watch_over(session, found, (follow, log), quiet=quiet)


@cli.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@JSON
def check(file: Path | None, as_json: bool) -> None:
    """Check this machine, the hosts and, with FILE, a job file.

    Of a job file it says whether that job could run, where, and which rungs it can use. Exit code 0 if
    all is well, 1 if not.
    """
    from rung.runner.session.session import check as findings

    found = findings(file)
    if as_json:
        _print_json([{"good": f.good, "what": f.what, "fix": f.fix} for f in found])
    else:
        for finding in found:
            mark = click.style("ok  ", fg="green") if finding.good else click.style("BAD ", fg="red")
            fix = f": {finding.fix}" if finding.fix and not finding.good else ""
            click.echo(mark + clean(finding.what + fix))
    sys.exit(0 if all(finding.good for finding in found) else 1)


@cli.command()
def schema() -> None:
    """Print the JSON Schema of the job file, for editors."""
    from rung.jobs.spec.job_spec import JobSpec

    _print_json(JobSpec.model_json_schema())


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes jobs and options in a shell.

    For bash write eval "$(rung completion bash)" into ~/.bashrc, for zsh the same with zsh into ~/.zshrc; for fish
    run: rung completion fish > ~/.config/fish/completions/rung.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None, "click.Choice lets no other shell through"
    click.echo(found(cli, {}, "rung", "_RUNG_COMPLETE").source())


def main() -> None:
    """Run the command line; every RungError becomes one line and exit code 2."""
    keep_files_private()
    try:
        cli(sys.argv[1:] or ["--help"], standalone_mode=False, prog_name="rung", color=_colours())
    except RungError as error:
        _fail(str(error))
    except click.Abort:
        sys.exit(130)
    except click.ClickException as error:
        _fail(error.format_message().rstrip(".") + "; see --help")
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:
        _fail(f"{error.filename or 'rung'}: {error.strerror or error}")


def _colours() -> bool | None:
    """Return False where NO_COLOR asks for none; None: on a terminal only."""
    return False if os.environ.get("NO_COLOR") else None


def _fail(message: str) -> None:
    for line in message.splitlines():
        click.echo(f"{click.style('rung:', fg='red')} {clean(line)}", err=True, color=_colours())
    sys.exit(2)


if __name__ == "__main__":
    main()
