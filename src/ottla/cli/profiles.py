"""Profiles: client properties files that have a name, in `~/.config/ottla/` (`$XDG_CONFIG_HOME/ottla/`).

`ottla --config staging topics list` reads `~/.config/ottla/staging.properties`, unless there is a file `staging` here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ottla.base.errors import ConfigError

_SUFFIX = ".properties"


def directory(environ: Mapping[str, str]) -> Path:
    """Where profiles are. A relative XDG_CONFIG_HOME does not count, as its specification wants it."""
    base = environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if base.startswith("/") else Path(environ.get("HOME") or Path.home(), ".config")) / "ottla"


def config_file(named: str, environ: Mapping[str, str]) -> Path:
    """The file that `--config NAMED` means: a file of that name, else the profile.

    Raises ConfigError when `named` can only be a profile, and there is none.
    """
    file = Path(named)
    if file.exists() or file.name != named or file.suffix == _SUFFIX:
        return file
    profile = directory(environ) / f"{named}{_SUFFIX}"
    if profile.exists():
        return profile
    there = sorted(each.stem for each in profile.parent.glob(f"*{_SUFFIX}"))
    known = f"profiles are {', '.join(there)}" if there else "there are no profiles yet"
    raise ConfigError(f"cannot read {named}: there is no such file, and no profile {profile}; {known}")
