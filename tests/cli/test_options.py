"""Options that stand in a dataclass: the command has them, and the dataclass has their defaults."""

from __future__ import annotations

import dataclasses

from dc_inject.assembly.starting import RunOptions
from dc_inject.cli.run import run


def test_fields_have_the_names_and_defaults_of_options() -> None:
    context = run.make_context("run", ["menu.yaml"])
    options = dataclasses.asdict(RunOptions())
    assert options == {name: context.params[name] for name in options}
    names = [parameter.name for parameter in run.params]
    assert names[names.index("once") :][: len(options)] == list(options)
