"""What the server and a device say to each other: seven requests, each with one reply.

=================  ==============================================  =====================================================
request            the server sends                                the device replies
=================  ==============================================  =====================================================
query.describe     the config                                      its name, data, speed, and a probe of the link
train.local        a model, round, whether to upload at once       seconds it took, and the update if it is to upload
train.upload       the round                                       the update it kept
evaluate.models    models, which share of its data                 accuracy and mean loss of each
evaluate.compare   pairs of models, which share of its data        by class: images, mean and square of loss differences
evaluate.survey    models, how many images are enough              by class of its training images: images, mean losses
query.deliver      its cluster's model, by name of the tensors     where it put it
=================  ==============================================  =====================================================

Facts are plain values, arrays travel as NumPy without pickle. Whoever speaks another version says so.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedclade.core.errors import UserError

VERSION = 1
DESCRIBE, TRAIN, UPLOAD = "query.describe", "train.local", "train.upload"
EVALUATE, COMPARE, SURVEY, DELIVER = "evaluate.models", "evaluate.compare", "evaluate.survey", "query.deliver"
PROBE_BYTES = 2**18

Facts: TypeAlias = Mapping[str, Any]
Arrays: TypeAlias = Mapping[str, np.ndarray]


def pack(facts: Facts, arrays: Arrays | None = None) -> RecordDict:
    """Facts and arrays as the content of a message."""
    records = RecordDict({"facts": ConfigRecord({"version": VERSION, **facts})})
    if arrays:
        records["arrays"] = ArrayRecord({name: Array(np.ascontiguousarray(array)) for name, array in arrays.items()})
    return records


def unpack(content: RecordDict) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The inverse of ``pack``."""
    facts = dict(content.config_records["facts"])
    if facts.pop("version", None) != VERSION:
        raise UserError(f"the other side does not speak version {VERSION} of the messages: install the same fedclade")
    arrays = content.array_records["arrays"] if "arrays" in content.array_records else ArrayRecord()
    return facts, {name: array.numpy() for name, array in arrays.items()}
