"""The array types that cross module borders."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Singles: TypeAlias = NDArray[np.float32]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Bytes: TypeAlias = NDArray[np.uint8]
Tokens: TypeAlias = NDArray[np.int32]
Inputs: TypeAlias = Bytes | Singles | Tokens  # what models are fed with: pixels, numbers, or token ids
Targets: TypeAlias = NDArray[Any]  # what models are to tell: classes, or a row of numbers for each sample
Reals: TypeAlias = NDArray[np.floating[Any]]
