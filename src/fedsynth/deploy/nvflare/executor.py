"""A site's half of a job: the bytes of a task go to the site's own code, and its answer goes back."""

from __future__ import annotations

from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from fedsynth.deploy.job import SiteWork
from fedsynth.deploy.nvflare.streams import keep_streams_small


class SiteExchange(Executor):
    """The executor of every fedsynth job; the component named "work" is an `SiteWork`."""

    def __init__(self) -> None:
        super().__init__()
        keep_streams_small()

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Answer one message."""
        payload = shareable.get("payload")
        if not isinstance(payload, bytes):
            return make_reply(ReturnCode.BAD_TASK_DATA)
        attendant: SiteWork = fl_ctx.get_engine().get_component("work")
        answer = Shareable()
        answer["payload"] = attendant.handle(payload)
        return answer
