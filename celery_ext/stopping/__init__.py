"""Running tasks that stop because they ask: they were cancelled, or their worker has to stop."""

from celery_ext.stopping.asking import Reason, TaskCancelled, cancelled, check_cancelled
from celery_ext.stopping.elsewhere import Elsewhere
from celery_ext.stopping.shutdown import SETTING, watch_shutdown

__all__ = ["SETTING", "Elsewhere", "Reason", "TaskCancelled", "cancelled", "check_cancelled", "watch_shutdown"]
