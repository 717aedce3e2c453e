"""Parquet files that somebody else made, as columns; read piece by piece, so that none takes too much memory."""

from pathlib import Path
from typing import Any

import numpy as np

from fedclade.core.errors import UserError

ROWS_AT_ONCE = 65_536
GIGABYTE = 10**9


def read_parquet(path: Path, where: str, limit: float) -> dict[str, np.ndarray]:
    """The columns of a file by name, if they take no more than ``limit`` bytes; ``where`` begins a complaint.

    Numbers and truth values are arrays of these, texts are arrays of objects, and lists of equal length are rows.
    """
    arrow = _arrow()
    try:
        with arrow.parquet.ParquetFile(path) as file:
            batches, taken = [], 0
            for batch in file.iter_batches(batch_size=ROWS_AT_ONCE):
                taken += batch.nbytes
                if taken > limit:
                    raise UserError(
                        f"{where}: takes more than {limit / GIGABYTE:.3g} GB of memory, must be at most "
                        f"population.memory_limit_gb"
                    )
                batches.append(batch)
            table = arrow.Table.from_batches(batches, file.schema_arrow)
        return {name: _array(table.column(place)) for place, name in enumerate(table.column_names)}
    except UserError:
        raise
    except Exception as error:  # a damaged file raises whatever Arrow comes upon
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UserError(f"{where}: not a Parquet file: {' '.join(reason.split()) or type(error).__name__}") from error


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UserError("Parquet files need pyarrow: pip install 'fedclade[data]'") from None
    return pyarrow


def _array(column: Any) -> np.ndarray:
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype == object and len(values) and all(isinstance(one, np.ndarray) for one in values):
        return np.stack(list(values))
    return np.asarray(values)
