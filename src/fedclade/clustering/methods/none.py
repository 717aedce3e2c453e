"""Conventional federated learning: one model for all, whatever their data. What every clustering must beat."""

from fedclade.clustering.method import BaseMethod

METHOD = BaseMethod
