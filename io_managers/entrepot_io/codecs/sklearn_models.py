"""scikit-learn's models, and classes derived from its ``BaseEstimator``: pickled, with the version that wrote them.

scikit-learn offers pickle as its only way to keep a fitted model. Its arrays stay out of the pickle and are not copied,
except where a class copies them itself when it is unpickled, as trees do. If the versions differ, scikit-learn warns
(``InconsistentVersionWarning``); where reading fails for that reason, the error says so.
"""

from __future__ import annotations

from typing import Any

import sklearn
from entrepot.codec import PICKLE_CODEC, Codec, Decoder, Encoder, Node
from entrepot.errors import CorruptData, UnsupportedType, VersionMismatch

from entrepot_io.codecs.validation import child, damaged, fields


class ModelCodec(Codec):
    """``sklearn.base.BaseEstimator``. params: [class, version of scikit-learn]; its only child is the pickled model."""

    name = "sklearn.model"
    pickles = True

    def encode(self, value: Any, encoder: Encoder) -> Node:
        cls = type(value)
        if not encoder.allow_pickle:
            raise UnsupportedType(
                f"a model ({cls.__qualname__}) can only be pickled, and pickling is switched off: allow it "
                "(connect(allow_pickle=True), ENTREPOT_ALLOW_PICKLE=1), or put the model's arrays"
            )
        pickled = encoder.registry.by_name(PICKLE_CODEC).encode(value, encoder)
        params = [f"{cls.__module__}.{cls.__qualname__}", str(sklearn.__version__)]
        return Node(self.name, self.version, params, children=[pickled])

    def decode(self, node: Node, decoder: Decoder) -> Any:
        kind, written_by = fields(node, 2)
        pickled = child(node, 0)
        if pickled.codec != PICKLE_CODEC:
            raise damaged(node, f"its child was written by {pickled.codec!r}")
        try:
            return decoder.decode(pickled)
        except (CorruptData, UnsupportedType, VersionMismatch) as error:
            # Without a cause, it is a refusal of our own: pickling is switched off, or does not permit the class.
            if error.__cause__ is None or written_by == sklearn.__version__:
                raise
            raise VersionMismatch(
                f"a {kind} that was put by a process with scikit-learn {written_by} cannot be read with "
                f"{sklearn.__version__}: {error}; install that version here, or fit the model again"
            ) from error

    def wanted_in_pickle(self, value: Any) -> bool:
        """A pipeline's steps are pickled with it, so that references between them are preserved."""
        return False
