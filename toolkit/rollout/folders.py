"""Folders that are there whole or not at all: made beside their place, then renamed into it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path


def write_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a folder, and put it in the place of `folder` in one step."""
    beside = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    write(beside)
    settle(beside)
    if folder.exists():
        gone = folder.with_name(f".{folder.name}.old")
        shutil.rmtree(gone, ignore_errors=True)
        folder.rename(gone)
        beside.rename(folder)
        shutil.rmtree(gone)
    else:
        beside.rename(folder)
    sync_folder(folder.parent)


def settle(folder: Path) -> None:
    """Make all files below `folder` readable as other files are, and wait until the disk has them."""
    mask = os.umask(0)
    os.umask(mask)
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        path.chmod(0o666 & ~mask)  # safetensors writes its files for their owner alone
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    for path in [folder, *(inner for inner in folder.rglob("*") if inner.is_dir())]:
        sync_folder(path)


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names in `folder`."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
