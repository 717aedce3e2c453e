"""A run or comparison that is going on, followed by whoever wants to see it: on a local page or in a terminal.

Watching only reads what is in the directory. It may begin and end at any time; the run does not notice.
"""

from fedclade.report.watch.look import Look, RunSeen, Watch, wait_for
from fedclade.report.watch.page import serve
from fedclade.report.watch.screen import follow

__all__ = ["Look", "RunSeen", "Watch", "follow", "serve", "wait_for"]
