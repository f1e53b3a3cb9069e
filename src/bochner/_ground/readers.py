"""Open each table file as what it is."""

from pathlib import Path

from bochner._ground.files import COMPRESSED, PARQUET, TEXT, first_bytes, table_suffix
from bochner._ground.frames import Reader
from bochner._ground.parquet import open_parquet
from bochner._ground.schema import listed
from bochner._ground.textfile import open_text
from bochner.errors import DataFileError

__all__ = ["open_file"]


def open_file(path: Path, separator: str | None) -> Reader:
    """Return the reader for what the file is: Parquet by its first bytes, else text by its name."""
    suffix = table_suffix(path)
    if first_bytes(path, 4) == b"PAR1" or suffix in PARQUET:
        return open_parquet(path)
    if suffix in TEXT:
        return open_text(path, separator)
    raise DataFileError(
        f"Blocks.from_files: '{path}' must be Parquet ({listed(PARQUET)}) or text "
        f"({listed(TEXT)}, perhaps compressed: {listed(COMPRESSED)}); the suffix "
        f"{suffix!r} is neither. Convert or rename it."
    )
