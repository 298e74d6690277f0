"""The transfer worker, which pushes each delayed message to its queue the moment it is due."""

from kombu_delayq.transfer.worker import TransferWorker

__all__ = [
    "TransferWorker",
]
