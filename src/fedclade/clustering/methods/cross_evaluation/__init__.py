"""Cross-evaluation: the devices say whose training helps whom, and try every cut on held-out images.

Nothing in it has a scale, so there is no threshold to set for a model or a data set. ``method`` says what happens in a
round; ``affinity`` finds likely groups in what devices say of one another's models, and ``preference`` where devices
differ one by one; ``proposals`` asks for that and has the cuts tried, which ``rehearsal`` does; ``split_test`` judges
them, and ``without_own`` where devices differ one by one; ``review`` moves devices and merges clusters, ``belonging``
tells who is in the wrong place.
"""

from fedclade.clustering.methods.cross_evaluation.method import CrossEvaluation

METHOD = CrossEvaluation

__all__ = ["METHOD", "CrossEvaluation"]
