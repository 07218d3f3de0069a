"""The commands `rung image lock` and `rung image send`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click


@click.group()
def image() -> None:
    """Pin images by digest, and bring them to hosts."""


@image.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--host", help="Ask this host (default: each in turn, until one knows).")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def lock(file: Path, host: str | None, as_json: bool) -> None:
    """Pin the image tags in a job FILE by digest.

    A host resolves them; they are written to images.lock beside the file.
    """
    from rung.runner.session.image_ops import lock as pin

    found = pin(file, host, os.environ)
    if as_json:
        click.echo(json.dumps([vars(one) for one in found], indent=2))
        return
    for one in found:
        click.echo(f"{one.tag} is {one.image} ({one.host})")
    click.echo(f"wrote {file.parent / 'images.lock'}" if found else f"{file}: every image is pinned already")


@image.command()
@click.argument("image")
@click.argument("host")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
def send(image: str, host: str, as_json: bool) -> None:
    """Send IMAGE, of the engine here or a `docker save` archive, to HOST."""
    from rung.runner.files.tree import size_text
    from rung.runner.session.image_ops import send as bring

    sent = shown = 0

    def count(size: int) -> None:
        nonlocal sent, shown
        sent += size
        if sys.stderr.isatty() and sent - shown > 1 << 24:
            shown = sent
            click.echo(f"\r{size_text(sent)} sent ", nl=False, err=True)

    image_id = bring(image, host, os.environ, count)
    if as_json:
        click.echo(json.dumps({"id": image_id, "host": host, "bytes": sent}))
    else:
        click.echo(f"{host} has it ({size_text(sent)} sent); in the job file: image: {image_id}")
