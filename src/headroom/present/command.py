"""The two commands that every figure module has, ``data`` and ``draw``, made from its two functions.

    if __name__ == "__main__":
        figure_command("gate", data, draw)

``data(contrasts: Path, steps: list[Path], ...) -> DataFrame`` reads tables, one option a parameter;
``draw(table) -> (Figure, caption)`` sees the numbers alone, so that whatever is plotted can be read and audited.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from headroom.files import write_csv
from headroom.present.style import save, styled
from headroom.provenance import record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Data = Callable[..., pd.DataFrame]
Draw = Callable[[pd.DataFrame], "tuple[Figure, str]"]


def figure_command(name: str, data: Data, draw: Draw, beside: Mapping[str, str] | None = None) -> None:
    """Parse the command line of the figure ``name`` and run one of its commands.

    Args:
        name: Module of the figure.
        data: Makes the numbers.
        draw: Draws them.
        beside: Parameter of ``data`` -> pattern of the files in its folder that ``data`` reads too: inputs as well.

    Raises:
        SystemExit: an input is missing or lacks a column; the message names the file.
    """
    parser = argparse.ArgumentParser(prog=f"python -m headroom.present.{name}", description=inspect.getdoc(draw))
    commands = parser.add_subparsers(dest="command", required=True)
    numbers = commands.add_parser("data", help="write the numbers of the figure", description=inspect.getdoc(data))
    parameters = inspect.signature(data, eval_str=True).parameters
    for parameter, kind in parameters.items():
        many = kind.annotation is not Path
        numbers.add_argument(
            f"--{parameter.replace('_', '-')}", type=Path, required=True, action="append" if many else "store"
        )
    numbers.add_argument("--output", type=Path, required=True, help="figures/SCALE/data/NAME.csv")
    drawing = commands.add_parser("draw", help="draw the figure from its numbers", description=inspect.getdoc(draw))
    drawing.add_argument("--data", type=Path, required=True, help="the CSV that `data` wrote")
    drawing.add_argument("--output", type=Path, required=True, help="figures/SCALE/NAME.pdf; the PNG goes beside it")
    arguments = parser.parse_args()
    if arguments.command == "data":
        paths = {parameter: getattr(arguments, parameter) for parameter in parameters}
        more = {
            f"{parameter}-files": sorted(paths[parameter].parent.glob(pattern))
            for parameter, pattern in (beside or {}).items()
        }
        with record.job(stage=f"present.{name}", output=arguments.output, inputs={**paths, **more}) as job:
            write_csv(arguments.output, _checked(data, paths))
            job.ending = "finished"
        return
    output: Path = arguments.output
    extra = [output.with_suffix(".png"), output.parent / "captions" / f"{output.stem}.txt"]
    with (
        record.job(stage=f"present.{name}", output=output, inputs={"data": arguments.data}, extra_outputs=extra) as job,
        styled(),
    ):
        figure, caption = draw(pd.read_csv(arguments.data))
        save(figure, output, caption=caption)
        job.ending = "finished"


def _checked(data: Data, paths: dict[str, object]) -> pd.DataFrame:
    try:
        return data(**paths)
    except OSError as error:
        raise SystemExit(f"{error.filename}: cannot be read ({error.strerror}); run the rule that makes it") from error
    except (KeyError, ValueError) as error:  # a column, or a table that is none
        what = f"lacks the column {error}" if isinstance(error, KeyError) else str(error).splitlines()[0]
        names = [str(path) for value in paths.values() for path in (value if isinstance(value, list) else [value])]
        raise SystemExit(f"{', '.join(names[:4])}: {what}; run the rule that makes it") from error
